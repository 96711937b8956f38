"""Is synchronisation sufficient, and does the functional executor do what a program says?"""

import random
import re
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from ascendsim.errors import ProgramError
from ascendsim.functional import run_kernel
from ascendsim.instructions.cube import Mmad, Submatrix
from ascendsim.instructions.elementwise import Cast, Compare, Select, Unary
from ascendsim.instructions.movers import CopyGmToL1, LoadL0A, LoadL0B
from ascendsim.instructions.rowwise import ReduceRows
from ascendsim.instructions.vector import Add, AddLanes, CopyGmToUb, CopyUbToGm, Fill
from ascendsim.numerics.accumulation import AccumulationModel, IntegerSum, MathSettings
from ascendsim.program.checked import CheckedMemory, PhaseWatch, apart
from ascendsim.program.kernel import Core, CoreWork, Kernel, Phase
from ascendsim.program.places import CoreMemory, Gm, GmTensor, Storage, aligned_empty
from ascendsim.program.program import ProgramBuilder, program_of
from ascendsim.program.waits import HAZARDS
from ascendsim.timing.kernel import time_kernel
from ascendsim.timing.timeline import arrivals
from tests.helpers.oracles_timing import check_gm
from tests.helpers.toy_machines import toy_split

TOY = toy_split()
MATH = MathSettings(AccumulationModel.parse("block:16:RNE"))
SEEDS = range(12)
X = GmTensor("x", (4, 8), "float32", 4)
Y = GmTensor("y", (4, 8), "float32", 4, "output")


def kernel_of(*phases, tensors=(X, Y)):
    """Make a kernel; each phase is a list of programs, one for each vector core."""
    made = tuple(
        Phase(
            f"phase {number}",
            tuple(
                CoreWork(Core("vector", core), core, lambda program=program: program)
                for core, program in enumerate(programs)
            ),
        )
        for number, programs in enumerate(phases)
    )
    return Kernel("handmade", made, {tensor.name: tensor for tensor in tensors}, MATH)


def row(tensor, index):
    return Gm(tensor, (index,))


def load(slot, tensor, index):
    return CopyGmToUb(slot, row(tensor, index), 32, (8,))


def store(tensor, index, slot, *, atomic=False):
    return CopyUbToGm(row(tensor, index), slot, 32, atomic)


def ones_and_more():
    return np.arange(1, 33, dtype=np.float32).reshape(4, 8)


def outcomes(kernel, seeds=SEEDS):
    """Return the different results of random orders; the text of a ProgramError counts as one."""
    found = set()
    for seed in seeds:
        gm = {"x": ones_and_more()}
        try:
            run_kernel(kernel, gm, order=seed)
            found.add(gm["y"].tobytes())
        except ProgramError as error:
            found.add(str(error))
    return found


# --- programs of a few instructions, with and without one class of waits


def through_one_slot(hazards=HAZARDS):
    """Copy four rows through a single slot: each copy must wait for the store before it."""
    b = ProgramBuilder(TOY, hazards)
    (slot,) = b.slots("UB", 32, "row")
    for index in range(4):
        b.add(load(slot, X, index))
        b.add(store(Y, index, slot))
    return kernel_of([b.build()])


def through_a_cast(hazards=HAZARDS):
    """Round four rows to float16: each cast must wait for its load, each store for its casts."""
    b = ProgramBuilder(TOY, hazards)
    before, after = b.slots("UB", 32, "before", 4), b.slots("UB", 32, "after", 4)
    for index in range(4):
        b.add(load(before[index], X, index))
        b.add(Cast(after[index], before[index], "float16", 8, 4))
        b.add(Cast(after[index], after[index], "float32", 8, 2))
        b.add(store(Y, index, after[index]))
    return kernel_of([b.build()])


def overwritten_unread(hazards=HAZARDS):
    """Clear slots that were just loaded: the fill must come after the load, although nobody reads between."""
    b = ProgramBuilder(TOY, hazards)
    for index, slot in enumerate(b.slots("UB", 32, "row", 4)):
        b.add(load(slot, X, index))
        b.add(Fill(slot, (8,), 32))
        b.add(store(Y, index, slot))
    return kernel_of([b.build()])


@pytest.mark.parametrize("make", [through_one_slot, through_a_cast, overwritten_unread])
def test_every_legal_order_gives_the_bits_of_program_order(make):
    gm = {"x": ones_and_more()}
    run_kernel(make(), gm)
    assert outcomes(make()) == {gm["y"].tobytes()}


@pytest.mark.parametrize(
    ("make", "missing"), [(through_one_slot, "WAR"), (through_a_cast, "RAW"), (overwritten_unread, "WAW")]
)
def test_without_one_class_of_waits_some_order_goes_wrong(make, missing):
    assert outcomes(make(HAZARDS - {missing})) - outcomes(make())


def test_reading_too_early_is_an_error_that_says_so():
    errors = [text for text in outcomes(through_a_cast(HAZARDS - {"RAW"})) if isinstance(text, str)]
    assert any("is read before anything has written it: a wait is missing" in text for text in errors)


# --- the orders


class Journal(list):
    """Observes which instruction was executed on which core."""

    def __call__(self, phase, core, instruction):
        self.append((phase.name, core, instruction))


def adders(count):
    """Let each of so many cores add its row of x to row 0 of y, which another phase has cleared."""
    clear = ProgramBuilder(TOY)
    (zero,) = clear.slots("UB", 32, "zero")
    clear.add(Fill(zero, (8,), 32))
    clear.add(store(Y, 0, zero))
    programs = []
    for core in range(count):
        b = ProgramBuilder(TOY)
        (slot,) = b.slots("UB", 32, "row")
        b.add(load(slot, X, core))
        b.add(store(Y, 0, slot, atomic=True))
        programs.append(b.build())
    return kernel_of([clear.build()], programs)


@pytest.mark.parametrize("reader", [0, 1, 2])
@pytest.mark.parametrize("overwrites", [False, True])
def test_what_other_cores_add_to_is_not_read_or_overwritten(reader, overwrites):
    clear, added = adders(3).phases
    programs = [work.build() for work in added.work]
    b = ProgramBuilder(TOY)
    slot, other = b.slots("UB", 32, "row", 2)
    b.add(load(slot, X, reader))
    b.add(store(Y, 0, slot, atomic=True))
    b.add(store(Y, 0, slot) if overwrites else load(other, Y, 0))
    programs[reader] = b.build()
    kernel = kernel_of([work.build() for work in clear.work], programs)
    with pytest.raises(ProgramError, match=r"adds to y\[0\].*they share elements"):
        run_kernel(kernel, {"x": ones_and_more()})


def test_program_order_runs_core_after_core():
    journal = Journal()
    run_kernel(adders(3), {"x": ones_and_more()}, observe=journal)
    assert [(name, core.index) for name, core, _ in journal] == [
        *[("phase 0", 0)] * 2,
        *[("phase 1", 0)] * 2,
        *[("phase 1", 1)] * 2,
        *[("phase 1", 2)] * 2,
    ]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_order_keeps_pipes_in_order_and_respects_waits(seed):
    kernel, journal = through_a_cast(), Journal()
    run_kernel(kernel, {"x": ones_and_more()}, order=seed, observe=journal)
    program = kernel.phases[0].work[0].build()
    order = [program.instructions.index(instruction) for _, _, instruction in journal]
    assert sorted(order) == list(range(16))  # each of them once
    place = {index: at for at, index in enumerate(order)}
    for index in order:
        for other in (*program.after_done[index], *program.after_end[index]):
            assert place[other] < place[index]
    for pipe in ("MTE2", "V", "MTE3"):
        mine = [index for index in order if program.instructions[index].pipe == pipe]
        assert mine == sorted(mine)


def test_a_seed_fixes_the_order_and_seeds_differ():
    def order(seed):
        journal = Journal()
        run_kernel(through_a_cast(), {"x": ones_and_more()}, order=seed, observe=journal)
        return [type(instruction).__name__ for _, _, instruction in journal]

    assert order(3) == order(3)
    assert len({tuple(order(seed)) for seed in SEEDS}) > 1


def test_phases_are_never_mixed():
    for seed in SEEDS:
        journal = Journal()
        run_kernel(adders(3), {"x": ones_and_more()}, order=seed, observe=journal)
        names = [name for name, _, _ in journal]
        assert names == sorted(names)


def added_as_timed(kernel):
    """The cores in the order in which they add to the result."""
    journal = Journal()
    timeline = time_kernel(kernel, TOY, folded=False)
    run_kernel(kernel, {"x": ones_and_more()}, order=arrivals(kernel, timeline), observe=journal)
    return [core.index for name, core, i in journal if name == "phase 1" and isinstance(i, CopyUbToGm)]


def test_arrival_order_adds_as_timed():
    # The copy of core 0 is as long as all others, so all arrive in one cycle: ties go by core.
    kernel = adders(3)
    assert added_as_timed(kernel) == [0, 1, 2]


def test_arrival_order_lets_the_quicker_core_add_first():
    # Core 0 takes a detour of 60 instructions over the vector unit.
    b = ProgramBuilder(TOY)
    slot, other = b.slots("UB", 32, "row", 2)
    b.add(load(slot, X, 0))
    for _ in range(30):
        b.add(Fill(other, (8,), 32))
        b.add(Add(slot, other, 8))
    b.add(store(Y, 0, slot, atomic=True))
    kernel = adders(2)
    slow = CoreWork(Core("vector", 0), "slow", lambda: b.build())
    second = Phase("phase 1", (slow, kernel.phases[1].work[1]))
    kernel = Kernel("handmade", (kernel.phases[0], second), kernel.tensors, MATH)
    assert added_as_timed(kernel) == [1, 0]


def test_arrival_order_is_legal_where_a_reader_delivers_later_than_what_overwrites_its_slot():
    # A store leaves UB early and is visible 500 cycles later; the fill of the same slot is visible at once.
    slow = toy_split(**{"paths.UB_GM.latency_cycles": 500})
    b = ProgramBuilder(slow)
    (slot,) = b.slots("UB", 32, "row")
    b.add(load(slot, X, 0))
    b.add(store(Y, 0, slot))
    b.add(Fill(slot, (8,), 32))
    b.add(store(Y, 1, slot))
    kernel = kernel_of([b.build()])
    spans = time_kernel(kernel, slow, folded=False)
    assert spans.phases[0].cores[0].done[2] < spans.phases[0].cores[0].done[1]
    gm = {"x": ones_and_more()}
    run_kernel(kernel, gm, order=arrivals(kernel, spans))
    assert gm["y"][0].tolist() == gm["x"][0].tolist()
    assert gm["y"][1].tolist() == [0] * 8


def test_an_order_without_a_meaning_is_refused():
    with pytest.raises(ProgramError, match="order is 'arrival'"):
        run_kernel(adders(1), {"x": ones_and_more()}, order="arrival")


def test_an_order_may_be_given_step_by_step():
    # Core 2 adds before core 0, core 1 last; each loads (0) before it adds (1).
    kernel, journal = adders(3), Journal()
    cores = [Core("vector", index) for index in range(3)]
    order = [[(cores[0], 0), (cores[0], 1)], [(cores[i], at) for i in (2, 0, 1) for at in (0, 1)]]
    gm = {"x": ones_and_more()}
    run_kernel(kernel, gm, order=order, observe=journal)
    assert [core.index for name, core, _ in journal if name == "phase 1"] == [2, 2, 0, 0, 1, 1]
    assert gm["y"][0, 0] == 1 + 9 + 17


@pytest.mark.parametrize("order", ["arrival", "", "0"])
def test_an_unknown_order_is_refused_with_those_that_there_are(order):
    with pytest.raises(ProgramError, match=r'it must be "program", a seed, or the steps of every phase'):
        run_kernel(adders(1), {"x": ones_and_more()}, order=order)


def test_atomic_addition_rounds_each_sum_to_float32():
    x = np.zeros((4, 8), np.float32)
    x[:3, 0] = 2.0**24, 1.0, 1.0
    gm = {"x": x}
    run_kernel(adders(3), gm)
    assert gm["y"][0, 0] == 2.0**24  # each one is half an ulp and is lost; their exact sum would not be


# --- memory


def test_outputs_start_poisoned():
    gm = {"x": ones_and_more()}
    run_kernel(kernel_of([]), gm, checked=False)
    assert np.isnan(gm["y"]).all()


class LoadHalf(CopyGmToUb):
    """A copy that forgets the second half of its tile."""

    def execute(self, memory):
        """Copy four of eight elements."""
        memory.new_tile(self.dst, (8,))[:4] = memory.array(self.src.tensor)[self.src.index][:4]


def test_what_an_instruction_forgets_of_its_tile_is_poisoned():
    # The slot holds ones when the copy comes.
    builder = ProgramBuilder(TOY)
    (slot,) = builder.slots("UB", 32, "row")
    for made in (load(slot, X, 0), store(Y, 0, slot), LoadHalf(slot, row(X, 1), 32, (8,)), store(Y, 1, slot)):
        builder.add(made)
    gm = {"x": np.ones((4, 8), np.float32)}
    run_kernel(kernel_of([builder.build()]), gm)
    assert (gm["y"][0] == 1).all()
    assert (gm["y"][1, :4] == 1).all()
    assert np.isnan(gm["y"][1, 4:]).all()


def test_a_slot_that_shrinks_and_grows_keeps_no_old_shape():
    b = ProgramBuilder(TOY)
    (slot,) = b.slots("UB", 64, "row")
    memory = CoreMemory({}, kernel_of([]).math, {})
    memory.new_tile(slot, (2, 8)).fill(1)
    assert memory.tile(slot).shape == (2, 8)
    memory.new_tile(slot, (3,)).fill(2)
    assert memory.tile(slot).tolist() == [2, 2, 2]


def test_storage_of_tiles_begins_on_a_cache_line():
    assert all(aligned_empty(size).ctypes.data % 64 == 0 for size in (1, 7, 100))


def test_a_tensor_is_seen_in_the_shape_of_the_instruction():
    flat = GmTensor("x", (32,), "float32", 4)
    memory = CoreMemory({"x": ones_and_more()}, kernel_of([]).math, {})
    assert memory.array(flat)[9] == 10
    memory.array(flat)[9] = 0
    assert memory.array(X)[1, 1] == 0  # one storage


def test_a_permuted_tensor_is_read_along_its_other_axes_and_brought_there_once():
    # x is 4 x 8; along (columns, rows) element (c, r) is x[r, c] = 8 r + c + 1.
    turned = GmTensor("x", (8, 4), "float32", 4, permuted=((4, 8), (1, 0)))
    shared = {}
    memories = [CoreMemory({"x": ones_and_more()}, kernel_of([]).math, shared) for _ in range(2)]
    assert memories[0].array(turned)[3, 2] == 8 * 2 + 3 + 1
    assert memories[0].array(turned) is memories[1].array(turned)
    assert memories[0].array(X)[2, 3] == 8 * 2 + 3 + 1  # others see it as it is stored


def test_a_permuted_tensor_may_be_folded():
    # The same elements as 2 x 16: the second half begins with column 4 of row 0.
    folded = GmTensor("x", (2, 16), "float32", 4, permuted=((4, 8), (1, 0)))
    memory = CoreMemory({"x": ones_and_more()}, kernel_of([]).math, {})
    assert memory.array(folded)[1, :5].tolist() == [5, 13, 21, 29, 6]


def test_a_slot_that_nothing_has_written_cannot_be_read():
    (slot,) = ProgramBuilder(TOY).slots("UB", 32, "row")
    memory = CoreMemory({}, kernel_of([]).math, {})
    with pytest.raises(ProgramError, match=r"UB:row\(32 B\) is read before anything has written it"):
        memory.tile(slot)


def test_a_tile_that_grows_leaves_no_view_of_its_old_storage():
    (slot,) = ProgramBuilder(TOY).slots("UB", 64, "row")
    memory = CoreMemory({}, kernel_of([]).math, {})
    memory.new_tile(slot, (2, 4)).fill(1)
    memory.new_tile(slot, (16,)).fill(2)
    assert memory.new_tile(slot, (2, 4)).tolist() == [[2] * 4] * 2


def test_cores_that_share_storage_see_no_tiles_of_each_other():
    (slot,) = ProgramBuilder(TOY).slots("UB", 64, "row")
    storage = Storage("float32")
    first, second = (CoreMemory({}, kernel_of([]).math, {}, storage) for _ in range(2))
    first.new_tile(slot, (8,)).fill(1)
    with pytest.raises(ProgramError, match="before anything has written it"):
        second.tile(slot)


def test_cores_that_run_by_turns_keep_their_tiles_apart():
    programs = []
    for index in range(4):
        b = ProgramBuilder(TOY)
        (slot,) = b.slots("UB", 32, "row")
        b.add(load(slot, X, index))
        b.add(store(Y, index, slot))
        programs.append(b.build())
    # In a random order all loads may come before the first store.
    assert outcomes(kernel_of(programs)) == {ones_and_more().tobytes()}


def test_overwriting_a_slot_spoils_what_a_late_reader_holds():
    (slot,) = ProgramBuilder(TOY).slots("UB", 32, "row")
    memory = CoreMemory({}, kernel_of([]).math, {})
    held = memory.new_tile(slot, (8,))
    held.fill(1)
    memory.new_tile(slot, (4,)).fill(2)
    assert held.tolist() == [2] * 4 + [1] * 4  # one storage, as on the device


def test_integers_are_not_rounded_when_their_carrier_holds_them():
    memory = CoreMemory({}, MathSettings(IntegerSum()), {})
    values = np.array([2**31 - 1], np.int32)
    assert memory.convert(values, "int32") is values


@pytest.mark.parametrize(("dtype", "expected"), [("hifloat8", 8.5), ("float16", 8.5)])
def test_a_value_on_the_grid_of_a_format_stays(dtype, expected):
    memory = CoreMemory({}, MATH, {})
    grid = memory.convert(np.array([expected], np.float32), dtype)
    assert memory.convert(grid, dtype).tolist() == grid.tolist()


@pytest.mark.parametrize(
    ("dtype", "expected"), [("float16", 2048.0), ("bfloat16", 2048.0), ("float32", 2049.0)]
)
def test_storing_rounds_to_the_format_of_the_tensor(dtype, expected):
    # 2049 = 2^11 + 1 needs 12 bits: a tie in float16, which goes to the even 2048; bfloat16 has 8 bits.
    target = GmTensor("y", (1,), dtype, 4 if dtype == "float32" else 2, "output")
    memory = CoreMemory({"y": np.zeros(1, np.float32)}, kernel_of([]).math, {})
    memory.store(Gm(target, (slice(0, 1),)), np.array([2049], np.float32), atomic=False)
    assert memory.array(target)[0] == expected


# --- what checked runs refuse


class _Undeclared(CopyUbToGm):
    """A store that does not say what it reads."""

    __slots__ = ()
    reads = ()


class _Careless(Add):
    """An addition that does not say that it changes its first operand."""

    __slots__ = ()
    writes = ()


def test_a_checked_run_notices_what_is_not_declared():
    b = ProgramBuilder(TOY)
    slot, other = b.slots("UB", 32, "row", 2)
    b.add(load(slot, X, 0))
    b.add(load(other, X, 1))
    b.add(_Careless(slot, other, 8))
    with pytest.raises(ProgramError, match="changes what it only reads"):
        run_kernel(kernel_of([b.build()]), {"x": ones_and_more()})
    b = ProgramBuilder(TOY)
    (slot,) = b.slots("UB", 32, "row")
    b.add(load(slot, X, 0))
    b.add(_Undeclared(row(Y, 0), slot, 32))
    with pytest.raises(ProgramError, match="which its `reads` does not name"):
        run_kernel(kernel_of([b.build()]), {"x": ones_and_more()})


def test_a_checked_run_notices_a_tile_that_is_larger_than_its_slot():
    b = ProgramBuilder(TOY)
    (slot,) = b.slots("UB", 32, "row")
    b.add(CopyGmToUb(slot, Gm(X, (slice(0, 2),)), 64, (16,)))
    with pytest.raises(ProgramError, match=r"64 bytes, into .* declared as 32; reserve"):
        run_kernel(kernel_of([b.build()]), {"x": ones_and_more()})


def alone(make, slots=("x",), size=32):
    """Make a kernel of one vector core, of a function from its slots to its instructions."""
    b = ProgramBuilder(TOY)
    for instruction in make(*[b.slots("UB", size, name)[0] for name in slots]):
        b.add(instruction)
    return kernel_of([b.build()], tensors=(X, Y, H, H_OUT))


H = GmTensor("h", (4, 8), "float16", 2)
H_OUT = GmTensor("o", (4, 8), "float16", 2, "output")
FIRST = slice(0, 1), slice(0, 8)


@pytest.mark.parametrize("seed", range(12))
def test_cores_that_write_apart_are_those_that_the_definition_passes(seed):
    rng = np.random.default_rng(seed)
    begins = rng.permutation(8) if seed % 2 else rng.integers(0, 8, 8)
    tensor = GmTensor.of("z", (16, 5), "float16", "output")

    def covered(at):
        return range(2 * at, min(16, 2 * at + 2 + (seed % 3 == 2)))

    slices = [Gm(tensor, (slice(covered(at).start, covered(at).stop), slice(0, 5))) for at in begins]
    cores = rng.integers(0, 3, 8).tolist()
    touched = [(core, at, None, gm, "write") for at, (core, gm) in enumerate(zip(cores, slices, strict=True))]
    writers = [
        {core for core, at in zip(cores, begins, strict=True) if row in covered(at)} for row in range(16)
    ]
    assert apart(touched) == all(len(each) < 2 for each in writers)


def meet(first, second):
    """Return whether two uses of GM by different cores meet in an element that nothing orders."""
    kinds, marks = {first[4], second[4]}, []
    for each in (first, second):
        marks.append(np.zeros((4, 5), bool))
        marks[-1][each[3].index] = True
    return first[0] != second[0] and kinds not in ({"read"}, {"atomic"}) and (marks[0] & marks[1]).any()


def test_cores_that_meet_are_those_of_all_pairs():
    pick, tensor, outcomes = random.Random(0), GmTensor.of("z", (4, 5), "float32", "output"), set()
    work = [CoreWork(Core("vector", number), 0, None) for number in range(3)]
    for _ in range(300):
        watch, own = PhaseWatch(Phase("all", tuple(work)), None), []
        for at in range(pick.randrange(2, 5)):
            rows, columns = sorted(pick.sample(range(5), 2)), sorted(pick.sample(range(6), 2))
            place = Gm(tensor, (slice(*rows), slice(*columns)))
            own.append((pick.randrange(3), at, None, place, pick.choice(("read", "write", "atomic"))))
        watch.touched = {"z": own}
        wrong = any(meet(*pair) for pair in combinations(own, 2))
        outcomes.add(wrong)
        if not wrong:
            watch.check()
            continue
        with pytest.raises(ProgramError, match="they share elements") as refused:
            watch.check()
        # It names two that do.
        named = [own[int(at)] for at in re.findall(r"instruction (\d)", str(refused.value))]
        assert meet(*named)
    assert outcomes == {False, True}


def second_core(make):
    """Make a kernel of a right program, and after it another one on the same slots.

    Each begins with an instruction of its own, as the first one of a program is always looked at.
    """
    b = ProgramBuilder(TOY)
    slots = x, z = (*b.slots("UB", 32, "x"), *b.slots("UB", 32, "z"))
    right = [load(x, X, 0), Add(z, x, 8), store(Y, 0, x)]
    programs = (
        program_of([load(z, X, 0), *made], slots, dict(b.used_bytes), HAZARDS, {}, TOY)
        for made in (right, make(x, z))
    )
    return on_cores(*programs, tensors={"x": X, "y": Y, "h": H})


SECOND = {
    "reads before it writes": (lambda x, _: [store(Y, 1, x)], "read before anything has written it"),
    "other bytes": (lambda x, _: [load(x, X, 1), CopyUbToGm(row(Y, 1), x, 16)], "says bytes = 16"),
    "the same row": (lambda x, _: [load(x, X, 1), store(Y, 0, x)], "they share elements"),
    "another format": (
        lambda x, z: [CopyGmToUb(x, row(H, 1), 16, (8,)), Add(z, x, 8)],
        "says float32 = 4; .* has 2 bytes of an element",
    ),
}


@pytest.mark.parametrize(("make", "message"), SECOND.values(), ids=SECOND)
def test_what_one_core_passed_excuses_no_other(make, message):
    with pytest.raises(ProgramError, match=message):
        run_kernel(second_core(make), {"x": ones_and_more(), "h": ones_and_more()})


@pytest.mark.parametrize("index", [4, -1, slice(-1, None), slice(3, 5), slice(0, None, -1), (2, 0, 0)])
def test_a_slice_that_leaves_its_tensor_is_refused_behind_others_that_do_not(index):
    b = ProgramBuilder(TOY)
    [x] = b.slots("UB", 32, "x")
    for at in (0, 1, index):
        place = Gm(X, at if isinstance(at, tuple) else (at,))
        b.add(CopyGmToUb(x, place, 32, (8,)))
    b.add(store(Y, 0, x))
    with pytest.raises(ProgramError, match="indices"):
        run_kernel(on_cores(b.build()), {"x": ones_and_more()})


def test_cores_on_the_same_slots_share_what_passed(monkeypatch):
    looked_at = []
    run = CheckedMemory._run
    monkeypatch.setattr(
        CheckedMemory, "_run", lambda memory, at, *own: [looked_at.append(at), run(memory, at, *own)]
    )
    gm = {"x": ones_and_more(), "h": ones_and_more()}
    run_kernel(second_core(lambda x, z: [load(x, X, 1), Add(z, x, 8), store(Y, 1, x)]), gm)
    assert looked_at == [0, 1, 2, 3, 0]
    assert np.array_equal(gm["y"][:2], gm["x"][:2])


def on_cores(*programs, kind="vector", first=0, tensors=None):
    works = [
        CoreWork(Core(kind, first + at), at, lambda program=program: program)
        for at, program in enumerate(programs)
    ]
    return Kernel("handmade", (Phase("all", tuple(works)),), tensors or {"x": X, "y": Y}, MATH)


def copied(source, target, tensor=Y, *, atomic=False, read=X):
    """Return the program of a core that copies a row."""
    b = ProgramBuilder(TOY)
    (slot,) = b.slots("UB", 32, "row")
    b.add(load(slot, read, source))
    b.add(store(tensor, target, slot, atomic=atomic))
    return b.build()


def kernel_twice(kernel):
    [phase] = kernel.phases
    return replace(kernel, phases=(phase._replace(work=phase.work * 2),))


def of_another_program():
    b, other = ProgramBuilder(TOY), ProgramBuilder(TOY)
    b.slots("UB", 32, "own")
    b.add(load(other.slots("UB", 32, "theirs")[0], X, 0))
    return kernel_of([b.build()])


def cube_of(width, dtype, buffers=("L0A", "L0B", "L0C"), a=None):
    """Multiply two tiles, of float16 if nobody says `a`, by what claims another format, or lies elsewhere."""
    a = a or A
    b = ProgramBuilder(TOY)
    l1 = b.slots("L1", 512, "a")[0]
    l0a, l0b, l0c = (
        b.slots(buffer, size, "c")[0] for buffer, size in zip(buffers, (512, 512, 1024), strict=True)
    )
    square = Submatrix(0, 16, 0, 16, False, width)
    b.add(CopyGmToL1.of(l1, Gm(a, ())))
    b.add(LoadL0A(l0a, l1, square))
    b.add(LoadL0B(l0b, l1, square))
    b.add(Mmad(l0c, l0a, l0b, 16, 16, 16, dtype, True))
    return Kernel("cube", (Phase("all", (CoreWork(Core("cube", 0), 0, b.build),)),), {"a": a}, MATH)


A, A8 = GmTensor("a", (16, 16), "float16", 2), GmTensor("a", (16, 16), "int8", 1)
WRONG = {
    "a slot of one byte": (
        lambda: alone(lambda x: [CopyGmToUb.of(x, Gm(X, (slice(0, 2),)))], size=1),
        r"instruction 0 \(CopyGmToUb\) puts a tile of \(2, 8\), 64 bytes, into UB:x.*declared as 32; reserve",
    ),
    "a copy that says fewer bytes": (
        lambda: alone(lambda x: [CopyGmToUb(x, Gm(X, (0,)), 8, (8,))]),
        r"0 \(CopyGmToUb\) says bytes = 8; x\[0\] has 32; say 32, as CopyGmToUb.of does",
    ),
    "a store that says fewer bytes": (
        lambda: alone(lambda x: [load(x, X, 0), CopyUbToGm(row(Y, 0), x, 4)]),
        r"instruction 1 \(CopyUbToGm\) says bytes = 4; y\[0\] has 32",
    ),
    "an addition of one element": (
        lambda: alone(lambda x, y: [load(x, X, 0), load(y, X, 1), Add(x, y, 1)], "xy"),
        r"2 \(Add\) says elements = 1; UB:x.* has 8 elements; say 8",
    ),
    "a cast of a tile's bytes": (
        lambda: alone(lambda x: [load(x, X, 0), Cast(x, x, "float16", 8, 32)]),
        r"1 \(Cast\) says source_bytes = 32; .* has 4 bytes of an element",
    ),
    "a sum of halves": (
        lambda: alone(lambda x, y: [*(CopyGmToUb.of(z, Gm(H, (0,))) for z in (x, y)), Add(x, y, 8)], "xy"),
        r"2 \(Add\) says float32 = 4; UB:x.* has 2 bytes of an element",
    ),
    "lanes of another format": (
        lambda: alone(
            lambda x, y: [
                Fill(x, (1, 64), 256),
                CopyGmToUb.of(y, Gm(H, (slice(0, 1),))),
                AddLanes(x, y, 1, 8, 4),
            ],
            "xy",
            size=256,
        ),
        r"2 \(AddLanes\) says itemsize = 4; UB:y.* has 2",
    ),
    "zeros of no format": (
        lambda: alone(lambda x: [Fill(x, (8,), 20)]),
        r"0 \(Fill\) says 20 bytes of a tile of \(8,\), which are no whole number for each element",
    ),
    "a product of another format": (
        lambda: cube_of(2, "float32"),
        r"3 \(Mmad\) says compute_dtype float32 = 4; L0A.* has 2 bytes of an element",
    ),
    "a product of bytes summed as floats": (
        lambda: cube_of(1, "int8", a=A8),
        r"Mmad of int8 in a kernel whose sums are float32; give the kernel MathSettings\(IntegerSum\(\)\)",
    ),
    "a store that would convert": (
        lambda: alone(lambda x: [CopyGmToUb.of(x, Gm(H, (0,))), CopyUbToGm.of(row(Y, 0), x)]),
        r"1 \(CopyUbToGm\) says y of float32 = 4; UB:x.* has 2 bytes .*; name the format .*, or cast it",
    ),
    "a store that would convert what is selected": (
        lambda: alone(
            lambda x, y: [
                load(x, X, 0),
                Compare(y, x, None, "GT", 8, scalar=3),
                Select(x, y, x, None, 8),
                CopyUbToGm.of(row(H_OUT, 0), x),
            ],
            "xy",
        ),
        r"3 \(CopyUbToGm\) says o of float16 = 2; UB:x.* has 4",
    ),
    "a function without a name": (
        lambda: alone(lambda x: [load(x, X, 0), Unary(x, x, "Tanh", 8)]),
        r"^phase .*, vector core 0: instruction 1 \(Unary\): nothing is done by the name of 'Tanh'; "
        r"say one of Adds, .*Relu; of others derive an instruction of your own from `Command`",
    ),
    "a format without a name": (
        lambda: alone(lambda x: [load(x, X, 0), Cast(x, x, "flaot16", 8, 4)]),
        r"instruction 1 \(Cast\): dtype: 'flaot16' is not a supported format; did you mean 'float16'\?",
    ),
    "a reduction without a name": (
        lambda: alone(lambda x: [load(x, X, 0), ReduceRows(x, x, None, "Mean", 1, 8)]),
        "by the name of 'Mean'; say one of Sum, Max, Min",
    ),
    "an index that is no tuple": (
        lambda: alone(lambda x: [CopyGmToUb.of(x, Gm(X, 2))]),
        r"a slice of x has the index 2; write \(2,\)",
    ),
    "a tuple of slots": (
        lambda: alone(lambda x: [CopyGmToUb.of((x,), Gm(X, (0,)))]),
        r"0 \(CopyGmToUb\) has \(UB:x.*,\) for a slot; .*\[tile\] = b.slots",
    ),
    "a load of another format": (
        lambda: cube_of(4, "float16"),
        r"1 \(LoadL0A\) says tile_read.itemsize = 4; L1:a.* has 2",
    ),
    "a tile in another buffer": (
        lambda: cube_of(2, "float16", ("L0B", "L0A", "L0C")),
        r"1 \(LoadL0A\) has dst = L0B.*it works on L0A; reserve it in L0A",
    ),
    "a slot of another program": (of_another_program, r"uses UB:theirs.*, a slot of another program"),
    "a slice beyond its tensor": (
        lambda: alone(lambda x: [CopyGmToUb(x, Gm(X, (slice(3, 5),)), 64, (16,))], size=64),
        r"x\[3:5\] leaves x of shape \(4, 8\)",
    ),
    "a row beyond its tensor": (lambda: alone(lambda x: [load(x, X, 4)]), r"x\[4\] leaves x"),
    "an input that is written": (
        lambda: kernel_of([copied(0, 1, X)]),
        r"1 \(CopyUbToGm\) writes x\[1\], an input; give its tensor the role",
    ),
    "a tensor that the kernel lacks": (
        lambda: kernel_of([copied(0, 0)], tensors=(X,)),
        r"moves y of 128 bytes; the kernel has no such tensor; add it",
    ),
    "two cores that write one row": (
        lambda: kernel_of([copied(0, 0), copied(1, 0)]),
        r"of vector core 0 writes y\[0\], and instruction 1 .*vector core 1 writes y\[0\]: they share",
    ),
    "a core that writes what another adds to": (
        lambda: kernel_of([copied(0, 0, atomic=True), copied(1, 0)]),
        r"vector core 0 adds to y\[0\], and .* vector core 1 writes y\[0\]",
    ),
    "a core that reads what another writes": (
        lambda: kernel_of([copied(0, 0), copied(0, 1, read=Y)]),
        r"core 0 writes y\[0\], and instruction 0 \(CopyGmToUb\) of vector core 1 reads y\[0\]",
    ),
    "a core that reads what a later one writes": (
        lambda: kernel_of([copied(0, 1, read=Y), copied(0, 0)]),
        r"core 1 writes y\[0\], and instruction 0 \(CopyGmToUb\) of vector core 0 reads y\[0\]",
    ),
    "more cores than there are": (
        lambda: on_cores(copied(0, 0), first=TOY.cores.vector),
        rf"runs on vector core {TOY.cores.vector}; toy_split has .* {TOY.cores.vector} vector cores",
    ),
    "a core of a negative number": (lambda: on_cores(copied(0, 0), first=-1), "runs on vector core -1"),
    "a core of no kind": (
        lambda: on_cores(copied(0, 0), kind="aiv"),
        r'runs on aiv core 0; .*: kinds are "cube" \(AIC, also .*\) and "vector" \(AIV\)$',
    ),
    "two programs on one core": (
        lambda: kernel_twice(on_cores(copied(0, 0))),
        "two programs of phase all run on",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_checked_run_refuses(name):
    make, words = WRONG[name]
    with pytest.raises(ProgramError, match=words):
        run_kernel(make(), {"x": ones_and_more(), "h": ones_and_more(), "a": np.ones((16, 16), np.float32)})


GIVEN = {
    "nothing": ({"z": ones_and_more()}, r"takes x of shape \(4, 8\) in float32; given are only: z"),
    "another size": (
        {"x": np.ones((4, 4), np.float32)},
        r"takes x of shape \(4, 8\) .*; given is one of shape \(4, 4\), 16 elements, not 32",
    ),
    "float64": ({"x": np.ones((4, 8))}, "in float32; given is float64, of which that holds not all values"),
    "bits of scales": ({"x": np.ones((4, 8), np.uint64)}, "given is uint64"),
}
WHOLE = {"int8": "-128 to 127", "int32": "-2,147,483,648 to 2,147,483,647"}
# Beside each a value that no element has, and one that many have.
BETWEEN = {
    "float16": (0.1, [0.5, 65504, np.inf, np.nan, -0.0]),
    "bfloat16": (257, [256, np.inf]),
    "float8_e4m3fn": (17, [18, 448, np.nan]),
    "hifloat8": (17, [20, 32768]),
    "int8": (128, [127, -128]),
    "float32": (None, [0.1]),
    "int32": (0.1, [1 << 30, -(1 << 31)]),
}


@pytest.mark.parametrize("name", GIVEN)
def test_a_checked_run_looks_at_what_it_is_given(name):
    given, words = GIVEN[name]
    with pytest.raises(ProgramError, match=words):
        run_kernel(kernel_of([copied(0, 0)]), given)


@pytest.mark.parametrize("dtype", BETWEEN)
def test_a_checked_run_takes_values_of_a_format_alone(dtype):
    wrong, right = BETWEEN[dtype]
    tensor, values = GmTensor.of("h", (2, 8), dtype), np.zeros((2, 8), np.float32)
    kernel = kernel_of([copied(0, 0)], tensors=(X, Y, tensor))
    values[1, : len(right)] = right
    run_kernel(kernel, {"x": ones_and_more(), "h": values})
    if wrong is not None:
        values[1, 7] = wrong
        words = rf"takes h of {dtype}; given is {float(wrong)} at \[1, 7\], which is no value of it; "
        words += rf"give whole numbers from {WHOLE[dtype]}$" if dtype in WHOLE else "round"
        with pytest.raises(ProgramError, match=words):
            run_kernel(kernel, {"x": ones_and_more(), "h": values})


def test_an_output_that_nothing_writes_is_refused():
    loads = alone(lambda x: [load(x, X, 0), load(x, Y, 0)])
    gm = {"x": ones_and_more(), "h": ones_and_more(), "o": ones_and_more()}
    with pytest.raises(ProgramError, match="handmade: nothing writes y; store a result there, or give it"):
        run_kernel(loads, gm)
    # A part is enough, in any phase, and what is given needs none.
    gm = {"x": ones_and_more(), "o": ones_and_more()}
    run_kernel(kernel_of([copied(0, 1)], [], tensors=(X, Y, H_OUT)), gm)
    assert gm["y"][1].tolist() == gm["x"][0].tolist()
    assert np.isnan(gm["y"][0]).all()


def test_a_run_takes_elements_of_a_narrower_type():
    gm = {"x": np.ones((4, 8), np.float16)}
    run_kernel(kernel_of([copied(0, 0)]), gm)
    assert gm["y"][0].tolist() == [1.0] * 8


def test_a_store_that_converts_rounds_to_its_tensor():
    gm = {"x": np.full((4, 8), 0.1, np.float32), "h": ones_and_more(), "y": ones_and_more()}
    run_kernel(alone(lambda x: [load(x, X, 0), CopyUbToGm(row(H_OUT, 0), x, 16, converts=True)]), gm)
    assert gm["o"][0].tolist() == [float(np.float16(0.1))] * 8


@pytest.mark.parametrize("first", ["slot_at", "slots"])
def test_slots_of_a_buffer_have_addresses_or_none(first):
    b = ProgramBuilder(TOY)
    takes = {"slot_at": lambda: b.slot_at("UB", 64, 32, "x"), "slots": lambda: b.slots("UB", 32, "y")}
    takes.pop(first)()
    [other] = takes.values()
    with pytest.raises(ProgramError, match="UB has slots with addresses and without"):
        other()


@pytest.mark.parametrize("engine", ["simpy", "compiled"])
def test_both_engines_refuse_cores_that_a_product_lacks(engine):
    with pytest.raises(ProgramError, match="numbered from 0: deal the work to fewer cores"):
        time_kernel(on_cores(copied(0, 0), first=TOY.cores.vector), TOY, engine=engine)


def test_who_asks_for_it_runs_a_wrong_program():
    gm = {"x": ones_and_more()}
    run_kernel(alone(lambda x: [load(x, X, 0), Add(x, x, 1), store(Y, 0, x)]), gm, checked=False)
    assert gm["y"][0].tolist() == (2 * gm["x"][0]).tolist()


@pytest.mark.parametrize(
    ("index", "text"),
    [
        ((2,), "2"),
        ((slice(1, 3),), "1:3"),
        ((slice(None), slice(0, 8, 3)), ":, 0:8:3"),
        ((slice(1, 2), 3), "1:2, 3"),
        ((slice(0, 4), slice(2, 6)), "0:4, 2:6"),
        ((), ""),
    ],
)
def test_sizes_of_a_slice_follow_from_its_index(index, text):
    gm, taken = Gm(X, index), np.arange(32).reshape(4, 8)[index]
    assert (gm.shape, gm.size_bytes, gm.text) == (taken.shape, 4 * taken.size, f"x[{text}]")
    # Elements are numbered as they lie: a run ends where the next number is not the next one.
    assert gm.runs == 1 + np.count_nonzero(np.diff(taken.reshape(-1)) != 1)


@pytest.mark.parametrize("make", [through_one_slot, through_a_cast, overwritten_unread])
def test_honest_programs_pass_checked_runs(make):
    gm, held = {"x": ones_and_more()}, {"x": ones_and_more()}
    run_kernel(make(), gm)
    run_kernel(make(), held, order=random.Random(1).randrange(99))
    assert gm["y"].tobytes() == held["y"].tobytes()
    assert check_gm(make())["y"].tolist() == np.ones((4, 8), int).tolist()


def test_two_cores_that_write_one_element_are_noticed():
    programs = []
    for _ in range(2):
        b = ProgramBuilder(TOY)
        (slot,) = b.slots("UB", 32, "row")
        b.add(load(slot, X, 0))
        b.add(store(Y, 0, slot))
        programs.append(b.build())
    with pytest.raises(AssertionError, match="writes elements of y twice"):
        check_gm(kernel_of(programs))


# --- code that programs share
