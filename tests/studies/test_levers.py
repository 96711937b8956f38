"""Is each figure changed the way that a study says, and what it does to a call told by the kernels' times?"""

from fractions import Fraction
from types import SimpleNamespace

import pytest

from ascendsim.errors import CapacityError, ConfigError
from ascendsim.profile import load_profile
from ascendsim.studies import levers
from ascendsim.studies.accounts import (
    CallTraffic,
    EnergyEvent,
    KernelBound,
    Lever,
    LeverAnswer,
    LeverQuestion,
    TrafficAnswer,
    added,
    energy_between,
    energy_pj,
    lacking,
)
from ascendsim.studies.levers import fast_pipe, steps_of, study_levers
from ascendsim.studies.sweep import Sweep

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
    assert levers._step(path, value) == to


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
def answer():
    told = []
    found = study_levers(LeverQuestion("a test", "910B2"), call, 1, told.append)
    return found, told


def test_the_levers_of_a_call_are_what_their_figures_do_to_its_kernels(answer):
    found, told = answer
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


def test_a_kernel_has_its_bound_its_launch_and_what_lies_behind(answer):
    found, _ = answer
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

    (bound,) = levers._bounds(Sweep.of("910B2", refusing), PROFILE)
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
    found = levers._lifted(lever, to, point)
    assert (found.better, found.better_us) == better


def test_the_other_way_goes_as_far_by_its_factor():
    pairs = (((4, 2), 8), ((5, 2), 10), ((1, 2), 0), ((0.5, 0.25), 1.0), ((0.5, 1.0), 0.25))
    for (value, stepped), other in pairs:
        assert levers._other_way(Lever("x", value, stepped, 1.0, 1.0, {})) == other


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
    made = levers._faster(path, value)
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
