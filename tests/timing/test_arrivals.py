"""Do the instructions of a timed kernel arrive in the order in which they leave their pipes?"""

from ascendsim.program.kernel import Core, CoreWork, Kernel, Phase
from ascendsim.timing.timeline import CoreTimeline, PhaseTimeline, Timeline, arrivals
from tests.helpers.fake_machine import program

A, B, C = (Core("vector", index) for index in range(3))


def arrived(*phases):
    """The order in each phase; a phase is a list of (cores of one timeline, cycles in which they end).

    Results show long after the end, the later the earlier that was: they must not matter.
    """
    timed = tuple(
        PhaseTimeline("p", 0, 0, tuple(_spans(cores, ends) for cores, ends in phase)) for phase in phases
    )
    made = tuple(
        Phase("p", tuple(CoreWork(core, 0, program) for cores, _ in phase for core in cores))
        for phase in phases
    )
    return arrivals(Kernel("k", made, {}, math=None), Timeline("k", 0, timed, {}))


def _spans(cores, ends):
    done = [1000 - end for end in ends]
    return CoreTimeline(cores, program(), [], [], ends, done)


def test_who_leaves_its_pipe_first_arrives_first():
    assert arrived([((A,), [5, 9]), ((B,), [7, 8])]) == [[(A, 0), (B, 0), (B, 1), (A, 1)]]


def test_program_order_is_not_arrival_order():
    # Two pipes: the second instruction is the quicker one.
    assert arrived([((A,), [9, 4])]) == [[(A, 1), (A, 0)]]


def test_ties_go_by_core_and_then_by_program_order():
    assert arrived([((A,), [5, 5]), ((B,), [5, 4])]) == [[(B, 1), (A, 0), (A, 1), (B, 0)]]


def test_the_order_of_cores_is_that_of_the_kernel_and_not_of_their_numbers():
    assert arrived([((C,), [5]), ((A,), [5])]) == [[(C, 0), (A, 0)]]


def test_cores_that_were_folded_arrive_one_by_one():
    assert arrived([((A, C), [5, 6]), ((B,), [5])]) == [[(A, 0), (C, 0), (B, 0), (A, 1), (C, 1)]]


def test_phases_stay_apart():
    # The second phase begins after the first, so its cycles are never compared with it.
    assert arrived([((A,), [50])], [((B,), [60]), ((A,), [55])]) == [[(A, 0)], [(A, 0), (B, 0)]]
    assert arrived([]) == [[]]
