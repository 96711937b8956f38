"""Are repeated templates the same as if their instructions were built anew?"""

import random
from dataclasses import replace
from functools import partial

import pytest

from ascendsim import Tiling
from ascendsim.ops.lowering.lower import lower
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.profile import load_profile
from ascendsim.program.builder import HAZARDS, ProgramBuilder
from ascendsim.program.places import Gm, GmTensor, Slot
from ascendsim.program.recurring import Recurring
from ascendsim.program.rings import Ring
from ascendsim.timing.costing import CostBook
from ascendsim.vector.instructions import Add, CopyGmToUb
from tests.conv_cases import Case, call_of, grid_2d, other_ranks
from tests.fake_machine import Fake
from tests.test_schedules import MANY_TILES
from tests.toy_profiles import toy_split

CASES = [
    *grid_2d(seed=2)[::4],
    *other_ranks(seed=2),
    *MANY_TILES,
    # long rows of equal tasks; two blocks of columns, so that images stay and weights come again
    Case(ConvProblem((9, 8, 7, 7), (24, 8, 3, 3), 2, 1)),
    Case(ConvProblem((40, 4, 2, 2), (4, 4, 1, 1))),
    Case(
        ConvProblem((7, 40, 6, 6), (40, 40, 3, 3), 1, 1),
        tilings=(
            ("grad_input", Tiling(16, 16, 16, 2, 9, bl1_buffers=1, used_cores=2)),
            ("grad_weight", Tiling(32, 32, 16, 4, 4, 1, 1, k_split=3, used_cores=2)),
        ),
    ),
]


def build_always(_self, task, _shape, _places, body):
    """Emit a task without looking whether one like it is known."""
    body(task)


def plain_instruction(instruction):
    """An instruction with its slots by place, so that those of two builders compare."""
    fields = [(f.buffer, f.index, f.size_bytes) if isinstance(f, Slot) else f for f in instruction]
    gm = [f.tensor.name for f in instruction if hasattr(f, "tensor")]
    return type(instruction), [(gm, f.index) if hasattr(f, "tensor") else f for f in fields]


def programs(call):
    """All programs of a call, as what they say."""
    return [
        (
            [plain_instruction(i) for i in program.instructions],
            list(program.after_done),
            list(program.after_end),
            dict(program.buffer_bytes),
        )
        for kernel in lower(call, (True, True, False)).kernels
        for phase in kernel.phases
        for program in (work.build() for work in phase.work)
    ]


def count_templates(call):
    return sum(
        len(work.build().templates)
        for kernel in lower(call, (True, True, False)).kernels
        for phase in kernel.phases
        for work in phase.work
    )


@pytest.mark.parametrize("case", CASES, ids=str)
def test_programs_with_templates_are_those_built_instruction_by_instruction(case, monkeypatch):
    made = programs(case.call())
    monkeypatch.setattr(Recurring, "emit", build_always)
    assert made == programs(case.call())


REAL = [
    (ConvProblem((8, 3, 224, 224), (64, 3, 7, 7), 2, 3), "910B"),
    (ConvProblem((32, 64, 28, 28), (64, 64, 3, 3), 1, 1), "910B"),
    (ConvProblem((64, 256, 14, 14), (512, 256, 1, 1), 2), "910_95"),
    (ConvProblem((16, 64, 28, 28), (64, 64, 3, 3), 1, 1), "310P"),
]


@pytest.mark.parametrize(("problem", "product"), REAL, ids=str)
def test_programs_of_real_layers_are_those_built_instruction_by_instruction(problem, product, monkeypatch):
    call = partial(call_of, problem, profile=load_profile(product))
    made = programs(call())
    assert count_templates(call()) > 0
    monkeypatch.setattr(Recurring, "emit", build_always)
    assert made == programs(call())


def test_templates_recur_in_most_of_these_cases():
    assert sum(count_templates(case.call()) > 0 for case in CASES) > len(CASES) / 2


@pytest.mark.parametrize("case", CASES, ids=str)
def test_templates_cost_what_their_instructions_do(case):
    for kernel in lower(case.call(), (True, True, False)).kernels:
        for work in (work for phase in kernel.phases for work in phase.work):
            program, book = work.build(), CostBook(case.profile)
            priced = book.price(program, work.core.kind)
            whole = book.price(replace(program, templates=()), work.core.kind)
            assert replace(priced, program=whole.program) == whole


# --- the waits of a template


def random_body(rng, slots):
    return [
        Fake(
            rng.choice(("MTE2", "MTE1", "M", "FIX")),
            reads=tuple(rng.sample(slots, rng.randrange(3))),
            writes=tuple(rng.sample(slots, rng.randrange(2))),
            trails=rng.random() < 0.3,
        )
        for _ in range(rng.randrange(1, 6))
    ]


@pytest.mark.parametrize("missing", [None, "RAW", "WAR", "WAW"])
@pytest.mark.parametrize("seed", range(25))
def test_repeated_templates_wait_for_what_they_would_have_waited_for(seed, missing):
    rng = random.Random(seed)
    repeating, plain = (ProgramBuilder(toy_split(), HAZARDS - {missing}) for _ in range(2))
    slots = repeating.slots("L1", 32, "x", 5)
    plain.slots("L1", 32, "x", 5)
    for b in (repeating, plain):
        for slot in slots:
            b.add(Fake("MTE2", writes=(slot,)))
    bodies = [random_body(rng, slots) for _ in range(3)]
    known = [None] * len(bodies)
    for _ in range(60):
        number = rng.randrange(len(bodies))
        for instruction in bodies[number]:
            plain.add(instruction)
        if known[number] is not None:
            repeating.repeat(known[number], ())
            continue
        begin = len(repeating)
        for instruction in bodies[number]:
            repeating.add(instruction)
        known[number] = repeating.template(begin)
    one, other = repeating.build(), plain.build()
    assert one.instructions == other.instructions
    assert (list(one.after_done), list(one.after_end)) == (list(other.after_done), list(other.after_end))
    assert one.trail_back == other.trail_back
    assert max(len(template.known) for template in known) < 40  # waits recur, too


def test_a_repeated_template_may_name_another_slice():
    b = ProgramBuilder(toy_split())
    b.add(Fake("MTE2", cycles=1))
    b.add(Fake("M", cycles=2))
    template = b.template(0)
    b.repeat(template, [(0, Fake("MTE2", cycles=3))])
    assert [i.cycles for i in b.build().instructions] == [1, 2, 3, 2]
    assert [begin for begin, _ in b.build().templates] == [0, 2]


def test_another_program_on_the_same_slots_starts_from_nothing():
    b = ProgramBuilder(toy_split())
    (x,) = b.slots("L1", 32, "x")
    for pipe in ("MTE2", "MTE1"):
        b.add(Fake(pipe, writes=(x,)))
    first = b.build()
    b.restart()
    b.add(Fake("MTE1", writes=(x,)))
    assert (len(first), len(b.build())) == (2, 1)
    assert list(b.build().after_done) == [()]
    assert b.build().slots == first.slots


# --- tasks


class _Rows:
    """A schedule that loads row `task` of a tensor into a ring of two slots and reads it."""

    def __init__(self):
        self.builder = ProgramBuilder(toy_split())
        self.ring = Ring(self.builder.slots("UB", 32, "row", 2))
        self.recurring = Recurring(self, self.builder, (self.ring,))
        self.built = []

    def body(self, task):
        """Append the instructions of one task, and note that it was built."""
        self.built.append(task)
        slot = self.ring.next(task)
        index = self.recurring.aim(task, lambda _schedule, task: (task, slice(0, 8)))
        self.builder.add(CopyGmToUb(slot, Gm(ROWS, index), 32, (8,)))
        self.builder.add(Add(slot, slot, 8))

    def emit(self, tasks):
        """The program of these tasks."""
        self.recurring.restart()
        for task in tasks:
            self.recurring.emit(task, "row", ((task,),), self.body)
        return self.builder.build()


ROWS = GmTensor("rows", (9, 8), "float32", 4)


def test_a_task_is_built_until_one_like_it_has_come_twice():
    # The ring begins before its first slot, then has its two turns: tasks 1 and 2 are like no task before,
    # 3 and 4 are each like one and become templates; from then on they are repeated, with their own rows.
    rows = _Rows()
    program = rows.emit(range(8))
    assert rows.built == [0, 1, 2, 3, 4]
    assert [i.src.index[0] for i in program.instructions if i.gm] == list(range(8))
    assert [begin for begin, _ in program.templates] == [6, 8, 10, 12, 14]


def test_templates_stay_known_from_program_to_program():
    rows = _Rows()
    first = rows.emit(range(8))
    rows.built.clear()
    again = rows.emit(range(8))
    # The first task finds the ring before its first slot, which has come once: now it becomes a template.
    assert rows.built == [0]
    assert again.instructions == first.instructions
    assert (again.done_back, again.end_back) == (first.done_back, first.end_back)


def test_a_body_that_takes_a_slice_from_elsewhere_is_noticed():
    rows = _Rows()

    def body(_task):
        rows.builder.add(CopyGmToUb(rows.ring.next(), Gm(ROWS, (0,)), 32, (8,)))

    # The ring before its first slot and at its two turns; the fourth finds it as the second did.
    for _ in range(3):
        rows.recurring.emit(0, "row", ((),), body)
    with pytest.raises(ValueError, match="zip"):
        rows.recurring.emit(0, "row", ((),), body)


# --- rings


def test_a_ring_is_known_to_a_task_by_what_it_holds_of_it():
    ring = Ring((object(), object(), object()))
    ring.next("image 1", "box")
    ring.next("image 0", "box")
    assert ring.state(("image 0", "image 1")) == (1, ((1, "box"), (0, "box"), None))
    assert ring.state(("image 2",)) == (1, (None, None, None))


def test_a_ring_becomes_what_a_like_task_left_and_keeps_what_that_did_not_touch():
    slots = object(), object(), object()
    ring = Ring(slots)
    ring.next("image 0", "box")
    ring.next("image 1", "box")
    state = ring.state(("image 1",))
    other = Ring(slots)
    other.next("image 6", "box")
    other.become(state, ("image 7",))
    assert other.find("image 6", "box") is slots[0]
    assert other.find("image 7", "box") is slots[1]
    assert other.next() is slots[2]
