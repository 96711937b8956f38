"""Do flags of a program's own order what they should, and is said what they miss, waste and hold up?"""

import itertools
import random
import runpy
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ascendsim import check_flags, load_profile
from ascendsim.errors import ConfigError, ProgramError
from ascendsim.functional import run_kernel
from ascendsim.instructions.flags import (
    BarrierAll,
    CrossCoreSetFlag,
    CrossCoreWaitFlag,
    PipeBarrier,
    SetFlag,
    WaitFlag,
)
from ascendsim.instructions.vector import Add, CopyGmToUb, CopyUbToGm, Fill
from ascendsim.program.flags import meetings, signal_of
from ascendsim.program.instruction import Cost
from ascendsim.program.kernel import Core, CoreWork, Kernel, Phase
from ascendsim.program.nest import Nest
from ascendsim.program.places import Gm, GmTensor
from ascendsim.program.program import ProgramBuilder, program_of
from ascendsim.program.races import clocks, first_race, needed, race, unordered
from ascendsim.program.waits import HAZARDS
from ascendsim.timing.kernel import measure_kernel, time_kernel
from ascendsim.timing.l2 import L2_STARTS
from tests.helpers.oracles_timing import unfolded_spans
from tests.program.test_functional import MATH, TOY

EXAMPLE = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "11_flags_of_your_own.py"))
X, Y = EXAMPLE["X"], EXAMPLE["Y"]
WORK = GmTensor.of("t", (8,), "float32", "workspace")
VARIANTS = {
    "right": {},
    "no flags to V": {"forgets": ("MTE2", "V")},
    "no flags to MTE3": {"forgets": ("V", "MTE3")},
    "no flags back": {"forgets": ("MTE3", "MTE2")},
    "barriers": {"barrier": True},
}
RIGHT = ("right", "barriers")
FLAGS = SetFlag("V", "MTE3", 0), WaitFlag("V", "MTE3", 0)


def kernel_of(program, kind="vector"):
    work = CoreWork(Core(kind, 0), 0, lambda: program, program.cores - 1)
    return Kernel("flags", (Phase("all", (work,)),), {"x": X, "y": Y}, MATH)


def rows():
    return np.random.default_rng(0).standard_normal(X.shape, np.float32)


def outcome(program, seed):
    """Return the bits that an order makes; None where something is read that nobody has written."""
    try:
        return made(program, order=seed, checked=False)
    except ProgramError:
        return None


def made(program, **how):
    gm = {"x": rows()}
    run_kernel(kernel_of(program), gm, **how)
    return gm["y"].tobytes()


def built(instructions):
    b = ProgramBuilder(TOY)
    for each in instructions:
        b.add(each)
    return b.build()


# --- the definition: what is done before what, as the closure of all that orders two instructions


def ordered(program):
    """Return all pairs (i, j): the result of i is there before j starts."""
    instructions, pipes = program.instructions, program.pipes
    count = range(len(program))
    joined = np.zeros((len(program), len(program)), bool)

    def join(first, second):
        """All up to `first` on its pipe is done before `second`, and what follows it on its pipe, starts."""
        for i in count[: first + 1]:
            for j in count[second:]:
                joined[i, j] |= pipes[i] == pipes[first] and pipes[j] == pipes[second]

    for wait, sets in meetings(instructions, program.posts):
        for at in sets:
            join(at, wait)
    for at in count:
        before = [i for i in count[:at] if pipes[i] == pipes[at]]
        if instructions[at].drains and before:
            join(before[-1], at)
        signal = signal_of(instructions[at])
        if signal is not None and signal.holds:
            own = [i for i in count if program.core_of(i) == program.core_of(at)]
            # On its own pipe order is enough: what is done before it starts is done before all that follows.
            for j in [j for j in own if j > at and pipes[j] != pipes[at]]:
                join(at, j)
            for i in [i for i in own if i < at and signal.does == "all"]:
                join(i, at)
    while True:
        more = joined | (joined.astype(int) @ joined.astype(int) > 0)
        if (more == joined).all():
            return joined
        joined = more


def drawn(seed):
    """Draw a program of one vector core, and flags that order some of it."""
    rng = random.Random(seed)
    b = ProgramBuilder(TOY)
    slots = b.slots("UB", 32, "row", 3)
    whole = Gm(WORK, ())
    instructions = [Fill(slot, (8,), 32) for slot in slots]
    event = 0
    for _ in range(rng.randrange(4, 18)):
        slot, other = rng.choices(slots, k=2)
        kind = rng.randrange(8)
        if kind < 3:
            instructions += [CopyGmToUb.of(slot, whole), Add(slot, other, 8), CopyUbToGm.of(whole, slot)][
                kind : kind + 1
            ]
        elif kind == 3:
            instructions.append(PipeBarrier(rng.choice(["V", "MTE2", "MTE3"])))
        elif kind == 4 and rng.random() < 0.3:
            instructions.append(BarrierAll(rng.choice(["V", "MTE2", "MTE3"])))
        else:
            src, dst = rng.sample(["V", "MTE2", "MTE3"], 2)
            # Now and then an event is raised again.
            event += rng.random() < 0.8
            instructions.append(SetFlag(src, dst, event))
            instructions.append(Fill(slot, (8,), 32))
            instructions.append(WaitFlag(src, dst, event))
    instructions += [SetFlag("V", "MTE3", 99), WaitFlag("V", "MTE3", 99)]
    return program_of(instructions, slots, {"UB": 96}, HAZARDS, {}, TOY)


@pytest.mark.parametrize("seed", range(40))
def test_clocks_are_the_closure_of_what_orders_instructions(seed):
    program = drawn(seed)
    known, pipes, joined = clocks(program), program.pipes, ordered(program)
    for i, j in np.ndindex(joined.shape):
        assert (known[j].get(pipes[i], -1) >= i) == joined[i, j], (i, j)


# Most of these programs race.
@pytest.mark.filterwarnings("ignore:cycles of a race")
@pytest.mark.parametrize("seed", range(40))
def test_both_engines_keep_what_the_flags_order(seed):
    program = drawn(seed)
    work = CoreWork(Core("vector", 0), 0, lambda: program)
    kernel = Kernel("drawn", (Phase("all", (work,)),), {WORK.name: WORK}, MATH)
    spans = [unfolded_spans(time_kernel(kernel, TOY, engine=engine)) for engine in ("simpy", "compiled")]
    assert spans[0] == spans[1]
    [(_, start, _, done)] = spans[0].values()
    for i, j in zip(*np.nonzero(ordered(program)), strict=True):
        assert done[i] <= start[j], (i, j)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_race_is_told_exactly_where_some_order_goes_wrong(name):
    program = EXAMPLE["doubled"](TOY_LARGE, **VARIANTS[name])
    races = unordered(program)
    assert (races == []) == (name in RIGHT)
    results = {outcome(program, seed) for seed in range(30)}
    assert (results == {(2 * rows()).tobytes()}) == (name in RIGHT)


TOY_LARGE = EXAMPLE["load_profile"]("910B2")


@pytest.mark.parametrize("name", [name for name in VARIANTS if name not in RIGHT])
def test_a_checked_run_refuses_a_race(name):
    program = EXAMPLE["doubled"](TOY_LARGE, **VARIANTS[name])
    with pytest.raises(ProgramError, match=r"ordered by nothing; .*`check_flags` shows all"):
        made(program)


@pytest.mark.parametrize("engine", ["simpy", "compiled"])
@pytest.mark.parametrize("name", VARIANTS)
def test_who_times_a_race_is_told(name, engine):
    program = EXAMPLE["doubled"](TOY_LARGE, **VARIANTS[name])
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        measure_kernel(kernel_of(program), TOY_LARGE, engine=engine)
    told = [f"cycles of a race: phase all: {race(pair, program)}" for pair in unordered(program)[:1]]
    assert [str(each.message).partition(" (`check_flags`")[0] for each in said] == told


def test_the_closest_pair_is_named_first():
    """Without flags back, loads overwrite slots too early; without a flag to a store, that is nearer."""
    program = EXAMPLE["doubled"](TOY_LARGE, forgets=("MTE3", "MTE2"))
    made = [each for each in program.instructions if each != SetFlag("V", "MTE3", 1)]
    made = [each for each in made if each != WaitFlag("V", "MTE3", 1)]
    racing = program_of(made, program.slots[: program.tile_slots], {}, HAZARDS, {}, TOY_LARGE)
    names = [type(each).__name__ for each in made]
    # The second Add, and the store behind it; the loads that overwrite the first slot come before them.
    add = [at for at, name in enumerate(names) if name == "Add"][1]
    assert names[add + 1] == "CopyUbToGm"
    assert unordered(racing)[0][:2] == (add, add + 1)
    apart = [second - first for first, second, *_ in unordered(racing)]
    assert apart == sorted(apart)
    assert apart[-1] > 1


def test_a_ring_of_too_few_slots_is_told():
    def program(copies):
        b = ProgramBuilder(TOY)
        ring, line = b.ring("UB", 32, "row", copies), Gm(GmTensor.of("t", (8,), "float32"), (slice(0, 8),))
        tiles = [ring.next() for _ in range(3)]
        for tile in tiles:
            b.add(CopyGmToUb.of(tile, line))
        for tile in tiles[:2]:
            b.add(Add(tiles[2], tile, 8))
        return b.build()

    assert check_flags(program(3), TOY).unread == ()
    found = check_flags(program(2), TOY)
    assert found.unread == (
        "instruction 2 (CopyGmToUb on MTE2) overwrites UB:row[0](32 B) before anything has read what "
        "instruction 0 (CopyGmToUb on MTE2) wrote; give its ring another slot, or take that out",
    )
    assert f"\nunread: {found.unread[0]}\n" in str(found)


def test_the_two_instructions_and_their_tile_are_named():
    found = check_flags(EXAMPLE["doubled"](TOY_LARGE, forgets=("V", "MTE3")), TOY_LARGE)
    assert found.races[0] == (
        "instruction 6 (Add on V) writes UB:row[0](8192 B), and instruction 7 (CopyUbToGm on MTE3) reads it, "
        "ordered by nothing; set a flag (V, MTE3) between them, and wait for it"
    )


@pytest.mark.filterwarnings("ignore:cycles of a race")
@pytest.mark.parametrize("name", VARIANTS)
def test_what_is_superfluous_can_be_left_out_and_saves_its_cycles(name):
    program = EXAMPLE["doubled"](TOY_LARGE, **VARIANTS[name])
    found = check_flags(program, TOY_LARGE)
    gone = {at for own in found.superfluous for place in own.places for at in place}
    kept = [at for at in range(len(program)) if at not in gone]
    own = program.slots[: program.tile_slots], program.buffer_bytes, HAZARDS, {}, TOY_LARGE
    lean = program_of([program.instructions[at] for at in kept], *own)
    assert {(kept[first], kept[second]) for first, second, *_ in unordered(lean)} <= {
        (first, second) for first, second, *_ in unordered(program)
    }
    both = [measure_kernel(kernel_of(of), TOY_LARGE).cycles for of in (program, lean)]
    assert both[0] - both[1] == found.cycles - found.lean_cycles >= 0
    # Nothing more can go.
    assert sum(len(own.places) for own in check_flags(lean, TOY_LARGE).superfluous) == 0


def test_a_superfluous_barrier_is_told_with_what_it_costs():
    found = check_flags(EXAMPLE["doubled"](TOY_LARGE, barrier=True), TOY_LARGE)
    [barrier] = [own for own in found.superfluous if own.what.startswith("BarrierAll")]
    plain = check_flags(EXAMPLE["doubled"](TOY_LARGE), TOY_LARGE)
    assert len(barrier.places) == barrier.of == 4
    assert barrier.cycles == found.cycles - plain.cycles > 100
    assert f"superfluous: all 4 BarrierAll of V (at 6, 16, 26, 36): {barrier.cycles} cycles" in str(found)


def test_a_flag_that_is_needed_is_not_superfluous_if_it_is_the_only_one():
    """Without it the program has none, and its tiles would order it."""
    b = ProgramBuilder(TOY)
    (slot,) = b.slots("UB", 32, "row")
    line = Gm(GmTensor.of("t", (8,), "float32", "output"), (slice(0, 8),))
    flag = SetFlag("V", "MTE3", 0), WaitFlag("V", "MTE3", 0)
    for each in (Fill(slot, (8,), 32), *flag, CopyUbToGm.of(line, slot)):
        b.add(each)
    found = check_flags(b.build(), TOY)
    assert (found.races, found.superfluous, found.lean_cycles) == ((), (), found.cycles)
    assert (found.tried, found.syncs) == (1, 1)


def test_nothing_is_superfluous_while_there_are_races():
    found = check_flags(EXAMPLE["doubled"](TOY_LARGE, barrier=True, forgets=("V", "MTE3")), TOY_LARGE)
    assert found.races
    assert (found.superfluous, found.tried, found.lean_cycles) == ((), 0, found.cycles)
    assert "while there are races nothing is called superfluous" in str(found)


def test_what_would_cost_cycles_to_leave_out_is_not_superfluous(monkeypatch):
    """As if each instruction more saved ten cycles."""
    monkeypatch.setattr("ascendsim.ops.checks._program_cycles", lambda program, *_: 9999 - 10 * len(program))
    found = check_flags(EXAMPLE["doubled"](TOY_LARGE, barrier=True), TOY_LARGE)
    assert (found.superfluous, found.lean_cycles, found.tried) == ((), found.cycles, found.syncs)


def test_a_program_that_forgets_all_flags_is_said_to_race_on_a_device():
    b = ProgramBuilder(TOY_LARGE)
    b.ring("UB", 8192, "row", 2)
    for each in EXAMPLE["doubled"](TOY_LARGE).instructions:
        if signal_of(each) is None:
            b.add(each)
    found = check_flags(b.build(), TOY_LARGE)
    words = str(found)
    assert (found.flagged, found.syncs, found.cycles) == (False, 0, found.slot_cycles)
    assert words.startswith("the program has no flags and is ordered by its tiles here; on a device")
    assert f"{len(found.races)} pairs are unordered\nrace: instruction 0 (CopyGmToUb on MTE2) writes" in words
    assert "no race" not in words


def test_the_cycles_are_those_of_measure_kernel_without_the_entry():
    program = EXAMPLE["doubled"](TOY_LARGE)
    found = check_flags(program, "910B2")
    assert measure_kernel(kernel_of(program), TOY_LARGE).cycles == found.cycles + found.entry_cycles
    assert f"`measure_kernel` counts the entry too, {found.entry_cycles:,} cycles" in str(found)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("a program", TOY), "program is 'a program'; it must be what ProgramBuilder.build"),
        ((built([PipeBarrier("V")]), TOY, "both"), "core is 'both'; it must be cube or vector"),
    ],
)
def test_odd_arguments_are_refused(given, words):
    with pytest.raises(ConfigError, match=words):
        check_flags(*given)


def test_a_program_of_flags_alone_is_superfluous_whole():
    found = check_flags(built([SetFlag("V", "MTE3", 0), WaitFlag("V", "MTE3", 0)]), TOY_LARGE)
    assert (len(found.superfluous), found.lean_cycles) == (1, 0)


def test_a_program_without_tiles_may_race_by_its_flags():
    # Raised again before anybody is known to have taken it.
    twice = [SetFlag("V", "MTE3", 0), WaitFlag("V", "MTE3", 0)] * 2
    program = built(twice)
    assert program.own_slots == 0
    assert [pair[:2] for pair in unordered(program)] == [(1, 2)]
    assert "check_flags" in first_race(program)
    back = [SetFlag("MTE3", "V", 1), WaitFlag("MTE3", "V", 1)]
    assert first_race(built([*twice[:2], *back, *twice[:2]])) == ""


def test_a_barrier_knows_of_the_first_instruction_that_it_is_done():
    b = ProgramBuilder(TOY)
    (slot,) = b.slots("UB", 32, "row")
    for each in (Fill(slot, (8,), 32), PipeBarrier("V"), Add(slot, slot, 8), *FLAGS):
        b.add(each)
    found = clocks(b.build())
    assert [clock.get("V", -1) for clock in found[:3]] == [-1, 0, 0]


@pytest.mark.parametrize("engine", ["compiled", "simpy"])
@pytest.mark.parametrize("l2_start", L2_STARTS)
def test_a_kernel_without_tensors_is_timed(l2_start, engine):
    # a barrier is issued in one cycle and takes another
    kernel = replace(kernel_of(built([PipeBarrier("V")])), tensors={})
    assert measure_kernel(kernel, TOY, l2_start=l2_start, engine=engine).cycles == 2


def test_a_deadlock_is_told_with_its_circle():
    with pytest.raises(ProgramError) as refused:
        EXAMPLE["doubled"](TOY_LARGE, begins=False)
    words = str(refused.value)
    assert words.startswith(
        "deadlock: instruction 0 (WaitFlag(MTE3, MTE2, 0) on MTE2) <- instruction 8 (SetFlag"
    )
    for at, name in ((6, "WaitFlag(V, MTE3, 0)"), (3, "WaitFlag(MTE2, V, 0)")):
        assert f"instruction {at} ({name}" in words


def test_flags_on_slots_alone_leave_a_program_as_it_was():
    """A program without flags of its own has the waits of its slots."""
    program = EXAMPLE["doubled"](TOY_LARGE)
    plain = [each for each in program.instructions if signal_of(each) is None]
    b = ProgramBuilder(TOY_LARGE)
    b.ring("UB", 8192, "row", 2)
    for each in plain:
        b.add(each)
    assert b.build().own_slots < 0
    assert check_flags(program, TOY_LARGE).slot_cycles == (
        measure_kernel(kernel_of(b.build()), TOY_LARGE).cycles - TOY_LARGE.scalar.start_cycles
    )


def test_vector_instructions_of_one_pipe_need_a_barrier():
    b = ProgramBuilder(TOY)
    (slot,) = b.slots("UB", 32, "row")
    for each in (Fill(slot, (8,), 32), Add(slot, slot, 8), SetFlag("V", "MTE3", 0), WaitFlag("V", "MTE3", 0)):
        b.add(each)
    [race] = check_flags(b.build(), TOY).races
    assert race.endswith("ordered by nothing; put a PipeBarrier of V between them")
    (pair,) = [pair for pair in needed(b.build()) if pair.slot]
    assert pair[:2] == (0, 1)


@pytest.mark.parametrize(
    ("instructions", "words"),
    [
        ([SetFlag("V", "MTE3", 8)], "has event 8; toy_split has 0 to 7"),
        ([SetFlag("V", "V", 0)], r"between V and V, which .* no flags for; inside a pipe take a PipeBarrier"),
        ([SetFlag("V", "FIX", 0)], "between V and FIX"),
        ([CrossCoreSetFlag("V", 16)], "has flag 16; toy_split has 0 to 15"),
        ([SetFlag("V", "MTE3", 0)], "raises a flag that nobody waits for"),
        ([WaitFlag("V", "MTE3", 0)], "deadlock: .* waits for a flag that nobody raises"),
        ([WaitFlag("V", "MTE3", 0), SetFlag("V", "MTE3", 0)], "which comes later in the program"),
    ],
)
def test_flags_that_cannot_be_are_refused(instructions, words):
    with pytest.raises(ProgramError, match=words):
        built(instructions)


def test_a_nest_has_no_flags_of_its_own():
    nest = Nest(TOY)
    nest.task(row=1)
    with pytest.raises(ProgramError, match="append a program with flags of its own to a ProgramBuilder"):
        nest.emit(lambda: SetFlag("V", "MTE3", 0))


def test_a_cube_core_and_its_vector_cores_wait_for_each_other():
    b = ProgramBuilder(TOY)
    b.add(PipeBarrier("M"))
    b.add(CrossCoreSetFlag("M", 3))
    for core in (1, 2):
        b.add(CrossCoreWaitFlag("V", 3), core)
        b.add(PipeBarrier("MTE2"), core)
        b.add(CrossCoreSetFlag("MTE2", 4), core)
    b.add(CrossCoreWaitFlag("MTE1", 4))
    b.add(PipeBarrier("M"))
    program = b.build()
    assert [(wait, sets) for wait, sets in meetings(program.instructions, program.posts)] == [
        (2, (1,)),
        (5, (1,)),
        (8, (4, 7)),
    ]
    kernel = kernel_of(program, "cube")
    spans = [unfolded_spans(time_kernel(kernel, TOY, engine=engine)) for engine in ("simpy", "compiled")]
    assert spans[0] == spans[1]
    joined, known = ordered(program), clocks(program)

    assert all((known[j].get(program.pipes[i], -1) >= i) == joined[i, j] for i, j in np.ndindex(joined.shape))
    assert joined[1, 3]  # MTE2 of a vector core goes on after its wait on V
    assert joined[4, 9]
    assert joined[7, 9]
    assert not joined[4, 6]


# --- data that goes through global memory


def through_gm(*flags, back=0, atomic=False, width=8):
    """Store t, load 8 elements of it from `back` on, and store again; with flags around the load."""
    b = ProgramBuilder(TOY)
    slot, other = b.slots("UB", 32, "row", 2)
    line = GmTensor.of("t", (4, width), "float32", "workspace")
    after, before = (
        [SetFlag("MTE3", "MTE2", 0), WaitFlag("MTE3", "MTE2", 0)],
        [SetFlag("MTE2", "MTE3", 1), WaitFlag("MTE2", "MTE3", 1)],
    )
    signals = {"after": after, "before": before}
    b.add(Fill(slot, (8,), 32))
    b.add(SetFlag("V", "MTE3", 7))
    b.add(WaitFlag("V", "MTE3", 7))
    b.add(CopyUbToGm(Gm(line, (0, slice(0, 8))), slot, 32, atomic))
    for each in signals["after"] if "after" in flags else ():
        b.add(each)
    # The same elements in another shape of the tensor.
    b.add(CopyGmToUb.of(other, Gm(GmTensor.of("t", (4 * width,), "float32"), (slice(back, back + 8),))))
    for each in signals["before"] if "before" in flags else ():
        b.add(each)
    b.add(CopyUbToGm(Gm(line, (0, slice(0, 8))), slot, 32, atomic))
    return b.build()


@pytest.mark.parametrize("atomic", [False, True])
@pytest.mark.parametrize(
    ("flags", "hazards"),
    [((), ["RAW", "WAR"]), (("after",), ["WAR"]), (("before",), ["RAW"]), (("after", "before"), [])],
)
def test_uses_of_one_slice_of_global_memory_need_an_order(flags, hazards, atomic):
    program = through_gm(*flags, atomic=atomic)
    assert [pair.hazard for pair in unordered(program)] == hazards
    found = check_flags(program, TOY)
    assert not [own for own in found.superfluous if "MTE2" in own.what]
    assert len(found.races) == len(hazards)
    assert all("MTE3) " in line and "t[0" in line for line in found.races)


@pytest.mark.parametrize(("back", "races"), [(0, 2), (7, 2), (8, 0), (16, 0)])
def test_slices_that_share_no_element_need_no_order(back, races):
    assert len(unordered(through_gm(back=back, width=16))) == races
    lean = check_flags(through_gm("after", "before", back=back, width=16), TOY)
    assert len(lean.superfluous) == (0 if races else 2)


def test_a_checked_run_refuses_a_load_that_does_not_wait_for_its_store():
    program = through_gm("before")
    work = CoreWork(Core("vector", 0), 0, lambda: program)
    kernel = Kernel(
        "through", (Phase("all", (work,)),), {"t": GmTensor.of("t", (4, 8), "float32", "workspace")}, MATH
    )
    with pytest.raises(
        ProgramError, match=r"writes t\[0, 0:8\], and instruction 4 \(CopyGmToUb on MTE2\) reads t\[0:8\], "
    ):
        run_kernel(kernel, {})


@pytest.mark.parametrize("seed", range(40))
def test_races_through_global_memory_are_those_of_all_pairs(seed):
    """By definition: two uses that share an element, one of them no read and not both atomic."""
    rng = random.Random(seed)
    b = ProgramBuilder(TOY)
    (slot,) = b.slots("UB", 1024, "row")
    tensor = GmTensor.of("t", (4, 16), "float32", "workspace")
    b.add(Fill(slot, (8,), 32))
    for event in range(8):
        ends = [sorted(rng.sample(range(17), 2)) for _ in range(3)]
        row = rng.choice([slice(0, 4), slice(1, 3), slice(0, 4, 2), slice(1, 4, 2), 0, 3])
        gm = [Gm(tensor, (row, slice(*own, rng.choice([None, 2])))) for own in ends]
        b.add(CopyUbToGm(gm[0], slot, gm[0].size_bytes, rng.random() < 0.5))
        b.add(CopyGmToUb(slot, gm[1], gm[1].size_bytes, (8,)))
        if rng.random() < 0.3:
            src, dst = rng.sample(["MTE2", "MTE3"], 2)
            b.add(SetFlag(src, dst, event))
            b.add(WaitFlag(src, dst, event))
    program = b.build()
    marks, known = {}, clocks(program)
    for at, made in enumerate(program.instructions):
        if made.gm is not None:
            marks[at] = np.zeros(tensor.shape, bool)
            marks[at][made.gm.index] = True
    due = {
        (i, j)
        for i, j in itertools.combinations(marks, 2)
        if program.pipes[i] != program.pipes[j]
        and (marks[i] & marks[j]).any()
        and known[j].get(program.pipes[i], -1) < i
    }
    found = {pair[:2] for pair in unordered(program) if isinstance(pair.slot, Gm)}
    assert found <= due
    # The newest of its pipe and kind stands for those before it.
    latest = {
        (j, program.pipes[i], getattr(program.instructions[i], "atomic", None)): i for i, j in sorted(due)
    }
    assert {(i, j) for (j, *_), i in latest.items()} == found


@pytest.mark.parametrize("made", [SetFlag("V", "MTE3", 0), WaitFlag("V", "MTE3", 0), PipeBarrier("V")])
def test_a_flag_and_a_barrier_take_one_cycle_of_their_pipe(made):
    assert made.cost(load_profile("910B2")) == Cost(1)
