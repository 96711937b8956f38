"""Are the bytes at every level, and the energy, those that a plain count of every instruction gives?"""

import csv
import json
from collections import Counter
from fractions import Fraction
from functools import partial
from math import prod
from operator import mul
from random import Random
from types import SimpleNamespace

import pytest

from ascendsim import ConvProblem, estimate, load_profile
from ascendsim.cli import main
from ascendsim.errors import AscendSimError, CapacityError, ConfigError
from ascendsim.instructions.cube import Mmad
from ascendsim.instructions.elementwise import Cast
from ascendsim.instructions.fixpipe import CopyL0cToUb, Fixpipe, ReadOut
from ascendsim.instructions.movers import CopyGmToL1, FillL1, LoadL0A
from ascendsim.instructions.relayout import PieceToL1, Rearrange, SpreadPixels, TurnTile
from ascendsim.instructions.vector import (
    Add,
    AddLanes,
    AddRows,
    CopyGmToUb,
    CopyUbToGm,
    Fill,
    SumLanes,
    SumPixels,
)
from ascendsim.instructions.winograd import ToPoints, ToTaps
from ascendsim.numerics.dtypes import ELEMENTS, find
from ascendsim.ops.matmul import estimate_matmul
from ascendsim.ops.plan import Tiling
from ascendsim.ops.problems.matmul import MatmulProblem
from ascendsim.ops.traffic import kernel_traffic
from ascendsim.profile.schema import LEVELS
from ascendsim.report.studies.traffic import energy_table, traffic_answered
from ascendsim.studies import levers as lever_study
from ascendsim.studies.accounts import (
    SHOWN,
    CallTraffic,
    EnergyEvent,
    KernelBound,
    Lever,
    LeverAnswer,
    LeverQuestion,
    TrafficAnswer,
    TrafficQuestion,
    added,
    energy_between,
    energy_pj,
    lacking,
)
from ascendsim.studies.hardware.records import StudiedLayer
from ascendsim.studies.levers import fast_pipe, steps_of, study_levers
from ascendsim.studies.sweep import Sweep
from ascendsim.studies.table import form, microseconds, percent, saving, three_digits, whole
from ascendsim.studies.table import share as part_shown
from ascendsim.studies.traffic import estimate_call, study_traffic
from ascendsim.workloads import load_workload
from tests.helpers.both_engines import random_call, random_matmul

# What hands on a tile as it is; the others compute.
MOVES = (CopyGmToL1, CopyGmToUb, LoadL0A, Cast, PieceToL1, Rearrange, SpreadPixels, TurnTile, ToPoints)


class Tile:
    """Something in a slot: the tensor it is of, where that is known, and the bytes counted before that."""

    def __init__(self, owner=None):
        self.owner, self.part_of, self.counts = owner, None, Counter()

    def tensor(self):
        return self.owner or (self.part_of.tensor() if self.part_of else "any")


def element_bytes(name):
    return 4 if name.startswith("hf32") else find(name, ELEMENTS).itemsize


def plain_sizes(made):
    """Bytes of each slot that an instruction reads and writes, by the sizes of its tiles."""
    match made:
        case LoadL0A():
            rows, columns = made.tile_read.matrix_shape()
            return [rows * columns * made.tile_read.itemsize] * 2
        case Mmad():
            size, sums = element_bytes(made.compute_dtype), made.m * made.n * 4
            return [made.m * made.k * size, made.n * made.k * size, *[sums] * (2 - made.first)]
        case CopyGmToL1() | FillL1() | CopyGmToUb() | CopyUbToGm() | Fill():
            return [made.bytes]
        case Fixpipe():
            return [0 if made.read_out else made.bytes // made.dst.tensor.itemsize * 4]
        case ReadOut():
            return [made.elements * 4, 0]
        case CopyL0cToUb():
            return [made.elements * 4, made.elements * element_bytes(made.dtype)]
        case Cast():
            return [made.elements * made.source_bytes, made.elements * element_bytes(made.dtype)]
        case PieceToL1() | Rearrange():
            return [made.bytes] * 2
        case Add():
            return [made.elements * 4] * 3
        case AddLanes():
            return [made.rows * 256, made.rows * made.length * made.itemsize, made.rows * 256]
        case AddRows():
            return [made.length * 4, made.rows * made.length * made.itemsize, made.length * 4]
        case SumLanes():
            return [made.rows * 256, made.rows * 4]
        case SumPixels():
            return [made.rows * made.pixels * 4, made.rows * 4]
        case TurnTile():
            return [prod(made.turn.padded) * made.itemsize] * 2
        case SpreadPixels():
            # The zeros between its pixels are not touched.
            return [0, *[made.channels * made.rows * made.cols * made.pixel_bytes] * 2]
        case ToPoints() | ToTaps():
            # Which `test_vector_instructions` holds to the tiles.
            return made.touched_bytes
    return []


def plain_counts(kernel, profile):
    """Walk every instruction of every core by itself: (level, tensor, written) -> bytes."""
    found = Counter()
    for work in (work for phase in kernel.phases for work in phase.work):
        tiles, all_tiles = {}, []
        for made in work.build().instructions:
            read = [tiles.setdefault(slot.index, Tile()) for slot in made.reads]
            tensor = made.gm.tensor.name if made.gm is not None else None
            for tile in read:
                tile.owner = tile.owner or tensor
            for slot in made.writes:
                old = tiles.get(slot.index)
                # Zeros between copied pixels belong to these.
                zeros = old is not None and not old.owner and isinstance(made, CopyGmToL1 | CopyGmToUb)
                if slot not in made.reads and not zeros:
                    tiles[slot.index] = Tile()
                target = tiles[slot.index]
                if isinstance(made, MOVES):
                    target.owner = target.owner or tensor or read[-1].owner
                for tile in read:
                    if tile is not target:
                        tile.part_of = target
            uses = [(tile, slot, False) for tile, slot in zip(read, made.reads, strict=True)]
            uses += [(tiles[slot.index], slot, True) for slot in made.writes]
            for (tile, slot, written), size in zip(uses, plain_sizes(made), strict=True):
                tile.counts[slot.buffer.rpartition(".")[2], written] += size
                tile.ring = slot.buffer, slot.name.partition("[")[0]
                all_tiles.append(tile)
            if moved := made.cost(profile).traffic:
                found["L2", moved.tensor.name, moved.kind != "read"] += moved.bytes
        for tile in {id(tile): tile for tile in all_tiles}.values():
            # Zeros in the place of a tensor's tile are the tensor's.
            own = (one.owner for one in [tile, *all_tiles] if one.ring == tile.ring and one.owner)
            tensor = next(own, None) or tile.tensor()
            for (level, written), size in tile.counts.items():
                found[level, tensor, written] += size
    return {key: size for key, size in found.items() if size}


def counted(traffic):
    """What `kernel_traffic` counts on chip and at L2, in the form of `plain_counts`."""
    both = ((move, way) for move in traffic.moves if move.level != "memory" for way in (False, True))
    sizes = {(m.level, m.operand, way): m.written if way else m.read for m, way in both}
    return {key: size for key, size in sizes.items() if size}


def joined(plain, names):
    """A plain count, with tensors taken together that the other cannot tell apart: "a+b"."""
    found = Counter()
    for (level, tensor, written), size in plain.items():
        parts = set(tensor.split("+"))
        shared = [name for at, name in names if at == level and parts < set(name.split("+"))]
        found[level, shared[0] if shared else tensor, written] += size
    return found


def random_kernels(seed):
    rng = Random(seed)
    if rng.random() < 0.3:
        kernels, profile = random_matmul(rng)
        return kernels, profile
    kernels, profile, _ = random_call(rng)
    return kernels, profile


def results_of(kernels, profile):
    """Kernels as results, which `kernel_traffic` reads."""
    from ascendsim.ops.graph_times import known_times, summarise

    for kernel in kernels:
        times = known_times(kernel, profile, folded=True, l2_start="cold")
        yield summarise(kernel, profile, times, None, "compiled", "cold")


@pytest.mark.parametrize(
    "first", [0, *(pytest.param(first, marks=pytest.mark.slow) for first in range(30, 230, 50))]
)
def test_counts_are_those_of_every_instruction_by_itself(first):
    left = 30 if not first else 50
    seed = first
    while left > 0:
        kernels, profile = random_kernels(f"traffic {seed}")
        seed += 1
        for result in results_of(kernels[:left], profile):
            traffic = kernel_traffic(result, profile)
            found = counted(traffic)
            names = [name[:2] for name in found]
            plain = plain_counts(result.kernel, profile)
            assert joined(found, names) == joined(plain, names), (seed, result.name)
            assert traffic.at("L2") == (result.bytes["l2_read"], result.bytes["l2_write"])
            # Those that leave have no operand: it takes them from the result.
            assert traffic.at("memory")[0] == result.bytes["memory_read"]
            left -= 1


def test_a_product_is_counted_by_its_loop_bounds():
    # 256 x 512 x 384 in tiles of 64 x 128: A once for each of 3 tiles along n, B for each of 4 along m.
    m, k, n = 256, 512, 384
    tiling = Tiling(64, 128, 64, 1, 1, used_cores=4)
    profile = load_profile("910B2")
    (result,) = estimate_matmul(MatmulProblem(m, k, n), product=profile, tiling=tiling).kernels
    traffic = kernel_traffic(result, profile)
    assert traffic.macs == {"float16": m * k * n}
    assert [traffic.at(level)[0] for level in ("L0A", "L0B")] == [3 * m * k * 2, 4 * k * n * 2]
    # Sums are read for all but the first of 512 / 64 products into a tile, and by Fixpipe.
    assert traffic.at("L0C") == (8 * m * n * 4, 8 * m * n * 4)


# --- Energy ---------------------------------------------------------------------------------------------

LAYER = ["s5b0_1x1a", "--batch", "2"]


def weighed(tmp_path, weights):
    """A product file with these figures of energy."""
    rows = [
        f'{path} = {{ value = {value}, source = "a test", confidence = "paper" }}' for path, value in weights
    ]
    path = tmp_path / "weighed.toml"
    path.write_text("\n".join(['base = "910B2"', 'product = "own"', 'variant = "own"', "[energy]", *rows]))
    return path


WEIGHTS = {
    "mac_pj.float16": "0.7",
    **{f"read_pj_per_byte.{level}": f"{at}.1" for at, level in enumerate(LEVELS, 1)},
    **{f"write_pj_per_byte.{level}": f"{at}.3" for at, level in enumerate(LEVELS, 1)},
    "vector_pj_per_cycle": "12.5",
    "core_pj_per_cycle": "3",
    "leakage_pj_per_cycle": "0.01",
}


def test_energy_is_the_sum_over_all_events(tmp_path, capsys):
    product = weighed(tmp_path, WEIGHTS.items())
    assert main(["study", "traffic", *LAYER, "--product", str(product), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    problem = ConvProblem(
        **{each.name: each for each in load_workload("resnet50").convolutions}[LAYER[0]].problem_options(2)
    )
    result = estimate(problem, product=product, l2_start="step", output_mask=(True, True, False))
    # By hand: bytes of the table, and cycles and multiply-adds of the estimate.
    total = Fraction(0)
    for row in found["bytes"]:
        total += row["read_bytes"] * Fraction(WEIGHTS[f"read_pj_per_byte.{row['level']}"])
        total += row["written_bytes"] * Fraction(WEIGHTS[f"write_pj_per_byte.{row['level']}"])
    for kernel in result.kernels:
        total += kernel.macs * Fraction("0.7") + kernel.cycles * 3 * kernel.cores_used
        # The chip leaks while a kernel is started, too: of 1800 MHz.
        total += (kernel.cycles + round(kernel.launch_us * 1800)) * Fraction("0.01")
        for phase in kernel.times.phases:
            for work in phase.cores:
                total += len(work.cores) * work.busy.get("V", 0) * Fraction("12.5")
    assert found["energy_pj"] == float(total)
    assert found["energy_between_pj"] == [float(total)] * 2
    assert found["lacking"] == []


def test_what_the_product_lacks_is_named_and_not_counted(tmp_path, capsys):
    assert main(["study", "traffic", *LAYER, "--json"]) == 0
    bare = json.loads(capsys.readouterr().out)
    assert bare["energy_pj"] is None
    assert "energy.mac_pj.float16" in bare["lacking"]
    product = weighed(tmp_path, [("mac_pj.float16", "2")])
    assert main(["study", "traffic", *LAYER, "--product", str(product)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert f"uJ at least: {len(bare['lacking']) - 1} figures of [energy] are not known" in text


def test_energy_lies_between_the_ends_of_ranges_and_says_how_many_figures_have_one(tmp_path, capsys):
    product = tmp_path / "ranged.toml"
    rows = (
        'mac_pj.float16 = { value = 2, source = "t", confidence = "assumed", range = [1, 5] }',
        'read_pj_per_byte.L1 = { value = 0.5, source = "t", confidence = "paper", range = [0.25, 1] }',
        'write_pj_per_byte.L1 = { value = 0, source = "t", confidence = "assumed", range = [0, 1] }',
        'core_pj_per_cycle = { value = 3, source = "t", confidence = "design" }',
    )
    product.write_text("\n".join(['base = "910B2"', 'product = "own"', 'variant = "own"', "[energy]", *rows]))
    assert main(["study", "traffic", *LAYER, "--product", str(product), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    events = {row["figure"].removeprefix("energy."): row for row in found["events"]}
    counts = [events[name]["count"] for name in (row.partition(" = ")[0] for row in rows)]
    for ends, got in (((1, 0.25, 0, 3), 0), ((5, 1, 1, 3), 1)):
        assert found["energy_between_pj"][got] == sum(map(mul, counts, ends))
    assert found["energy_pj"] == sum(map(mul, counts, (2, 0.5, 0, 3)))
    assert "of 4 known figures 3 have a range, and 2 are assumed" in found["answer"]
    row = events["mac_pj.float16"]
    assert (row["unit"], row["range"]) == ("pJ a multiply-add", "1 to 5, assumed")
    assert (row["low_uj"], row["high_uj"]) == (counts[0] / 1e6, 5 * counts[0] / 1e6)
    assert events["core_pj_per_cycle"]["unit"] == "pJ a cycle"
    assert main(["study", "traffic", *LAYER, "--product", str(product)]) == 0
    [total] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("all ")]
    # No event, value or unit of all: microjoules alone.
    assert len(total.split()) == 4


@pytest.mark.parametrize(
    ("number", "text"),
    [(3554.3, "3,550"), (34.865, "34.9"), (999.7, "1,000"), (0.001234, "0.00123"), (0, "0")],
)
def test_three_digits_are_shown(number, text):
    assert three_digits(number) == text


@pytest.mark.parametrize(
    ("show", "texts"),
    [
        # What is not nothing is not printed as nothing.
        (percent, {0: "0%", 1e-9: "<1%", 0.0049: "<1%", 0.005: "0%", 0.0051: "1%", 0.125: "12%", 1: "100%"}),
        (percent, {-0.004: "-0%", 1.5: "150%"}),
        (part_shown, {0: "0.0", 0.001: "0.1", 0.00099: "0.099", -0.00012345: "-0.012", 0.12345: "12.3"}),
        (saving, {0.25: "25.0 %", 0.0: "0.0 %", -0.25: "costs 25.0 %"}),
        (microseconds, {0: "0.00", 999.994: "999.99", 1000: "1,000", 12345.6: "12,346"}),
        (whole, {1234567: "1,234,567"}),
        (three_digits, {99.95: "100", 100: "100", 99.94: "99.9", -1234.5: "-1,230", -0.5: "-0.5"}),
        (form(".2f"), {1.005: "1.00"}),
    ],
)
def test_digits_of_shares_and_times(show, texts):
    assert {number: show(number) for number in texts} == texts


# --- Does energy follow the clock and its voltage? ---------------------------------------------------------

# From 0.6 V at 800 MHz to 0.9 V at 1800: 0.75 V at 1300, 5/6 of what the figures hold at.
SUPPLY = {"nominal_mhz": 1800, "voltage_v.800": "0.6", "voltage_v.1800": "0.9"}
CALL = StudiedLayer("layer", ConvProblem((2, 64, 14, 14), (32, 64, 3, 3), 1, 1), (True, True, False))


def at_clock(tmp_path, mhz, more):
    """The answer on a product with all weights, at a clock, with more figures of energy."""
    path = weighed(tmp_path, {**WEIGHTS, **more}.items())
    told = f'value = {mhz}, source = "a test", confidence = "design"'
    path.write_text(f"{path.read_text()}\n[clock]\ncube_mhz = {{ {told} }}\nvector_mhz = {{ {told} }}")
    return study_traffic(TrafficQuestion("a test", path, (CALL,)), partial(estimate_call, {}))


@pytest.mark.parametrize(
    ("more", "core", "leakage"),
    [
        ({}, Fraction(1), Fraction(1)),
        # Leakage a second does not depend on the clock: a cycle of it takes 18/13 of the time.
        ({"nominal_mhz": 1800}, Fraction(1), Fraction(18, 13)),
        (SUPPLY, Fraction(25, 36), Fraction(5, 6) * Fraction(18, 13)),
        ({**SUPPLY, "leakage_exponent": 3}, Fraction(25, 36), Fraction(125, 216) * Fraction(18, 13)),
        ({**SUPPLY, "voltage_v.1300": "0.9"}, Fraction(1), Fraction(18, 13)),
    ],
)
def test_voltage_scales_the_energy_of_the_cores_and_leakage(tmp_path, more, core, leakage):
    answer = at_clock(tmp_path, 1300, more)
    for event in answer.events:
        _, _, name = event.figure.partition(".")
        own = name.endswith((".L2", ".memory"))
        factor = 1 if own else leakage if name.startswith("leakage") else core
        assert event.each_pj == factor * Fraction(WEIGHTS[name]), event.figure
    assert {event.figure.rpartition(".")[2] for event in answer.events} >= {"L2", "memory", "L0A", "float16"}


def test_energy_at_the_clock_at_which_the_figures_hold_is_that_without_a_voltage(tmp_path):
    plain, supplied = (at_clock(tmp_path, 1800, more) for more in ({}, SUPPLY))
    assert supplied.calls == plain.calls
    assert traffic_answered(supplied).notes == traffic_answered(plain).notes == ()
    slow = traffic_answered(at_clock(tmp_path, 1300, SUPPLY))
    assert slow.record["volts"] == 0.75
    assert "1300 MHz and 0.75 V; the figures of [energy] hold at 1800 MHz and 0.9 V" in slow.notes[0]
    assert "takes 0.6944 times as much energy, a cycle of leakage 1.154 times" in slow.notes[0]


@pytest.mark.parametrize("assumed", [(), ("voltage_v.1800",), ("leakage_exponent",)])
def test_energy_has_the_bounds_that_voltages_give(tmp_path, assumed):
    # At 1300 MHz the voltage is the mean of both: (0.6 + x) / 2x, with x from 0.8 to 1 V at 1800 MHz.
    ranged = {"voltage_v.1800": "0.9, range = [0.8, 1.0]", "leakage_exponent": "1, range = [0, 3]"}
    path = weighed(tmp_path, {**WEIGHTS, **SUPPLY, **ranged}.items())
    text = path.read_text()
    for name in assumed:
        row = next(line for line in text.splitlines() if line.startswith(name))
        text = text.replace(row, row.replace('"paper"', '"assumed"'))
    path.write_text(
        f'{text}\n[clock]\ncube_mhz = {{ value = 1300, source = "a test", confidence = "design" }}'
    )
    answer = study_traffic(TrafficQuestion("a test", path, (CALL,)), partial(estimate_call, {}))
    events = {event.figure.removeprefix("energy."): event for event in answer.events}
    core, leakage = events["core_pj_per_cycle"], events["leakage_pj_per_cycle"]
    each = Fraction(WEIGHTS["core_pj_per_cycle"])
    assert core.ends_pj == (each * Fraction(8, 10) ** 2, each * Fraction(7, 8) ** 2)
    assert core.each_pj == each * Fraction(25, 36)
    # A cycle of 1300 MHz is longer; the exponent lies from 0 to 3.
    slower = Fraction(WEIGHTS["leakage_pj_per_cycle"]) * Fraction(18, 13)
    assert leakage.ends_pj == (slower * Fraction(8, 10) ** 3, slower)
    assert leakage.each_pj == slower * Fraction(5, 6)
    # Thirds are shown to six digits.
    ranges = {row["figure"]: row["range"] for row in energy_table(answer).records()}
    ends = " to ".join(f"{float(end):.6g}" for end in core.ends_pj)
    assert ranges["energy.core_pj_per_cycle"].removesuffix(", assumed") == ends
    # What has a supply of its own hangs on no voltage of the cores.
    assert not events["read_pj_per_byte.L2"].assumed
    assert (core.assumed, leakage.assumed) == ("voltage_v.1800" in assumed, bool(assumed))


@pytest.mark.parametrize(
    ("more", "mhz", "told"),
    [
        (SUPPLY, 1801, "clock.cube_mhz: got 1801; energy.voltage_v of own has voltages for 800 to 1800 MHz"),
        (SUPPLY, 799, "got 799; "),
        (
            {"voltage_v.800": "0.6"},
            800,
            r"energy.nominal_mhz: missing; expected the clock at .*: 800 to 800 MHz",
        ),
        ({**SUPPLY, "nominal_mhz": 1900}, 800, "energy.nominal_mhz: got 1900; expected the clock at which"),
        (
            {**SUPPLY, "voltage_v.800": 0},
            800,
            "energy.voltage_v.800.value: got 0, expected a number from 0.01",
        ),
        ({**SUPPLY, "nominal_mhz": "1800, range = [1700, 1800]"}, 800, "energy.nominal_mhz: has a range; "),
        ({**SUPPLY, "voltage_v.1e3": 1}, 800, "1e3: unknown key; known are whole MHz from 1 to 999999"),
        ({**SUPPLY, "voltage_v.0900": 1}, 800, "0900: unknown key"),
    ],
)
def test_a_voltage_that_nobody_gives_is_refused(tmp_path, more, mhz, told):
    with pytest.raises(ConfigError, match=told):
        at_clock(tmp_path, mhz, more)


def test_a_clock_without_a_voltage_still_has_its_time(tmp_path):
    profile = load_profile(weighed(tmp_path, SUPPLY.items()), overrides={"clock.cube_mhz": 2000})
    assert estimate(CALL.problem, product=profile).time_us > 0


# --- Why is it slow? --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def levers():
    problem = ConvProblem((2, 64, 14, 14), (32, 64, 3, 3), 1, 1)
    asked = partial(planned, problem)
    return study_levers(LeverQuestion("a layer", "910B2"), asked, 1), problem


def planned(problem, profile, plans):
    return estimate(problem, product=profile, tiling=plans)


def test_a_half_that_plans_do_not_fit_is_doubled(levers):
    answer, _ = levers
    stepped = {one.figure: one.stepped / one.value for one in answer.levers if one.stepped_us is not None}
    assert (stepped["cores.cube"], stepped["cores.vector"]) == (2, 0.5)


def test_the_largest_levers_are_those_that_halving_by_hand_shows(levers):
    answer, problem = levers
    usual = estimate(problem, product="910B2")
    assert answer.time_us == usual.time_us
    by_hand = {}
    for path, figure in load_profile("910B2").figures.items():
        if isinstance(figure.value, bool | str | list) or not figure.value:
            continue
        half = figure.value // 2 if isinstance(figure.value, int) else figure.value / 2
        try:
            changed = load_profile("910B2", overrides={path: half})
            by_hand[path] = estimate(problem, product=changed, tiling=usual.plans).time_us
        except AscendSimError:
            continue
    largest = sorted(by_hand, key=lambda path: -abs(by_hand[path] - usual.time_us))[:3]
    halved = [one.figure for one in answer.levers if one.stepped_us is not None and one.stepped < one.value]
    assert halved[:3] == largest
    for lever in answer.levers:
        if lever.stepped_us is not None and lever.stepped < lever.value:
            assert lever.stepped_us == by_hand[lever.figure]


def test_kernels_of_a_lever_and_parts_of_a_call_add_up(levers):
    answer, _ = levers
    for lever in answer.levers:
        if lever.stepped_us is not None:
            assert sum(lever.kernels_us.values()) == pytest.approx(lever.stepped_us - answer.time_us)
    assert sum(bound.time_us for bound in answer.bounds) == pytest.approx(answer.time_us)
    for bound in answer.bounds:
        assert bound.behind_us is not None, bound.kernel
        assert bound.behind_us <= bound.time_us
        assert 0 < bound.busy <= 1


@pytest.mark.slow
def test_why_prints_ten_figures_and_writes_all(tmp_path, capsys):
    table = tmp_path / "levers.csv"
    assert main(["study", "why", *LAYER, "--mask", "weight", "--jobs", "1", "--table", str(table)]) == 0
    text = capsys.readouterr().out
    assert "What binds each kernel, and what lies behind" in text
    with table.open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(steps_of(load_profile("910B2")))
    shown = [row["figure"] for row in rows if f"\n{row['figure']} " in text]
    assert shown == [row["figure"] for row in rows[:SHOWN]]
    assert main(["study", "why", "s5", "--batch", "2"]) == 2
    assert "name one of them" in capsys.readouterr().err


# --- Is each figure changed the way that a study says, and what it does to a call told? ---------------


PROFILE = load_profile("910B2")
PLANS = object()  # handed on as they are


# --- Steps ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "value", "to"),
    [
        ("scalar.issue_cycles", 5, 2),
        ("scalar.issue_cycles", 1, 2),  # half of it is 0: no whole cycle
        ("scalar.issue_cycles", 0, None),
        ("launch.base_us", 0.5, 0.25),
        ("launch.base_us", 0.0, None),
        ("links.memory.efficiency", 0.019, None),  # half of it is less than a share may be, twice no share
        ("links.memory.efficiency", 0.02, 0.01),
        ("cube.m0", 16, 8),
        ("cube.m0", 8, 16),  # fewer than 8 has no cube
        ("buffers.L1.capacity_bytes", 63, None),  # 31 are no block, and 126 fit
        ("npu_arch", "2201", None),
        ("l2.operands_handed", True, None),
        ("load3d.L0A.fast_strides", [1, 2], None),
        ("cube.rates.float16.macs_per_cycle", 4096, None),  # follows from others
    ],
)
def test_a_figure_is_halved_or_else_doubled(path, value, to):
    if path == "buffers.L1.capacity_bytes":
        to = 126
    elif path == "links.memory.efficiency" and value < 0.02:
        to = 0.038
    assert lever_study._step(path, value) == to


def test_every_number_of_a_product_but_energy_has_a_step():
    found = steps_of(PROFILE)
    numbers = {
        path
        for path, figure in PROFILE.figures.items()
        if type(figure.value) in (int, float) and figure.value and figure.confidence != "derived"
    }
    # Derived are some that a file states as well.
    assert numbers <= set(found)
    assert not any(path.startswith("energy.") for path in found)
    assert {
        found[path] / PROFILE.figures[path].value for path in ("clock.cube_mhz", "links.memory.efficiency")
    } == {0.5}


# --- A call whose kernels hang on a few figures by plain formulas ------------------------------------------


def kernel(name, time_us, bound="M", op_type="Product", cycles=1000):
    return SimpleNamespace(
        name=name,
        time_us=time_us,
        bound_by=bound,
        busy={"M": 250, "MTE2": 750},
        cycles=cycles,
        kernel=SimpleNamespace(op_type=op_type, blocks_on=lambda cores: cores + 1),
        times=SimpleNamespace(cores=3),
    )


def call(profile, plans):
    """Take 100 us, of which half hangs on the path from GM, a fifth on launches, the rest on nothing."""
    assert plans in (None, PLANS)
    rate = profile.figures["paths.GM_L1.bytes_per_cycle"].value / 174
    launch = profile.figures["launch.base_us"].value / 0.4
    cores = profile.figures["cores.cube"].value
    if cores < 24 or profile.figures["vector.bytes_per_cycle"].value != 256:
        raise CapacityError("a plan for 24 cores does not fit")
    issue = profile.figures["scalar.issue_cycles"].value
    fast = profile.figures["cube.mmad_head_cycles"].value == 0
    main = 50 / rate + (20 if cores == 24 else 10)
    kernels = [
        kernel("main", main, "MTE2" if fast else "M"),
        kernel("turn", 30 * launch, "MTE2", "TransData"),
    ]
    if issue != 4:
        kernels.append(kernel("more", issue / 10))
    return SimpleNamespace(
        time_us=sum(one.time_us for one in kernels), cycles=1000, plans=PLANS, kernels=tuple(kernels)
    )


@pytest.fixture(scope="module")
def by_hand():
    told = []
    found = study_levers(LeverQuestion("a test", "910B2"), call, 1, told.append)
    return found, told


def test_the_levers_of_a_call_are_what_their_figures_do_to_its_kernels(by_hand):
    found, told = by_hand
    by_figure = {one.figure: one for one in found.levers}
    assert set(by_figure) == set(steps_of(PROFILE))
    assert found.time_us == 100
    # Half the rate doubles 50; twice the rate saves half of it.
    one = by_figure["paths.GM_L1.bytes_per_cycle"]
    assert one == Lever(one.figure, 174, 87, 100, 150, {"main": 50}, 348, 75)
    assert (one.share, one.saves) == (0.5, 0.25)
    # Half a launch saves: that is the better way.
    one = by_figure["launch.base_us"]
    assert one == Lever(one.figure, 0.4, 0.2, 100, 85, {"turn": -15}, 0.2, 85)
    # Plans for 24 cores do not fit 12, but 48; then 24 again are what is as far the other way, and no better.
    one = by_figure["cores.cube"]
    assert one == Lever(one.figure, 24, 48, 100, 90, {"main": -10}, 48, 90)
    # A kernel that comes with the change, either way: of 8, the other one, it takes longer.
    one = by_figure["scalar.issue_cycles"]
    assert one == Lever(one.figure, 4, 2, 100, 100.2, {"more": 0.2}, 2, 100.2)
    # Neither half nor double can be timed, or be in a product's file. Most move nothing.
    refused = set(found.refused)
    for path in refused - {"vector.bytes_per_cycle"}:
        for to in (by_figure[path].value // 2, by_figure[path].value * 2):
            with pytest.raises(ConfigError):
                load_profile("910B2", overrides={path: to})
    assert "vector.bytes_per_cycle" in refused
    assert by_figure["vector.bytes_per_cycle"].stepped == 128
    assert len(found.still) == len(found.levers) - 4 - len(refused)
    # The largest first, whichever way it moves the time.
    assert [one.figure for one in found.levers[:4]] == [
        "paths.GM_L1.bytes_per_cycle",
        "launch.base_us",
        "cores.cube",
        "scalar.issue_cycles",
    ]
    # Each figure once; the double of those whose half does not fit; the other way of those that cost.
    again = [path for path in steps_of(PROFILE) if path in refused | {"cores.cube"}]
    assert told == [*steps_of(PROFILE), *again, "paths.GM_L1.bytes_per_cycle", "scalar.issue_cycles"]


def test_a_kernel_has_its_bound_its_launch_and_what_lies_behind(by_hand):
    found, _ = by_hand
    main, turn = found.bounds
    launch = PROFILE.launch_us(4)  # blocks on 3 cores
    # M sixteen times as fast: its head is 0, and the call's first kernel is bound by MTE2.
    assert main == KernelBound("main", False, 70, launch, "M", 0.25, "MTE2", 70)
    # MTE2 so: 50 / 16 fewer microseconds of another kernel, none of its own.
    assert turn == KernelBound("turn", True, 30, launch, "MTE2", 0.75, "MTE2", 30)
    assert main.saves == turn.saves == 0
    assert found.launch_us == pytest.approx(2 * launch)
    assert found.layout_us == pytest.approx(30 - launch)


def test_what_cannot_be_timed_has_nothing_behind():
    def refusing(profile, plans):
        if profile.figures["cube.mmad_head_cycles"].value == 0:
            raise CapacityError("not so fast")
        made = call(profile, plans)
        return SimpleNamespace(**{**vars(made), "kernels": (kernel("main", 1.0, cycles=0),)})

    (bound,) = lever_study._bounds(Sweep.of("910B2", refusing), PROFILE)
    assert (bound.behind, bound.behind_us, bound.saves) == ("", None, None)
    assert bound.busy == 250  # of a kernel without cycles: of one


@pytest.mark.parametrize(
    ("figure", "to", "stepped_us", "point_us", "better"),
    [
        # The other way is better or as good, or it is all there is.
        (90, 8, 110.0, 90.0, (8, 90.0)),
        (90, 8, 110.0, 110.0, (8, 110.0)),
        (90, 8, None, 90.0, (8, 90.0)),
        # It is worse, and so the step is better, or was already.
        (90, 8, 110.0, 120.0, (2, 110.0)),
        (90, 8, 95.0, None, (2, 95.0)),
        # Nothing is known of the other way, and the step saves nothing.
        (90, 8, 100.0, None, (None, None)),
        (90, 8, 110.0, None, (None, None)),
    ],
)
def test_the_better_of_two_ways(figure, to, stepped_us, point_us, better):
    lever = Lever(str(figure), 4, 2, 100.0, stepped_us, {})
    point = None if point_us is None else SimpleNamespace(time_us=point_us)
    found = lever_study._lifted(lever, to, point)
    assert (found.better, found.better_us) == better


def test_the_other_way_goes_as_far_by_its_factor():
    pairs = (((4, 2), 8), ((5, 2), 10), ((1, 2), 0), ((0.5, 0.25), 1.0), ((0.5, 1.0), 0.25))
    for (value, stepped), other in pairs:
        assert lever_study._other_way(Lever("x", value, stepped, 1.0, 1.0, {})) == other


# --- A pipe that no longer binds ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "value", "to"),
    [
        ("paths.GM_L1.bytes_per_cycle", 174, 16 * 174),
        ("paths.L0C_GM.bytes_per_cycle", 114.5, 16 * 114.5),
        ("links.memory.efficiency", 0.9, 1),  # a share ends at 1
        ("paths.GM_L1.latency_cycles", 206, 12),
        ("paths.GM_L1.row_cycles", 1.6, 0.1),
        ("cube.mmad_head_cycles", 2, 0),
        ("paths.GM_L1.least_cycles", 20, 1),
        ("paths.GM_L1.least_cycles", 15, 1),  # a file may not say less
        ("paths.GM_L1.spread_cycles", 95, 1),  # comes before a latency of which little is left
        ("cube.rates.float16.block_k", 16, 256),
        ("cube.rates.float16.k0", 16, None),
        ("cube.rates.float16.macs_per_cycle", 4096, None),
        ("cube.m0", 16, None),
        ("paths.GM_L1.pipe", "MTE2", None),
        ("paths.GM_L1.head_cycles", 0, None),
    ],
)
def test_a_figure_of_speed_is_sixteen_times_better_within_its_limits(path, value, to):
    made = lever_study._faster(path, value)
    assert made == to
    assert type(made) in (type(value), type(None))


def test_a_pipe_is_made_fast_with_all_that_it_moves_bytes_over():
    paths = {
        "M": "",
        "V": "",
        "MTE1": "L1_L0A L1_L0B L1_BT",
        "MTE2": "GM_L1 GM_UB GM_L0A GM_L0B",
        "MTE3": "UB_GM L1_GM",
        "FIX": "L0C_GM L0C_L1 L1_FB",
    }
    others = {
        "M": {"cube"},
        "V": {"vector"},
        "MTE1": {"load3d", "load2d", "l1_write_bytes_per_cycle"},
        "MTE2": {"links.l2_read", "links.memory"},
        "MTE3": {"links.l2_write", "links.memory"},
        "FIX": {"fixpipe", "links.l2_write", "links.memory"},
    }
    for pipe, own in others.items():
        begun = set()
        for path in fast_pipe(pipe, PROFILE):
            table, *rest = path.split(".")
            begun.add(f"{table}.{rest[0]}" if table in ("paths", "links") else table)
        assert begun == own | {f"paths.{name}" for name in paths[pipe].split()}


# --- Sums of events ----------------------------------------------------------------------------------------

EVENTS = (
    EnergyEvent("a", 2, Fraction(3), (Fraction(1), Fraction(5))),
    EnergyEvent("b", 4, None),
    EnergyEvent("a", 5, Fraction(3), (Fraction(1), Fraction(5))),
    EnergyEvent("c", 1, Fraction(0), (Fraction(0), Fraction(2))),
)


def test_events_of_one_figure_add_up_and_those_without_a_weight_are_named():
    assert [(one.figure, one.count) for one in added(EVENTS)] == [("a", 7), ("b", 4), ("c", 1)]
    assert [one.energy_pj for one in EVENTS] == [6, None, 15, 0]
    assert energy_pj(EVENTS) == 21
    assert energy_between(EVENTS) == (7, 37)
    assert lacking(EVENTS) == ("b",)
    assert energy_pj(EVENTS[1:2]) is None
    assert energy_between(EVENTS[1:2]) is None


def test_a_call_counts_as_often_as_it_comes():
    def moved(read, written):
        return SimpleNamespace(at=lambda level: (read, written) if level == "L2" else (0, 0))

    calls = (
        CallTraffic("x", 3, (moved(10, 1), moved(5, 2)), (1.0, 0.5), (EVENTS[:1], EVENTS[1:2])),
        CallTraffic("y", 1, (moved(100, 7),), (8.0,), (EVENTS[2:3],)),
    )
    answer = TrafficAnswer(None, "v", "d", 0, calls)
    assert answer.time_us == 3 * 1.5 + 8
    assert [(one.figure, one.count) for one in answer.events] == [("a", 3 * 2 + 5), ("b", 3 * 4)]
    assert answer.at("L2") == (3 * 15 + 100, 3 * 3 + 7)
    assert TrafficAnswer(None, "v", "d", 0, ()).at("L2") == (0, 0)


def test_a_lever_in_per_cent_of_time_for_a_per_cent_of_its_figure():
    # Half the figure, twice the time: -1. Twice the figure, four times the time: 2.
    assert Lever("x", 4, 2, 100.0, 200.0, {}).elasticity == pytest.approx(-1)
    assert Lever("x", 1, 2, 100.0, 400.0, {}).elasticity == pytest.approx(2)
    for value, stepped, us in ((0, 2, 1.0), (2, 0, 1.0), (2, 1, None)):
        assert Lever("x", value, stepped, 1.0, us, {}).elasticity is None
    assert Lever("x", 4, 2, 100.0, None, {}).share is None
    assert Lever("x", 4, 2, 100.0, None, {}).saves is None
    bound = KernelBound("k", False, 80.0, 5.0, "M", 0.5, "MTE2", 60.0)
    assert bound.saves == 0.25
    layouts = [bound, bound._replace(layout=True, time_us=9.0, launch_us=2.0)]
    answer = LeverAnswer(None, "v", "d", 0, 1.0, (), tuple(layouts))
    assert (answer.launch_us, answer.layout_us) == (7.0, 7.0)
