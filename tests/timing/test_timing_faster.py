"""Does a faster figure, or a faster instruction, make anything later? Where nothing is shared, never."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.both_engines import time_kernel
from tests.helpers.fake_machine import Fake, kernel, program, with_instructions
from tests.helpers.oracles_timing import spans_of
from tests.timing.test_timing import PLAIN, profiles, programs, read, small

FASTER = [
    {"issue_cycles": 0},
    {"flag_cycles": 0},
    {"start_cycles": 0},
    {"barrier_cycles": 0},
    {"depth": 8},
    {"read": (200, 40)},
    {"write": (200, 40)},
    {"memory": (9, 7)},
    {"latency": (0, 0, 0)},
]


def all_times(timeline):
    """Every time of every instruction, in one list."""
    return [t for phase in timeline.phases for core in phase.cores for times in spans_of(core) for t in times]


# With them nothing is shared: no link is asked for more than its total by four cores, and everything is warm.
UNCONTENDED = {"read": (200, 9), "write": (200, 9)}
# Of a core one pipe reads and one writes.
apart = st.lists(programs(most=12, writers=["FIX"]), min_size=1, max_size=4)


def assert_nothing_later(made, profile, figures):
    slow, fast = (time_kernel(made, p) for p in (profile, profile.but(**figures)))
    assert all(early <= late for early, late in zip(all_times(fast), all_times(slow), strict=True))


@settings(max_examples=200, deadline=None)
@given(apart, profiles, st.sampled_from(FASTER))
def test_a_faster_figure_never_makes_anything_later_where_nothing_is_shared(progs, profile, figures):
    profile = profile.but(start_cycles=5, barrier_cycles=3, **UNCONTENDED)
    made = kernel(progs, progs[::-1])
    assert_nothing_later(made, profile, figures)


@settings(max_examples=200, deadline=None)
@given(programs(writers=["FIX"]), profiles, st.sampled_from(FASTER), st.integers(1, 30))
def test_a_faster_figure_never_makes_anything_later_on_equal_cores(prog, profile, figures, cores):
    made = kernel([(0, prog)] * cores)
    assert_nothing_later(made, profile, figures)


def test_a_faster_core_can_come_in_the_way_of_another():
    # Core 0 reads 100 bytes from cycle 5 on and then computes for 50; alone on 10 bytes a cycle it is done at
    # 65. Core 1 computes, then reads 100 bytes. If it comes at 20 core 0 does not notice; if it comes at 5
    # both have 5 a cycle, and core 0 has its bytes at 25.
    long = program(Fake("V", 5), (read(100), [0]), (Fake("M", 50), [1]))
    cycles = {
        compute: time_kernel(
            kernel([long, program(Fake("V", compute), (read(100), [0]))]), PLAIN.but(read=(10, 10))
        ).cycles
        for compute in (30, 20, 5)
    }
    assert cycles == {30: 65, 20: 65, 5: 75}


@st.composite
def slowed(draw, prog):
    """The same program, some of whose instructions cost more."""
    rows = [
        replace(
            made,
            cycles=made.cycles + draw(small),
            latency=made.latency + draw(small),
            least=made.least + draw(small),
            piece=made.piece + draw(small),
            lead=made.lead + draw(small),
            peak=min(made.peak, draw(st.sampled_from([3, 20]))),
        )
        for made in prog.instructions
    ]
    return with_instructions(prog, rows)


@settings(max_examples=200, deadline=None)
@given(apart, profiles, st.data())
def test_a_faster_instruction_never_makes_anything_later_where_nothing_is_shared(progs, profile, data):
    profile = profile.but(**UNCONTENDED)
    slow, fast = (
        time_kernel(kernel(kinds), profile) for kinds in ([data.draw(slowed(prog)) for prog in progs], progs)
    )
    assert all(early <= late for early, late in zip(all_times(fast), all_times(slow), strict=True))
