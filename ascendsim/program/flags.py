"""Programs with flags of their own: which set a wait meets, and what that orders.

A flag is known by its source pipe, its destination pipe and its event number; the n-th wait meets the n-th
set. Between the two both executors see a slot that stands for the flag, which the set writes and the wait
reads; the slots of tiles order nothing then.

Source   AscendC pages of SetFlag, PipeBarrier and CrossCoreSetFlag
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ascendsim.errors import ProgramError
from ascendsim.program.places import HOME, Post, Slot, core_of, pipe_on

if TYPE_CHECKING:
    from ascendsim.profile import Profile
    from ascendsim.program.instruction import Instruction

# Flags of a pair of pipes; the first 910 has half of them.
EVENTS, EVENTS_OF = 8, {"1001": 4}
CROSS_CORE_FLAGS = 16
# Pairs of pipes without flags, where cube and vector cores are apart.
CUBE_PAIRS = "M-MTE1 M-MTE2 M-FIX MTE1-MTE2 MTE1-MTE3 MTE1-FIX MTE2-MTE3 MTE2-FIX MTE3-FIX"
VECTOR_PAIRS = "V-MTE2 V-MTE3 MTE2-MTE3"


class Signal(NamedTuple):
    """What an instruction does to a flag: "set" or "wait" with its key; "all": it waits for all that came.

    `holds` says that it holds all pipes of its core, not its own alone.
    """

    does: str
    key: tuple[Any, ...]
    holds: bool = False


def signal_of(made: Instruction) -> Signal | None:
    """Return the change that an instruction makes to a flag, if it makes one."""
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
    """Return each wait with the sets that it meets.

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
