"""Is synchronisation sufficient, and does the functional executor do what a program says?"""

import random

import numpy as np
import pytest

from ascendsim.errors import ProgramError
from ascendsim.functional import run_kernel
from ascendsim.instructions.vector import Add, Cast, CopyGmToUb, CopyUbToGm, Fill
from ascendsim.numerics.accumulation import AccumulationModel, IntegerSum, MathSettings
from ascendsim.program.instruction import HAZARDS
from ascendsim.program.kernel import Core, CoreWork, Kernel, Phase
from ascendsim.program.places import CoreMemory, Gm, GmTensor, Storage, aligned_empty
from ascendsim.program.program import ProgramBuilder
from ascendsim.timing.kernel import time_kernel
from ascendsim.timing.timeline import arrivals
from tests.helpers.oracles_timing import check_gm, strict
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
    """Round four rows to float16: each cast must wait for its load, each store for its cast."""
    b = ProgramBuilder(TOY, hazards)
    before, after = b.slots("UB", 32, "before", 4), b.slots("UB", 32, "after", 4)
    for index in range(4):
        b.add(load(before[index], X, index))
        b.add(Cast(after[index], before[index], "float16", 8, 4))
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
    assert sorted(order) == list(range(12))  # each of them once
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
    run_kernel(kernel_of([]), gm)
    assert np.isnan(gm["y"]).all()


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


# --- the strict memory itself can fail


class _Undeclared(CopyUbToGm):
    """A store that does not say what it reads."""

    __slots__ = ()
    reads = ()


class _Careless(Add):
    """An addition that does not say that it changes its first operand."""

    __slots__ = ()
    writes = ()


def test_the_strict_memory_notices_what_is_not_declared():
    b = ProgramBuilder(TOY)
    slot, other = b.slots("UB", 32, "row", 2)
    b.add(load(slot, X, 0))
    b.add(load(other, X, 1))
    b.add(_Careless(slot, other, 8))
    with pytest.raises(AssertionError, match="changes UB:row"):
        run_kernel(strict(kernel_of([b.build()]), 4), {"x": ones_and_more()})
    b = ProgramBuilder(TOY)
    (slot,) = b.slots("UB", 32, "row")
    b.add(load(slot, X, 0))
    b.add(_Undeclared(row(Y, 0), slot, 32))
    with pytest.raises(AssertionError, match="which it does not declare"):
        run_kernel(strict(kernel_of([b.build()]), 4), {"x": ones_and_more()})


def test_the_strict_memory_notices_a_tile_that_is_larger_than_its_slot():
    b = ProgramBuilder(TOY)
    (slot,) = b.slots("UB", 32, "row")
    b.add(CopyGmToUb(slot, Gm(X, (slice(0, 2),)), 64, (16,)))
    with pytest.raises(AssertionError, match="puts 64 bytes into"):
        run_kernel(strict(kernel_of([b.build()]), 4), {"x": ones_and_more()})


@pytest.mark.parametrize("make", [through_one_slot, through_a_cast, overwritten_unread])
def test_honest_programs_pass_the_strict_memory(make):
    gm, held = {"x": ones_and_more()}, {"x": ones_and_more()}
    run_kernel(make(), gm)
    run_kernel(strict(make(), 4), held, order=random.Random(1).randrange(99))
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
