"""Hold what a user wrote against what is due: a schedule by the definition, flags by the order of tiles."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from ascendsim.errors import ConfigError, ProgramError, refusal, shown, whole
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.numerics.accumulation import AccumulationModel, MathSettings
from ascendsim.ops.lowering.call import GRADIENTS, INPUTS
from ascendsim.ops.lowering.kernels import lower
from ascendsim.ops.options.asked import planned_call
from ascendsim.ops.options.call import options_of
from ascendsim.ops.options.keywords import l2_begun
from ascendsim.ops.plan import Plan
from ascendsim.ops.reference.call import reference_gradients
from ascendsim.ops.running import name_of, run_graph
from ascendsim.ops.schedules.base import schedule_named
from ascendsim.profile import Profile, load_profile
from ascendsim.program.flags import meetings, signal_of
from ascendsim.program.instruction import shaped
from ascendsim.program.kernel import Core, CoreWork, Kernel, Phase
from ascendsim.program.places import HOME, Post
from ascendsim.program.program import NestProgram, Program, program_of
from ascendsim.program.races import race, unordered, unread
from ascendsim.timing.kernel import measure_kernel
from ascendsim.timing.l2 import WARM

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ascendsim.ops.problems.convolution import ConvProblem
    from ascendsim.program.instruction import Cost
    from ascendsim.timing.l2.account import Start

# Each order is a run, so nobody tries more of them than this; seeds are 32 bits wide.
MOST_ORDERS, MOST_SEED = 10_000, 2**32 - 1


@dataclass(frozen=True)
class ScheduleCheck:
    """The findings about a schedule that passed.

    gradient      the gradient that it makes
    plan          the plan it was run under
    orders        the orders of execution under which its bits were those of the definition
    instructions  of all cores
    cycles        of the cube clock; equal whether equal cores are timed as one or each by itself
    """

    gradient: str
    plan: Plan
    orders: tuple[str, ...]
    instructions: int
    cycles: int


@default_arithmetic
def check_schedule(
    schedule: str | type,
    problem: ConvProblem,
    dtype: str = "float16",
    cube_math_type: int = 0,
    *,
    orders: int = 3,
    seed: int = 0,
    **keywords: Any,
) -> ScheduleCheck:
    """Run a schedule on random tensors and hold it against the ordered definition, bit for bit.

    Problem  a small one: the definition is plain loops
    Orders   the program's, `orders` random legal ones, which show a missing wait, and that of arrival
    Seed     of the tensors
    Keywords as `CallOptions` describes them; unless said otherwise parts of grad_weight are added in one
             order, and L2 is warm
    Raises   ProgramError where bits differ, cores of equal signatures take unequal cycles, or instructions
             cost something else, or move other slices, than its nest says, or one `shape` stands for several
             costs; what `convolution_backward` raises
    """
    kind = schedule_named(schedule)
    if kind.makes not in GRADIENTS:
        raise ConfigError(f"check_schedule: {kind.name} makes {kind.makes}; it checks gradients alone")
    for name, number, most in (("orders", orders, MOST_ORDERS), ("seed", seed, MOST_SEED)):
        if (count := whole(number)) is None or not 0 <= count <= most:
            rule = f"a whole number from 0 to {most}"
            raise ConfigError(f"check_schedule: {name} is {shown(number)}; it must be {rule}")
    given = {"deterministic": True, "l2_start": WARM, **keywords, "schedule": {kind.makes: schedule}}
    options = options_of("check_schedule", given)
    mask = tuple(name == kind.makes for name in GRADIENTS)
    decision, call = planned_call(problem, options, dtype, cube_math_type, mask)
    shapes = problem.grad_output, problem.input, problem.weight
    grad_output, input, weight = _drawn(shapes, dtype, int(seed))
    asked = (mask[0], mask[1], False)
    due = reference_gradients(call, grad_output, input, weight, mask=asked)[kind.makes]
    tensors = dict(zip(INPUTS, (grad_output, input, weight), strict=True))
    graph = options.within(lower(call, decision.wanted))
    tried: list[str] = []
    for order in ("program", *range(int(orders)), "arrival"):
        made = run_graph(graph, options.profile, options.l2_start, tensors, order, timing=False)[1]
        _require_same(kind.name, kind.makes, made[kind.makes], due, name_of(order), tried)
        tried.append(name_of(order))
    [kernel] = [node for node in graph.kernels if node.name == kind.makes]
    works = [work for phase in kernel.phases for work in phase.work]
    programs = [work.build() for work in works]
    for program in programs:
        if isinstance(program, NestProgram):
            program.check_slices()
    _require_shapes(kind.name, programs, options.profile)
    count = sum(map(len, programs))
    begun = l2_begun(options.l2_start, graph.inputs, options.profile)
    cycles = _cycles(kind.name, kernel, options.profile, begun)
    return ScheduleCheck(kind.makes, call.plans[kind.makes], tuple(tried), count, cycles)


def _drawn(shapes: Sequence[tuple[int, ...]], dtype: str, seed: int) -> list[NDArray[np.float32]]:
    """Draw tensors on the grid of a format, of exponents so wide that the order of additions shows."""
    import numpy as np

    from ascendsim.numerics.casts import round_to

    rng = np.random.default_rng(seed)
    drawn = (np.ldexp(rng.standard_normal(shape), rng.integers(-6, 7, shape)) for shape in shapes)
    return [round_to(values.astype(np.float32), dtype) for values in drawn]


def _require_same(name: str, makes: str, got: Any, due: Any, order: str, tried: Sequence[str]) -> None:
    """Refuse other bits than the definition's."""
    import numpy as np

    differing = np.argwhere((got.view(np.uint32) != due.view(np.uint32)) & ~(np.isnan(got) & np.isnan(due)))
    if not len(differing):
        return
    first = tuple(int(place) for place in differing[0])
    if tried:
        why = "an instruction reads or writes what it does not name, so that nothing waits for it"
    else:
        why = "a product is left out, comes twice, or in another order than its order() says"
    raise ProgramError(
        f"schedule {name}: {makes} in {order} order differs from the definition in {len(differing):,} of "
        f"{got.size:,} elements, first at {first}: got {got[first]!s}, due {due[first]!s}; {why}"
    )


def _require_shapes(name: str, programs: Sequence[Program], profile: Profile) -> None:
    """Refuse instructions of equal shapes and unequal costs."""
    known: dict[Hashable, Cost] = {}
    for program in programs:
        for made in program.expanded():
            cost = made.cost(profile)
            first = known.setdefault((made.__class__, made.pipe, made.shape), cost)
            if cost != first:
                raise ProgramError(
                    f"schedule {name}: {shaped(made)} costs {first} and {cost}; instructions of equal shapes "
                    "must cost the same: let `shape` have all that `cost` depends on"
                )


def _cycles(name: str, kernel: Kernel, profile: Profile, l2_start: Start) -> int:
    """Return the cycles of a kernel, whose cores of equal signatures must take equal ones."""
    folded, plain = (
        measure_kernel(kernel, profile, folded=flag, l2_start=l2_start).cycles for flag in (True, False)
    )
    if folded != plain:
        raise ProgramError(
            f"schedule {name}: {folded:,} cycles if cores of equal signatures are timed as one, {plain:,} if "
            "each by itself; its signature() must distinguish them, or be left out"
        )
    return folded


# Of a long program the first ones are tried: each takes as long as the program has instructions.
MOST_TRIED = 200
# Races that are printed: those of a loop are alike.
SHOWN = 3


@dataclass(frozen=True)
class Superfluous:
    """Waits of one flag, or barriers of one pipe, without which nothing that must be ordered is unordered.

    what    the flag or the barrier, in words
    places  numbers of the instructions: of a barrier itself, of a flag each set and its wait
    of      how many there are in all
    cycles  that the program is shorter without these
    """

    what: str
    places: tuple[tuple[int, ...], ...]
    of: int
    cycles: int

    def __str__(self) -> str:
        many = f"all {self.of}" if len(self.places) == self.of else f"{len(self.places)} of {self.of}"
        places = ", ".join("-".join(map(str, own)) for own in self.places)
        return f"{many} {self.what} (at {places}): {self.cycles:,} cycles"


@dataclass(frozen=True)
class FlagCheck:
    """The findings about the flags of a program.

    flagged      whether it has flags, or a BarrierAll; one without is ordered by its tiles here
    races        pairs of instructions that share a tile, elements of GM or a flag, in no order, in words;
                 of a program without flags those that a device would not order
    unread       tiles that are overwritten before anything has read them, in words
    superfluous  what can be left out, all of it together; nothing while there are races
    cycles       of the program as it is, without launch and entry; `lean_cycles` without what is superfluous
    slot_cycles  without any flag or barrier, under the waits that follow from its slots
    entry_cycles those of the entry, which `measure_kernel` counts too
    tried, syncs how many of its waits and barriers were tried, and how many it has
    """

    flagged: bool
    races: tuple[str, ...]
    unread: tuple[str, ...]
    superfluous: tuple[Superfluous, ...]
    cycles: int
    lean_cycles: int
    slot_cycles: int
    entry_cycles: int
    tried: int
    syncs: int

    def __str__(self) -> str:
        said = [] if self.races or not self.flagged else ["no race"]
        if not self.flagged:
            count = len(self.races)
            many = "nothing is" if not count else "1 pair is" if count == 1 else f"{count} pairs are"
            said.append(
                "the program has no flags and is ordered by its tiles here; on a device, where flags alone "
                f"order pipes, {many} unordered"
            )
        for what, lines in (("race", self.races), ("unread", self.unread)):
            said += [f"{what}: {line}" for line in lines[:SHOWN]]
            if len(lines) > SHOWN:
                said.append(f"and {len(lines) - SHOWN} more")
        said += [f"superfluous: {own}" for own in self.superfluous]
        if self.races and self.syncs:
            said.append("while there are races nothing is called superfluous: what mends them may need it")
        elif self.tried < self.syncs:
            said.append(f"the first {self.tried} of {self.syncs} waits and barriers were tried")
        lean = "" if self.races else f"{self.lean_cycles:,} without what is superfluous, "
        said.append(
            f"{self.cycles:,} cycles; {lean}{self.slot_cycles:,} under the waits that follow from its slots; "
            f"without launch and entry (`measure_kernel` counts the entry too, {self.entry_cycles:,} cycles)"
        )
        said.append("what a flag costs on the device is not published: one cycle each here, and flag_cycles")
        return "\n".join(said)


def check_flags(
    program: Program, profile: Profile | str, core: str = "vector", *, most: int = MOST_TRIED
) -> FlagCheck:
    """Return the races of a program with flags, its superfluous flags and barriers, and their cost.

    program  as `ProgramBuilder.build()` returns it, which has refused a deadlock already
    profile  a loaded Profile, or the name of a product
    core     the kind of core that it runs on: "cube" or "vector"
    most     waits and barriers that are tried, where there is no race

    Races    are those under flags alone, also where the program has none
    Raises   ConfigError for another argument, ProgramError as the engines do
    """
    profile = profile if isinstance(profile, Profile) else load_profile(profile)
    if not isinstance(program, Program):
        raise refusal("check_flags: program", program, "what ProgramBuilder.build() returns")
    if not isinstance(core, str) or core not in ("cube", "vector"):
        raise refusal("check_flags: core", core, "cube or vector")
    if (count := whole(most)) is None or count < 0:
        raise refusal("check_flags: most", most, "a whole number from 0 on")
    flagged, syncs = program.own_slots >= 0, _syncs(program)
    strict = _without(program, (), profile, by_flags=True)
    races = unordered(strict)
    tried = [] if races else syncs[:count]

    def cycles_without(own: Iterable[tuple[int, ...]], by_flags: bool) -> int:
        return _program_cycles(_without(program, chain(*own), profile, by_flags), profile, core)

    cycles = cycles_without((), flagged)
    of = Counter(_what(program, own[-1]) for own in syncs)
    slower: set[str] = set()
    while True:
        found = _unneeded(program, profile, [own for own in tried if _what(program, own[-1]) not in slower])
        saved = {what: cycles - cycles_without(own, flagged) for what, own in found.items()}
        # To leave it out would cost cycles, so it stays, and what it orders for others stays with it.
        worse = {what for what, gain in saved.items() if gain < 0}
        if not worse:
            break
        slower |= worse
    return FlagCheck(
        flagged,
        tuple(race(pair, strict) for pair in races),
        tuple(unread(strict)),
        tuple(Superfluous(what, tuple(own), of[what], saved[what]) for what, own in found.items()),
        cycles,
        cycles_without(chain(*found.values()), flagged),
        cycles_without(syncs, by_flags=False),
        profile.scalar.start_cycles,
        len(tried),
        len(syncs),
    )


def _unneeded(
    program: Program, profile: Profile, syncs: Sequence[tuple[int, ...]]
) -> dict[str, list[tuple[int, ...]]]:
    """Return, by what they are, the waits and barriers without which nothing is unordered."""
    dropped: list[int] = []
    found: dict[str, list[tuple[int, ...]]] = {}
    for own in syncs:
        # The last flag, too, is tried under the order of flags: without any, tiles would hide its loss.
        if not unordered(_without(program, (*dropped, *own), profile, by_flags=True)):
            found.setdefault(_what(program, own[-1]), []).append(own)
            dropped += own
    return found


def _what(program: Program, at: int) -> str:
    """Name the flag or the pipes of a wait or a barrier; equal names are of lines of one loop."""
    made, signal = program.instructions[at], signal_of(program.instructions[at])
    if signal is None or signal.does == "all":
        return f"{type(made).__name__} of {program.pipes[at]}"
    *pipes, event = signal.key
    return f"waits for flag ({', '.join(pipes)}, {event}) on {program.pipes[at]}"


def _syncs(program: Program) -> list[tuple[int, ...]]:
    """Return the instructions of each barrier, and of each wait with its sets: barriers order most."""
    met = meetings(program.instructions, program.posts)
    barriers = [
        (at,)
        for at, made in enumerate(program.instructions)
        if (made.drains and not made.reads) or getattr(signal_of(made), "does", "") == "all"
    ]
    return barriers + sorted([(*each.sets, each.wait) for each in met])


def _without(program: Program, dropped: Iterable[int], profile: Profile, by_flags: bool) -> Program:
    """Return a program without some instructions; `by_flags`: ordered by flags, even if none is left."""
    own, gone = program.tile_slots, {*dropped}
    kept = [at for at in range(len(program)) if at not in gone]
    posts = {}
    for number, at in enumerate(kept):
        post = program.posts.get(at, HOME)
        reads, writes = (tuple([slot for slot in of if slot.index < own]) for of in post[1:])
        if post.core or reads or writes:
            posts[number] = Post(post.core, reads, writes)
    instructions = [program.instructions[at] for at in kept]
    of = program.slots[:own], program.buffer_bytes, program.hazards
    return program_of(instructions, *of, posts, profile, by_flags=by_flags)


def _program_cycles(program: Program, profile: Profile, core: str) -> int:
    """Return the cycles of a program on one core; one of flags alone has nothing left without them."""
    if not program.instructions:
        return 0
    tensors = {made.gm.tensor.name: made.gm.tensor for made in program.instructions if made.gm is not None}
    work = CoreWork(Core(core, 0), 0, lambda: program, program.cores - 1)
    math = MathSettings(AccumulationModel("exact"))
    kernel = Kernel("flags", (Phase("all", (work,)),), tensors, math)
    with warnings.catch_warnings(action="ignore"):  # the result lists races beside the cycles
        return measure_kernel(kernel, profile).cycles - profile.scalar.start_cycles
