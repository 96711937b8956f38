"""Programs with flags of their own: which set a wait meets, what that orders, and what is not ordered.

A flag is known by its source pipe, its destination pipe and its event number; the n-th wait meets the n-th
set. Between the two both executors see a slot that stands for the flag, which the set writes and the wait
reads; the slots of tiles order nothing then.

Source   AscendC pages of SetFlag, PipeBarrier and CrossCoreSetFlag
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ascendsim.errors import ProgramError
from ascendsim.program.places import HOME, Post, Slot, bare, core_of, pipe_on

if TYPE_CHECKING:
    from ascendsim.profile import Profile
    from ascendsim.program.instruction import Instruction
    from ascendsim.program.program import Program

# Flags of a pair of pipes; the first 910 has half of them.
EVENTS, EVENTS_OF = 8, {"1001": 4}
CROSS_CORE_FLAGS = 16
# Pairs of pipes without flags, where cube and vector cores are apart.
CUBE_PAIRS = "M-MTE1 M-MTE2 M-FIX MTE1-MTE2 MTE1-MTE3 MTE1-FIX MTE2-MTE3 MTE2-FIX MTE3-FIX"
VECTOR_PAIRS = "V-MTE2 V-MTE3 MTE2-MTE3"
# Pipes on which an instruction starts before the one in front of it is done, and the hazards that matter
# there; on the others hardware keeps them in order.
OVERLAPPING: Mapping[str, frozenset[str]] = {"V": frozenset({"RAW", "WAW"}), "MTE2": frozenset({"WAW"})}


class Signal(NamedTuple):
    """What an instruction does to a flag: "set" or "wait" with its key; "all": it waits for all that came.

    `holds` says that it holds all pipes of its core, not its own alone.
    """

    does: str
    key: tuple[Any, ...]
    holds: bool = False


def signal_of(made: Instruction) -> Signal | None:
    """Return what an instruction does to a flag, if anything."""
    found: Signal | None = getattr(made, "signal", None)
    return found


def require_flag(at: int, made: Instruction, profile: Profile) -> None:
    """Refuse a flag that the product does not have.

    Raises   ProgramError
    """
    signal = signal_of(made)
    if signal is None or not signal.key:
        return
    where = f"instruction {at} ({type(made).__name__})"
    *pipes, event = signal.key
    if pipes == ["cross-core"]:
        most, name = CROSS_CORE_FLAGS, "flag"
    else:
        most, name = EVENTS_OF.get(str(profile.npu_arch), EVENTS), "event"
        pairs = f"{CUBE_PAIRS} {VECTOR_PAIRS}".split()
        apart = profile.core_structure == "split" and not {"-".join(pipes), "-".join(pipes[::-1])} & {*pairs}
        if apart or pipes[0] == pipes[1]:
            raise ProgramError(
                f"{where} is between {pipes[0]} and {pipes[1]}, which {profile.variant} has no flags for; "
                "inside a pipe take a PipeBarrier"
            )
    if not 0 <= event < most:
        raise ProgramError(f"{where} has {name} {event}; {profile.variant} has 0 to {most - 1}")


class Meeting(NamedTuple):
    """A wait, and the sets that it meets; several where a cube core waits for its vector cores."""

    wait: int
    sets: tuple[int, ...]


def meetings(instructions: Sequence[Instruction], posts: Mapping[int, Post]) -> list[Meeting]:
    """Return which sets each wait meets.

    Raises   ProgramError for a wait without a set, a set without a wait, and a deadlock
    """
    sets: dict[Any, list[int]] = defaultdict(list)
    waits: dict[Any, list[int]] = defaultdict(list)
    for at, made in enumerate(instructions):
        signal, core = signal_of(made), posts.get(at, HOME).core
        if signal is not None and signal.does != "all":
            # A flag between cores is one towards the cube core, and one away from it.
            towards = signal.key[0] == "cross-core" and (core == 0) == (signal.does == "wait")
            place = towards if signal.key[0] == "cross-core" else core
            (sets if signal.does == "set" else waits)[signal.key, place, core].append(at)
    found: list[Meeting] = []
    met: set[int] = set()
    for (key, place, _), own in waits.items():
        sources = [line for (k, p, c), line in sets.items() if (k, p) == (key, place)]
        for number, wait in enumerate(own):
            missing = not sources or any(len(line) <= number for line in sources)
            if missing:
                raise ProgramError(
                    f"deadlock: {told(instructions, posts, wait)} waits for a flag that nobody raises: there "
                    f"are {min(map(len, sources), default=0)} sets of it, and this is wait {number + 1}"
                )
            found.append(Meeting(wait, tuple(line[number] for line in sources)))
            met.update(found[-1].sets)
    for at in sorted({at for own in sets.values() for at in own} - met):
        raise ProgramError(
            f"{told(instructions, posts, at)} raises a flag that nobody waits for: the next kernel would "
            "find it raised; add its wait"
        )
    found.sort()
    _require_forwards(instructions, posts, found)
    return found


def told(instructions: Sequence[Instruction], posts: Mapping[int, Post], at: int) -> str:
    """Return an instruction in words: its number, its class, its flag, its pipe."""
    made = instructions[at]
    signal = signal_of(made)
    name = type(made).__name__ + (f"({', '.join(map(str, made))})" if signal else "")  # type: ignore[call-overload]
    return f"instruction {at} ({name} on {pipe_on(posts.get(at, HOME).core, made.pipe)})"


def _require_forwards(
    instructions: Sequence[Instruction], posts: Mapping[int, Post], found: Sequence[Meeting]
) -> None:
    """Refuse a wait whose set comes later in the program; where both wait for each other, say so."""
    needs: dict[int, list[int]] = defaultdict(list)
    last: dict[str, int] = {}
    for at, made in enumerate(instructions):
        pipe = pipe_on(posts.get(at, HOME).core, made.pipe)
        if pipe in last:
            needs[at].append(last[pipe])
        last[pipe] = at
    for wait, sets in found:
        needs[wait] += sets
    for wait, sets in found:
        late = [at for at in sets if at > wait]
        if not late:
            continue
        way = _way(needs, late[0], wait)
        if not way:
            raise ProgramError(
                f"{told(instructions, posts, wait)} waits for {told(instructions, posts, late[0])}, which "
                "comes later in the program; write the set before its wait"
            )
        # Of a run along one pipe only its ends say anything.
        waits = {each.wait for each in found}
        steps = [wait, *[at for at in way if at in waits or any(at in needs[w] for w in waits)]]
        text = " <- ".join(told(instructions, posts, at) for at in dict.fromkeys([*steps]))
        raise ProgramError(
            f"deadlock: {text} <- {told(instructions, posts, wait)}; each waits for the next. Raise the flag "
            "once before the first wait, or take the wait out"
        )


def _way(needs: Mapping[int, Sequence[int]], first: int, last: int) -> list[int]:
    """Return the instructions from one to another that it needs, directly or through others; none: empty."""
    before: dict[int, int] = {first: first}
    line = [first]
    for at in line:
        if at == last:
            way = [at]
            while way[-1] != first:
                way.append(before[way[-1]])
            return way[::-1]
        for other in needs.get(at, ()):
            if other not in before:
                before[other] = at
                line.append(other)
    return []


def bound(
    instructions: Sequence[Instruction], posts: Mapping[int, Post], slots: Sequence[Slot]
) -> tuple[tuple[Slot, ...], dict[int, Post]]:
    """Return slots and posts with a slot for each flag, which its sets write and its wait reads."""
    reads, writes = defaultdict(list), defaultdict(list)
    made = list(slots)

    def join(first: int, second: int) -> None:
        made.append(Slot("GM", 0, "flag", len(made)))
        writes[first].append(made[-1])
        reads[second].append(made[-1])

    for wait, sets in meetings(instructions, posts):
        for at in sets:
            join(at, wait)
    last: dict[str, int] = {}
    # By core, who holds all of its pipes, and which of them have gone on since.
    held: dict[int, tuple[int, set[str]]] = {}
    for at, instruction in enumerate(instructions):
        core, signal = posts.get(at, HOME).core, signal_of(instruction)
        pipe = pipe_on(core, instruction.pipe)
        if core in held and pipe not in held[core][1]:
            join(held[core][0], at)
            held[core][1].add(pipe)
        if signal is not None and signal.does == "all":
            for other, newest in last.items():
                if other != pipe and core_of(other) == core:
                    join(newest, at)
        if signal is not None and signal.holds:
            held[core] = at, {pipe}
        last[pipe] = at
    full = dict(posts)
    for at in {*reads, *writes}:
        post = posts.get(at, HOME)
        full[at] = Post(post.core, (*post.reads, *reads[at]), (*post.writes, *writes[at]))
    return tuple(made), full


def clocks(program: Program) -> list[dict[str, int]]:
    """Return for each instruction the newest one of each pipe that is done before it starts."""
    found: list[dict[str, int]] = []
    last: dict[str, int] = {}
    waits, pipes = program.after_done, program.pipes
    for at, (made, pipe) in enumerate(zip(program.instructions, pipes, strict=True)):
        before = last.get(pipe, -1)
        clock = dict(found[before]) if before >= 0 else {}
        for other in waits[at]:
            # What came before it on its pipe is done with it, and what that one waited for before that.
            for name, newest in {**found[other], pipes[other]: other}.items():
                clock[name] = max(newest, clock.get(name, -1))
        if made.drains and before >= 0:
            clock[pipe] = max(before, clock.get(pipe, -1))
        found.append(clock)
        last[pipe] = at
    return found


class Pair(NamedTuple):
    """Two instructions that must come in this order; `slot`: the tile they share, None: a flag."""

    first: int
    second: int
    slot: Slot | None
    hazard: str


def needed(program: Program) -> Iterator[Pair]:
    """Yield the pairs of instructions that must not overlap: those that share a tile, or a flag.

    A flag is raised again only once its wait has taken it: two sets without a wait between are undefined.
    """
    writer: dict[int, int] = {}
    readers: dict[int, dict[str, int]] = defaultdict(dict)
    pipes = program.pipes
    for at, made in enumerate(program.instructions):
        post = program.posts.get(at, HOME)
        reads, writes = (
            [slot for slot in dict.fromkeys(own) if slot.index < program.tile_slots]
            for own in ((*made.reads, *post.reads), (*made.writes, *post.writes))
        )
        for slot in reads:
            if slot.index in writer:
                yield Pair(writer[slot.index], at, slot, "RAW")
        for slot in writes:
            if slot.index in writer and slot not in reads:
                yield Pair(writer[slot.index], at, slot, "WAW")
            for reader in readers[slot.index].values():
                if reader != at:
                    yield Pair(reader, at, slot, "WAR")
        for slot in reads:
            readers[slot.index][pipes[at]] = at
        for slot in writes:
            writer[slot.index] = at
            readers[slot.index].clear()
    newest: dict[tuple[Any, ...], int] = {}
    for wait, sets in sorted(meetings(program.instructions, program.posts), key=lambda each: each.sets):
        for at in sets:
            key = pipes[at], pipes[wait], program.instructions[at]
            if key in newest and program.instructions[at].signal.key[0] != "cross-core":  # type: ignore[attr-defined]
                yield Pair(newest[key], at, None, "flag")
            newest[key] = wait


def unordered(program: Program) -> list[Pair]:
    """Return the pairs that must come in order and that nothing orders: races.

    On one pipe instructions start in order; only V and MTE2 may start one before that in front is done.
    """
    known, pipes = clocks(program), program.pipes
    return [
        pair
        for pair in needed(program)
        if known[pair.second].get(pipes[pair.first], -1) < pair.first
        and (
            pipes[pair.first] != pipes[pair.second]
            or pair.hazard in OVERLAPPING.get(bare(pipes[pair.first]), ())
        )
    ]


def race(pair: Pair, program: Program) -> str:
    """Say what is not ordered, and what would order it."""
    line, made = partial(told, program.instructions, program.posts), program.instructions
    src, dst = (program.pipes[at] for at in pair[:2])
    did = {"RAW": ("writes", "reads"), "WAR": ("reads", "overwrites"), "WAW": ("writes", "overwrites")}
    if pair.hazard == "flag":
        return (
            f"{line(pair.second)} raises its flag again, and nothing says that {line(pair.first)} "
            "has taken it; take another event, or a flag back"
        )
    first, second = did[pair.hazard]
    name = f"{pair.slot!r}" if pair.slot is not None else ""
    need = f"set a flag ({src}, {dst}) between them, and wait for it"
    if src == dst:
        need = f"put a PipeBarrier of {made[pair.first].pipe} between them"
    return (
        f"{line(pair.first)} {first} {name}, and {line(pair.second)} {second} it, ordered by nothing; {need}"
    )
