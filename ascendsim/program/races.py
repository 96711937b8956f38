"""What a program's waits and flags leave unordered: pairs that share a tile, elements of GM, or a flag."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ascendsim.errors import ProgramError
from ascendsim.program.flags import meetings, told
from ascendsim.program.places import HOME, Gm, Slot, bare
from ascendsim.program.program import Program

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.program.instruction import Instruction

# Pipes on which an instruction starts before the one in front of it is done, and the hazards that matter
# there; on the others hardware keeps them in order.
OVERLAPPING: Mapping[str, frozenset[str]] = {"V": frozenset({"RAW", "WAW"}), "MTE2": frozenset({"WAW"})}


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
    """Two instructions that must come in this order; `slot`: the tile or slice they share, None: a flag."""

    first: int
    second: int
    slot: Slot | Gm | None
    hazard: str


def needed(program: Program) -> Iterator[Pair]:
    """Yield the pairs that must not overlap: instructions that share a tile, elements of GM, or a flag.

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
    yield from _through_gm(program)
    newest: dict[tuple[Any, ...], int] = {}
    for wait, sets in sorted(meetings(program.instructions, program.posts), key=lambda each: each.sets):
        for at in sets:
            key = pipes[at], pipes[wait], program.instructions[at]
            if key in newest and program.instructions[at].signal.key[0] != "cross-core":  # type: ignore[attr-defined]
                yield Pair(newest[key], at, None, "flag")
            newest[key] = wait


def kind_of(made: Instruction) -> str:
    """Return how an instruction uses its slice of GM: "read", "write" or "atomic" (it adds)."""
    if getattr(made, "dst", None) is not made.gm:
        return "read"
    return "atomic" if getattr(made, "atomic", False) else "write"


def _hazard(before: str, kind: str) -> str:
    """Return the hazard of two uses of an element, "" for none: reads may meet, and atomic adds."""
    if before == kind != "write":
        return ""
    return "WAR" if before == "read" else "RAW" if kind == "read" else "WAW"


def _through_gm(program: Program) -> Iterator[Pair]:
    """Yield pairs that share elements of GM: with each use the newest before it of each pipe and kind."""
    uses: dict[str, list[tuple[int, Gm, str]]] = defaultdict(list)
    for at, made in enumerate(program.instructions):
        if made.gm is not None and inside(made.gm):
            uses[made.gm.tensor.name].append((at, made.gm, kind_of(made)))
    for own in uses.values():
        pipes = {program.pipes[at] for at, _, _ in own}
        alone = len(pipes) == 1 and not {*map(bare, pipes)} & {*OVERLAPPING}
        if alone or all(kind == "read" for _, _, kind in own):
            continue
        size = max(gm.tensor.size_bytes // gm.tensor.itemsize for _, gm, _ in own)
        # For each element 1 + the instruction; pages that nobody marks take no memory.
        newest: dict[tuple[str, str], NDArray[np.int32]] = {}
        for at, gm, kind in own:
            count = gm.tensor.size_bytes // gm.tensor.itemsize
            for (_, before), marks in newest.items():
                hazard = _hazard(before, kind)
                first = int(marks[:count].reshape(gm.tensor.shape)[gm.index].max()) if hazard else 0
                if first:
                    yield Pair(first - 1, at, gm, hazard)
            key = program.pipes[at], kind
            if key not in newest:
                newest[key] = np.zeros(size, np.int32)
            newest[key][:count].reshape(gm.tensor.shape)[gm.index] = at + 1


def inside(gm: Gm) -> bool:
    """Return whether a slice lies in its tensor; a run refuses one that does not."""
    try:
        return all(gm.counts)
    except ProgramError:
        return False


def unordered(program: Program) -> list[Pair]:
    """Return the pairs that must come in order and that nothing orders: races, the closest pairs first.

    On one pipe instructions start in order; only V and MTE2 may start one before that in front is done.
    """
    known, pipes = clocks(program), program.pipes
    found = [
        pair
        for pair in needed(program)
        if known[pair.second].get(pipes[pair.first], -1) < pair.first
        and (
            pipes[pair.first] != pipes[pair.second]
            or pair.hazard in OVERLAPPING.get(bare(pipes[pair.first]), ())
        )
    ]
    # What is far apart overlaps rarely, and mostly because something close was not ordered.
    return sorted(found, key=lambda pair: (pair.slot is None, pair.second - pair.first))


def first_race(program: Program) -> str:
    """Return the first race of a program with flags, in words; "" for none."""
    found = unordered(program) if program.own_slots >= 0 else ()
    return f"{race(found[0], program)} (`check_flags` shows all of them)" if found else ""


def unread(program: Program) -> list[str]:
    """Say which tiles are overwritten before anything has read them, as in a ring of too few slots.

    Not of L1, where an instruction may write a part of a tile.
    """
    pairs = [pair for pair in needed(program) if isinstance(pair.slot, Slot) and pair.slot.buffer != "L1"]
    read = {(pair.second, pair.slot) for pair in pairs if pair.hazard == "WAR"}
    line = partial(told, program.instructions, program.posts)
    return [
        f"{line(second)} overwrites {slot!r} before anything has read what {line(first)} wrote; give "
        "its ring another slot, or take that out"
        for first, second, slot, hazard in pairs
        if hazard == "WAW" and (second, slot) not in read
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
    name, again = f"{pair.slot!r}", "it"
    if isinstance(pair.slot, Gm):
        name, again = (own.text for own in (made[at].gm for at in pair[:2]) if own is not None)
    need = f"set a flag ({src}, {dst}) between them, and wait for it"
    if src == dst:
        need = f"put a PipeBarrier of {made[pair.first].pipe} between them"
    begins, follows = line(pair.first), line(pair.second)
    return f"{begins} {first} {name}, and {follows} {second} {again}, ordered by nothing; {need}"
