"""Do the mechanisms behind the costs do what their figures say?

Figures are set on the toy products (`toy_machines.py`): GM_L1 64 bytes a cycle and 100 cycles until visible,
UB_GM 64 and 50, L0C_GM 64 and 40, no heads unless a test sets one.
"""

import inspect
import re
from dataclasses import replace
from fractions import Fraction
from importlib import import_module
from math import ceil
from pathlib import Path

import pytest

import ascendsim
from ascendsim.instructions.cube import ROW_BYTES, Gathering, Mmad, Submatrix, TapRows, load3d_cycles
from ascendsim.instructions.fixpipe import Fixpipe
from ascendsim.instructions.movers import CopyGmToL1, LoadL0A, LoadL0B
from ascendsim.instructions.vector import CopyGmToUb, CopyUbToGm
from ascendsim.profile import load_profile
from ascendsim.profile.memory import Vector
from ascendsim.program.instruction import PIPES, Traffic, instructions
from ascendsim.program.kernel import Core, CoreWork, Kernel, Phase
from ascendsim.program.places import Gm, GmTensor, Slot
from ascendsim.program.program import ProgramBuilder
from ascendsim.timing.l2.phase import L2Outcome
from ascendsim.timing.links import Spreading
from ascendsim.validate.primitives import PathMove, VectorRepeats, alone_cycles, slot, stream_cycles
from tests.helpers.both_engines import time_kernel
from tests.helpers.toy_machines import toy_split

L1, L0C = Slot("L1", 8192, "t", 0), Slot("L0C", 4096, "c", 0)
HALF = GmTensor("x", (1 << 20,), "float16", 2)
SINGLE = GmTensor("y", (1 << 20,), "float32", 4, role="output")
SHIPPED = ("910B", "910_93", "910_95", "310P", "910")


def toy(**figures):
    """A toy whose copies have no head, with figures of its paths changed or added."""
    plain = {f"paths.{path}.head_cycles": 0 for path in ("GM_L1", "GM_UB", "UB_GM", "L0C_GM")}
    return toy_split(**plain, **figures)


def copy(size, rows=1, aligned=True, relays=False):
    return CopyGmToL1(L1, Gm(HALF, ()), size, rows=rows, aligned=aligned, relays=relays)


@pytest.mark.parametrize(
    ("figures", "next_copy", "visible"),
    [
        ({}, 20, 120),  # 4 + 1024 / 64, and 100 more
        ({"paths.GM_L1.least_cycles": 30}, 30, 120),
        ({"paths.GM_L1.row_cycles": 50}, 20, 150),  # the row's pace of 50, and 100 more
    ],
)
def test_the_example_of_a_cost(figures, next_copy, visible):
    # As the docstring of `Cost` tells it: 1000 bytes in whole sectors of 128 are 1024.
    profile, move = toy_split(**figures), copy(1000, relays=True)
    assert move.cost(profile)[:3] == (4, 100, Traffic(HALF, "read", 1024, 64))
    assert stream_cycles(move, profile, "cube") == next_copy
    assert alone_cycles(move, profile, "cube") == visible


# --- copies in turn


def test_operands_of_convolutions_come_one_at_a_time():
    # 1024 bytes at 64 a cycle take 16, and are visible after 100: 60 of these the next copy waits for.
    operand, profile = packed(), toy(**{"paths.GM_L1.in_turn_cycles": 60})
    assert alone_cycles(operand, profile, "cube") == 116
    assert stream_cycles(operand, profile, "cube") == 60 + 16
    assert alone_cycles(copy(1024), profile, "cube") == 116
    assert stream_cycles(copy(1024), profile, "cube") == 16


def test_cores_that_copy_in_turn_do_not_slow_each_other():
    profile = load_profile("910B2")
    assert packed().cost(profile).traffic.in_turn
    assert not copy(1024).cost(profile).traffic.in_turn
    together = L2Outcome(together=Fraction(1))
    flows = [
        Spreading(profile, in_pairs=False).transfer("cube", made.cost(profile).traffic, together).flows[0]
        for made in (packed(), copy(1024))
    ]
    # As if the bytes were more by the share of the rate that is left to cores that read the same.
    assert flows[1].size == pytest.approx(flows[0].size / 0.72, rel=1e-6)


# --- channels that lie apart


def packed(layout="NDC1HWC0", role="input"):
    return CopyGmToL1(L1, Gm(GmTensor.of("x", (1 << 20,), "float16", role, layout), ()), 1024)


def test_a_copy_that_brings_channels_together_takes_the_rate_for_that():
    # The toys have no kernels that change layouts, so what lies in groups of channels lies row after row.
    profile = toy(**{"paths.GM_L1.transposing_bytes_per_cycle": 16})
    assert stream_cycles(packed(), profile, "cube") == 1024 // 16
    assert stream_cycles(packed("DC1HWC0N"), profile, "cube") == 1024 // 16
    # Rows of a matrix, and what another phase has laid down so, come at the path's own rate.
    assert stream_cycles(packed("ND"), profile, "cube") == 1024 // 64
    assert stream_cycles(packed(role="workspace"), profile, "cube") == 1024 // 64
    # Without a rate of its own it is the path's.
    assert stream_cycles(packed(), toy(), "cube") == 1024 // 64


def test_where_kernels_change_layouts_no_copy_does():
    profile = toy(**{"paths.GM_L1.transposing_bytes_per_cycle": 16})
    changing = replace(profile, generation=profile.generation._replace(changes_layouts=True))
    assert stream_cycles(packed(), changing, "cube") == 1024 // 64


def test_on_the_950_such_copies_take_four_times_as_long():
    # 32 KiB: 25 bytes a cycle where others have 100.
    profile, size = load_profile("910_95"), 32 * 1024
    cycles = [
        stream_cycles(packed(layout)._replace(bytes=size), profile, "cube") for layout in ("NDC1HWC0", "ND")
    ]
    assert cycles == [ceil(size / 25), ceil(size / 100)]


# --- requests: how short runs of bytes are fetched ----------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "count"),
    [
        (512, 1),  # a whole request
        (1024, 2),
        (416, 3),  # 13 blocks of 32 bytes: 8 + 4 + 1
        (96, 1),  # 3 blocks: a burst of its own
        (480, 3),  # 15 blocks: 8 + 4 + 3
        (32, 1),
        (544, 2),  # a whole one and a block
    ],
)
def test_a_run_is_fetched_in_whole_requests_and_the_bursts_that_there_are(size, count):
    path = load_profile("910B1").paths["GM_L1"]
    assert path.requests(size).number == count
    assert path.requests(7 * size, rows=7).number == 7 * count


def test_a_short_request_occupies_l2_for_its_fixed_share_and_its_bytes():
    # Half of 512 fixed, and half of the 128 bytes: 256 + 64.
    profile = toy(**{"paths.GM_L1.request_bytes": 512, "paths.GM_L1.request_fixed_share": 0.5})
    assert profile.paths["GM_L1"].requests(128).occupied_bytes == 320
    assert copy(128 * 4, rows=4).cost(profile).traffic.occupied_bytes == 4 * 320


def test_a_core_sends_no_request_sooner_than_a_full_one():
    # Alone the core takes 512 / 64 = 8 cycles for each of 4 rows of 128 bytes, and 100 until visible.
    profile = toy(**{"paths.GM_L1.request_bytes": 512, "links.l2_read.per_core_bytes_per_cycle": 10**6})
    assert alone_cycles(copy(128 * 4, rows=4), profile, "cube") == 4 * 8 + 100


def test_full_rows_cost_what_one_run_of_as_many_bytes_costs():
    profile = toy(**{"paths.GM_L1.request_bytes": 512})
    assert copy(2048, rows=4).cost(profile) == copy(2048).cost(profile)


@pytest.mark.parametrize(
    ("size", "sixteenths"),
    [
        (32, 16),  # a block lies in one line wherever it begins
        (64, 17),  # two blocks cross a line from the last of its 16 blocks only
        (128, 19),  # four cross it from three of 16
        (512, 57),  # 1 if aligned, else parts of k and 16 - k blocks: 28 for all k on each side
        (1024, 73),  # the same and a whole line each time
    ],
)
def test_a_misaligned_run_takes_the_requests_of_its_parts_on_average(size, sixteenths):
    path = toy(**{"paths.GM_L1.request_bytes": 512}).paths["GM_L1"]
    assert path.requests(size, aligned=False).number == Fraction(sixteenths, 16)
    assert path.requests(4 * size, rows=4, aligned=False).number == Fraction(sixteenths, 4)


def test_a_misaligned_run_takes_a_sector_more():
    profile = toy(**{"paths.GM_L1.request_bytes": 512})
    plain, crossing = (copy(1024, rows=2, aligned=aligned).cost(profile).traffic for aligned in (True, False))
    assert crossing.bytes == plain.bytes + 2 * 128


def test_a_misaligned_row_takes_the_core_as_long_as_its_requests():
    # 57 sixteenths of a request of 512 / 64 = 8 cycles, 16 rows: 57 * 8 cycles, 100 until visible. That is
    # a fraction of a byte a cycle, and a rate is rounded down to 2^-20 byte: one cycle more.
    profile = toy(**{"paths.GM_L1.request_bytes": 512, "links.l2_read.per_core_bytes_per_cycle": 10**6})
    assert alone_cycles(copy(512 * 16, rows=16, aligned=False), profile, "cube") == 57 * 8 + 1 + 100


# Copies that turn rows into fractals on the toy: 512 / 64 = 8 cycles a request, and 4 a row.
RELAYING = {"paths.GM_L1.request_bytes": 512, "paths.GM_L1.row_cycles": 4}


@pytest.mark.parametrize(("size", "requests"), [(128, 1), (512, 1), (768, 2), (928, 4)])
def test_a_copy_that_turns_rows_takes_their_pace_by_itself(size, requests):
    made = copy(size * 10, rows=10, relays=True)
    assert alone_cycles(made, toy(**RELAYING), "cube") == 10 * (4 + 8 * requests) + 100


def test_plain_copies_have_no_pace():
    assert copy(1280, rows=10).cost(toy(**RELAYING)).pace_cycles == 0
    assert copy(1280, rows=10, relays=True).cost(toy()).pace_cycles == 0


def test_copies_that_turn_rows_go_on_beside_each_other():
    # 10 rows of 128 bytes: the bytes hold the pipe for 20 cycles, the pace of 120 runs on beside others.
    assert stream_cycles(copy(1280, rows=10, relays=True), toy(**RELAYING), "cube") == 20


def test_two_copies_of_the_vendors_sample_take_as_long_as_the_longer():
    # Measured on one core of a 910B1: 1380 cycles for 128 and 256 rows of 128 bytes, copied at once.
    profile = load_profile("910B1")
    longer = alone_cycles(copy(256 * 128, rows=256, relays=True), profile, "cube")
    assert longer == pytest.approx(1380, rel=0.03)


def test_what_a_core_can_take_of_l2_counts_bytes_not_what_they_occupy():
    # Rows of 128 bytes occupy 128 + 0.5 * 384 = 320 each; at 64 real bytes a cycle 10 of them take 20 cycles.
    cap = {"links.l2_read.per_core_bytes_per_cycle": 64, "links.l2_read.nominal_tb_per_s": 10.0}
    profile = toy(**RELAYING, **cap, **{"paths.GM_L1.request_fixed_share": 0.5})
    assert stream_cycles(copy(1280, rows=10, relays=True), profile, "cube") == 20


def test_bytes_are_fetched_in_whole_sectors():
    # 2 rows of 100 bytes: two sectors of 128.
    assert copy(200, rows=2).cost(toy()).traffic.bytes == 256


@pytest.mark.parametrize(("requests", "nearer"), [(1, 30), (2, 20), (5, 10), (59, 1)])
def test_few_requests_are_answered_by_a_nearer_part_of_l2(requests, nearer):
    # The farthest of n draws from 60 cycles is on average 60 / (n + 1) nearer than the farthest there is.
    profile = toy(**{"paths.GM_L1.request_bytes": 512, "paths.GM_L1.spread_cycles": 60})
    assert copy(512 * requests).cost(profile).latency_cycles == 100 - nearer


# --- least times and drains ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "interval"), [(128, 20), (1280, 20), (1408, 22)])
def test_a_copy_holds_the_pipe_for_its_least(size, interval):
    # 64 bytes a cycle: 2 and 20 cycles are held up to the least of 20, 22 are not.
    profile = toy(**{"paths.GM_UB.least_cycles": 20, "links.l2_read.per_vector_core_bytes_per_cycle": 64})
    move = CopyGmToUb(slot("UB"), Gm(HALF, ()), size, ())
    assert stream_cycles(move, profile, "vector") == interval


def test_the_least_does_not_delay_the_result():
    # Two cycles for 128 bytes, then 100 until visible.
    profile = toy(**{"paths.GM_L1.least_cycles": 50})
    assert alone_cycles(copy(128), profile, "cube") == 102


@pytest.mark.parametrize(("size", "cycles"), [(1024, 16), (2048, 32), (4096, 97)])
def test_a_write_drains_slower_than_it_enters(size, cycles):
    # It enters at 64 bytes a cycle; all but 1024 bytes have drained at 32: the larger of both counts. 4096
    # bytes in 96 cycles are 128/3 a cycle, which is rounded down to 2^-20 byte: one cycle more.
    figures = {"paths.UB_GM.buffer_bytes": 1024, "paths.UB_GM.drain_bytes_per_cycle": 32}
    profile = toy(**figures, **{"links.l2_write.per_vector_core_bytes_per_cycle": 64})
    assert alone_cycles(CopyUbToGm(Gm(HALF, ()), slot("UB"), size), profile, "vector") == cycles + 50


# --- Fixpipe ------------------------------------------------------------------------------------------------


def test_fixpipe_reads_l0c_before_it_writes():
    # 256 results of 16 bits: 1024 bytes of L0C at 128, then 512 bytes at 64.
    profile = toy(**{"fixpipe.read_bytes_per_cycle": 128})
    store = Fixpipe(Gm(HALF, ()), L0C, 512, 16)
    assert alone_cycles(store, profile, "cube") == 8 + 8 + 40


def test_a_link_that_is_fast_enough_for_the_mean_does_not_slow_fixpipe():
    # The core's own pace is 512 bytes in 16 cycles; a link of 32 a cycle keeps up, one of 16 takes double.
    own = {"fixpipe.read_bytes_per_cycle": 128}
    store = Fixpipe(Gm(HALF, ()), L0C, 512, 16)
    for link, cycles in ((32, 16), (16, 32)):
        profile = toy(**own, **{"links.l2_write.per_core_bytes_per_cycle": link})
        assert alone_cycles(store, profile, "cube") == cycles + 40


def test_a_plain_matrix_has_a_least_of_its_own():
    profile = toy(**{"paths.L0C_GM.least_cycles": 30, "fixpipe.matrix_least_cycles": 35})
    assert stream_cycles(Fixpipe(Gm(HALF, ()), L0C, 64, 16), profile, "cube") == 30
    assert stream_cycles(Fixpipe(Gm(HALF, ()), L0C, 64), profile, "cube") == 35


def test_groups_of_eight_channels_leave_at_their_own_rate():
    profile = toy(**{"fixpipe.channel_split_bytes_per_cycle": 16})
    assert Fixpipe(Gm(SINGLE, ()), L0C, 512, 8).cost(profile).traffic.peak_bytes_per_cycle == 16
    assert Fixpipe(Gm(HALF, ()), L0C, 512, 16).cost(profile).traffic.peak_bytes_per_cycle == 64
    assert Fixpipe(Gm(SINGLE, ()), L0C, 512).cost(profile).traffic.peak_bytes_per_cycle == 64
    # Weights of 4 bytes lie in such groups on the device, though here they are written as a plain matrix.
    assert Fixpipe(Gm(SINGLE, ()), L0C, 512, cut=True).cost(profile).traffic.peak_bytes_per_cycle == 16


# Sixteen results of float32 in groups of 8: two channels of a toy whose L0C_GM is visible after 40.
WIDE, SUMS = (GmTensor(name, (1 << 20,), "float32", 4, role="output") for name in ("x", "sums"))
ADDED = {"fixpipe.channel_split_bytes_per_cycle": 16, "fixpipe.channel_split_atomic_bytes_per_cycle": 4}


def test_adds_to_cut_groups_arrive_later_than_l0c_is_free():
    # 512 bytes leave L0C in 32 cycles at 16, and have arrived after 128 at 4, and 40 more.
    profile = toy(**ADDED)
    store = Fixpipe(Gm(WIDE, ()), L0C, 512, 8, atomic=True, posted=True)
    assert store.cost(profile).traffic.peak_bytes_per_cycle == 16
    assert alone_cycles(store, profile, "cube") == 128 + 40
    # The next one waits until they have; one that writes follows when the bytes are out.
    assert stream_cycles(store, profile, "cube") == 128 + 40
    plain = store._replace(atomic=False, posted=False)
    assert stream_cycles(plain, profile, "cube") == 32
    assert alone_cycles(plain, profile, "cube") == 32 + 40


def test_adds_read_l0c_as_writes_do():
    # 512 bytes at 128 are 4 cycles before 32, and before 128.
    profile = toy(**ADDED, **{"fixpipe.read_bytes_per_cycle": 128})
    cost = Fixpipe(Gm(WIDE, ()), L0C, 512, 8, atomic=True, posted=True).cost(profile)
    assert 512 / cost.traffic.peak_bytes_per_cycle == 36
    assert cost.pace_cycles == 132


@pytest.mark.parametrize(("atomic", "posted"), [(True, True), (False, False)])
def test_the_next_tile_follows_when_l0c_is_free(atomic, posted):
    # Of one tile in L0C: a product, its way out, the next product, with flags between.
    profile = toy(**ADDED, **{"sync.flag_cycles": 0, "scalar.issue_cycles": 0})
    builder = ProgramBuilder(profile)
    buffers = (("L1", 1024), ("L0A", 512), ("L0B", 512), ("L0C", 1024))
    tile, a, b, c = (builder.ring(buffer, size, buffer).next() for buffer, size in buffers)
    loads = [
        CopyGmToL1(tile, Gm(HALF, ()), 1024),
        LoadL0A(a, tile, Submatrix(0, 16, 0, 8, False, 4)),
        LoadL0B(b, tile, Submatrix(0, 8, 0, 16, False, 4)),
    ]
    product = Mmad(c, a, b, 16, 8, 16, "float32", True)
    store = Fixpipe(Gm(SUMS, ()), c, 512, 8, atomic=atomic, posted=posted)
    for made in (*loads, product, store, product):
        builder.add(made)
    program = builder.build()
    work = CoreWork(Core("cube", 0), 0, lambda: program)
    kernel = Kernel("k", (Phase("p", (work,)),), {"x": HALF, "sums": SUMS}, math=None)
    work = time_kernel(kernel, profile).phases[0].cores[0]
    assert work.end[4] - work.start[4] == 32
    assert work.start[5] == work.end[4]
    assert work.done[4] - work.start[4] == (168 if posted else 72)


# --- loads into L0 ------------------------------------------------------------------------------------------


def rows(groups, *, backwards):
    return TapRows(9, backwards, 0, groups, 16, 16, 2)


def test_taps_that_are_walked_backwards_take_a_command_each():
    # Fractals of 512 bytes at 128: 4 cycles each; the head 3, and 7 for every command after the first.
    profile = toy(load2d__head_cycles=3, load2d__issue_cycles=7)
    forwards, backwards = (LoadL0B(slot("L0B"), L1, rows(5, backwards=way)) for way in (False, True))
    assert forwards.cost(profile).cycles == 3 + 5 * 4
    assert backwards.cost(profile).cycles == 3 + 4 * 7 + 5 * 4


def test_one_tap_is_one_command_whichever_way_it_is_walked():
    profile = toy(load2d__issue_cycles=7)
    one = TapRows(1, True, 0, 5, 16, 16, 2)
    assert LoadL0B(slot("L0B"), L1, one).cost(profile).cycles == 2 + 5 * 4


def test_a_plain_load_takes_its_least():
    profile = toy(load2d__head_cycles=1, load2d__least_cycles=9)
    assert LoadL0A(slot("L0A"), L1, rows(1, backwards=False)).cost(profile).cycles == 9


def test_bytes_that_arrive_in_l1_hold_up_a_load():
    # 16 x 16 of 16 bits at 256 is 2 cycles after a head of 2; 1024 bytes at 512 are 2 more.
    profile = toy(l1_write_bytes_per_cycle=512)
    block = Submatrix(0, 16, 0, 16, False, 2)
    assert LoadL0A(slot("L0A"), L1, block).cost(profile).cycles == 4
    assert LoadL0A(slot("L0A"), L1, block, written=1024).cost(profile).cycles == 6


@pytest.mark.parametrize(("transposed", "cycles"), [(True, 2 + 4), (False, 2 + 8)])
def test_turning_fractals_over_may_take_longer(transposed, cycles):
    # 16 x 16 of 16 bits, 512 bytes: 128 a cycle as they are, 64 turned over; L0B turns what is not transposed
    profile = toy(**{"paths.L1_L0B.transposing_bytes_per_cycle": 64})
    assert LoadL0B(slot("L0B"), L1, Submatrix(0, 16, 0, 16, transposed, 2)).cost(profile).cycles == cycles


# --- vector instructions ------------------------------------------------------------------------------------

VECTOR = Vector(
    256,
    head_cycles=1,
    latency_cycles=0,
    least_cycles=3,
    repeat_cycles={"unary": 1, "divide": 4, "mask": 2},
    kind_head_cycles={"divide": 5},
    kind_least_cycles={"mask": 7},
    group_repeats={"mask": 8},
)


@pytest.mark.parametrize(
    ("kind", "repeats", "cycles"),
    [
        ("unary", 1, 3),  # the least
        ("unary", 3, 4),  # head and repeats
        ("divide", 2, 13),  # a head of its own
        ("mask", 8, 17),  # one whole group: head and 8 x 2
        ("mask", 1, 8),  # a group begun: head and its least
        ("mask", 13, 27),  # a whole group, and 5 x 2 beyond
    ],
)
def test_a_vector_instruction_takes_head_repeats_and_groups(kind, repeats, cycles):
    assert VECTOR.instruction_cycles(kind, repeats) == cycles


# --- unloaded latency and peak rate inside the cores of every product (across links: test_peaks.py) --------


def on_chip(profile):
    """Paths that no link is part of."""
    return [(name, path) for name, path in profile.paths.items() if "GM" not in name]


@pytest.mark.parametrize("product", SHIPPED)
def test_every_path_inside_a_core_reaches_its_peak_and_its_unloaded_latency(product):
    profile = load_profile(product, overrides={"scalar.issue_cycles": 0})
    for name, path in on_chip(profile):
        size = 4096 * path.bytes_per_cycle.numerator
        move = PathMove(name, path.pipe, size)
        data = Fraction(size) / path.bytes_per_cycle
        core = "vector" if name.startswith("UB") and profile.core_structure == "split" else "cube"
        assert stream_cycles(move, profile, core) == path.head_cycles + data, name
        assert alone_cycles(move, profile, core) == path.head_cycles + data + path.latency_cycles, name


@pytest.mark.parametrize("product", SHIPPED)
def test_the_vector_unit_reaches_a_repeat_a_cycle_for_each_kind(product):
    profile = load_profile(product, overrides={"scalar.issue_cycles": 0})
    clock = Fraction(profile.clock.cube_mhz, profile.clock.vector_mhz)
    core = "vector" if profile.core_structure == "split" else "cube"
    for kind in ("unary", "binary", "divide"):
        cycles = profile.vector.head_cycles + 1000 * profile.vector.repeat_cycles[kind]
        assert stream_cycles(VectorRepeats(kind, 1000), profile, core) == ceil(cycles * clock)


# --- the table of all


def classes():
    """Every public class of `instructions` that has a meaning and a cost."""
    found = {}
    for path in sorted(Path(ascendsim.__file__).parent.glob("instructions/*.py")):
        module = import_module(f"ascendsim.instructions.{path.stem}")
        for name, kind in inspect.getmembers(module, inspect.isclass):
            own = kind.__module__ == module.__name__ and not name.startswith("_")
            if own and hasattr(kind, "execute") and hasattr(kind, "cost"):
                found[name] = kind
    return found


CLASSES = classes()
TABLE = {row.name: row for row in instructions()}


def test_the_table_has_every_instruction_and_nothing_else_lists_them():
    assert len(CLASSES) > 20
    assert set(CLASSES) == {name for name, row in TABLE.items() if name in CLASSES}
    tests = "".join(path.read_text() for path in Path(__file__).parents[1].glob("*/test_*.py"))
    assert [name for name in CLASSES if f"{name}(" not in tests] == []


def test_the_page_for_kernel_writers_names_each_of_them():
    page = (Path(__file__).parents[2] / "docs" / "from_ascendc.md").read_text()
    rows = page.partition("## The instructions")[2].partition("\n## ")[0]
    ours = "".join(line.split("|")[2] for line in rows.splitlines() if "|" in line)
    named = {f"ascendsim.instructions.{name}" for name in re.findall(r"`(\w+\.[A-Z]\w+)`", ours)}
    assert named == {f"{kind.__module__}.{name}" for name, kind in CLASSES.items()}


@pytest.mark.parametrize("name", CLASSES)
def test_every_instruction_says_all_its_parts(name):
    row, kind = TABLE[name], CLASSES[name]
    assert row.pipe in (*PIPES, "told")
    assert row.fields == kind._fields
    assert row.meaning.endswith(".")
    assert row.cost
    # These touch no tile: they only hold a pipe, or a flag.
    alone = "PipeBarrier", "StallCube", "BarrierAll"
    assert bool(row.reads or row.writes) == (name not in alone and not name.endswith("Flag"))
    assert {*row.reads, *row.writes} <= {*row.fields}


@pytest.mark.parametrize(
    ("name", "pipe", "reads", "writes"),
    [
        ("CopyGmToL1", "MTE2", "src", "dst"),
        ("LoadL0B", "MTE1", "src", "dst"),
        ("Mmad", "M", "a b dst", "dst"),  # one that does not begin its accumulator
        ("Fixpipe", "FIX", "src scale", "dst"),
        ("CopyUbToGm", "MTE3", "src", "dst"),
        ("Add", "V", "dst src", "dst"),
        ("ToTaps", "V", "sums", "dst"),
    ],
)
def test_a_row_names_what_is_read_and_written(name, pipe, reads, writes):
    row = TABLE[name]
    assert (row.pipe, row.reads, row.writes) == (pipe, tuple(reads.split()), tuple(writes.split()))


def test_a_run_of_pixels_is_filled_up_by_its_own_length_and_not_by_that_of_a_row():
    """16 of the 50 pixels of a row, taken 32 at a time: a step of nothing but zeros; of 32 none."""
    law = load_profile("910B2").load3d["L0A"]
    for pixels, zeros in ((16, 1), (32, 0)):
        plain, filled = (
            load3d_cycles(law, 1, (0, pixels, 50), 1, Gathering(16, whole)) for whole in (16, 32)
        )
        step = Fraction(ROW_BYTES * 16 * law.fractal_cycles(1, 1), law.fractal_bytes)
        commands = [law.commands(-(-pixels // whole), 1) * law.command_cycles for whole in (16, 32)]
        assert filled - plain == zeros * step + commands[1] - commands[0]
