"""Hold the flags of a program against the order that its tiles ask for, and say what they cost."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ascendsim.numerics.accumulation import AccumulationModel, MathSettings
from ascendsim.program.flags import meetings, signal_of
from ascendsim.program.kernel import Core, CoreWork, Kernel, Phase
from ascendsim.program.places import HOME, Post
from ascendsim.program.program import Program, program_of
from ascendsim.program.races import Pair, race, unordered
from ascendsim.timing.kernel import measure_kernel

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from ascendsim.profile import Profile

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

    races        pairs of instructions that share a tile, or a flag, and that nothing orders, in words
    superfluous  what can be left out, all of it together
    cycles       of the program as it is, without launch and entry; `lean_cycles` without what is superfluous
    slot_cycles  without any flag or barrier, under the waits that follow from its slots
    tried, syncs how many of its waits and barriers were tried, and how many it has
    """

    races: tuple[str, ...]
    superfluous: tuple[Superfluous, ...]
    cycles: int
    lean_cycles: int
    slot_cycles: int
    tried: int
    syncs: int

    def __str__(self) -> str:
        said = [f"race: {line}" for line in self.races[:SHOWN]] or ["no race"]
        if len(self.races) > SHOWN:
            said.append(f"and {len(self.races) - SHOWN} races more")
        said += [f"superfluous: {own}" for own in self.superfluous]
        if self.tried < self.syncs:
            said.append(f"the first {self.tried} of {self.syncs} waits and barriers were tried")
        said.append(
            f"{self.cycles:,} cycles; {self.lean_cycles:,} without what is superfluous, {self.slot_cycles:,} "
            "under the waits that follow from its slots"
        )
        said.append("what a flag costs on the device is not published: one cycle each here, and flag_cycles")
        return "\n".join(said)


def check_flags(
    program: Program, profile: Profile, core: str = "vector", *, most: int = MOST_TRIED
) -> FlagCheck:
    """Return what flags and barriers of a program miss, which are superfluous, and what they cost.

    program  as `ProgramBuilder.build()` returns it, which has refused a deadlock already
    core     the kind of core that it runs on: "cube" or "vector"
    most     waits and barriers that are tried

    Raises   ProgramError as the engines do
    """
    races, syncs = unordered(program), _syncs(program)
    known = _keys(races, range(len(program)))
    dropped: set[int] = set()
    found: dict[str, list[tuple[int, ...]]] = {}
    for own in syncs[:most]:
        lean, kept = _without(program, dropped | {*own}, profile)
        if _keys(unordered(lean), kept) <= known:
            found.setdefault(_what(program, own[-1]), []).append(own)
            dropped |= {*own}
    cycles = _cycles(program, profile, core)

    def saved(own: Sequence[tuple[int, ...]]) -> int:
        lean, _ = _without(program, {at for each in own for at in each}, profile)
        return cycles - _cycles(lean, profile, core)

    of = Counter(_what(program, own[-1]) for own in syncs)
    superfluous = [Superfluous(what, tuple(own), of[what], saved(own)) for what, own in found.items()]
    return FlagCheck(
        tuple(race(pair, program) for pair in races),
        tuple(superfluous),
        cycles,
        cycles - saved([tuple(dropped)]),
        cycles - saved(syncs),
        min(most, len(syncs)),
        len(syncs),
    )


def _what(program: Program, at: int) -> str:
    """Return what a wait or a barrier waits for, in words; equal ones are lines of one loop."""
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


def _keys(races: Sequence[Pair], kept: Sequence[int]) -> set[tuple[int, int, str]]:
    """Return races by the numbers of the instructions in the whole program."""
    return {(kept[pair.first], kept[pair.second], pair.hazard) for pair in races}


def _without(program: Program, dropped: AbstractSet[int], profile: Profile) -> tuple[Program, list[int]]:
    """Return a program without some instructions, and the numbers of those that are kept."""
    own = program.tile_slots
    kept = [at for at in range(len(program)) if at not in dropped]
    posts = {}
    for number, at in enumerate(kept):
        post = program.posts.get(at, HOME)
        reads, writes = (tuple([slot for slot in of if slot.index < own]) for of in post[1:])
        if post.core or reads or writes:
            posts[number] = Post(post.core, reads, writes)
    instructions = [program.instructions[at] for at in kept]
    of = program.slots[:own], program.buffer_bytes, program.hazards
    return program_of(instructions, *of, posts, profile), kept


def _cycles(program: Program, profile: Profile, core: str) -> int:
    """Return the cycles of a program on one core."""
    tensors = {made.gm.tensor.name: made.gm.tensor for made in program.instructions if made.gm is not None}
    work = CoreWork(Core(core, 0), 0, lambda: program, program.cores - 1)
    math = MathSettings(AccumulationModel("exact"))
    kernel = Kernel("flags", (Phase("all", (work,)),), tensors, math)
    return measure_kernel(kernel, profile).cycles - profile.scalar.start_cycles
