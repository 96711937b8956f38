"""The waits of a program: which instruction must wait for which, as their slots are read and written."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ascendsim.program.instruction import Instruction
from ascendsim.program.places import HOME, Post, Slot, pipe_on

# Read after write, write after read, write after write: the ways in which two uses of a slot may collide.
HAZARDS = frozenset({"RAW", "WAR", "WAW"})


class Derived(NamedTuple):
    """The waits of a program, as distances.

    `done_back[i]` is how far before instruction i those lie whose results must be visible before it starts
    (it reads or overwrites them); `end_back[i]` how far back those lie that must have left their pipe (they
    read what i overwrites); `trail_back[i]`, where there is one, of those whose results i takes piece by
    piece while they are made (the unit flag).
    """

    done_back: tuple[tuple[int, ...], ...]
    end_back: tuple[tuple[int, ...], ...]
    trail_back: dict[int, tuple[int, ...]]


class Waits(Sequence[tuple[int, ...]]):
    """The indices that each instruction waits for, from how far back they lie."""

    __slots__ = ("_back",)

    def __init__(self, back: Sequence[tuple[int, ...]]) -> None:
        self._back = back

    def __len__(self) -> int:
        return len(self._back)

    def __getitem__(self, index: Any) -> Any:
        return tuple([index - distance for distance in self._back[index]])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Waits) and self._back == other._back

    __hash__ = None  # type: ignore[assignment]  # equal by content, and the content may be large


def ordering(made: Instruction, post: Post, own_slots: int) -> tuple[tuple[Slot, ...], tuple[Slot, ...]]:
    """Return the slots read and written by which an instruction is ordered: all of them.

    In a program with flags of its own: only flags, which lie behind its own slots.
    """
    if own_slots < 0:
        return made.reads + post.reads, made.writes + post.writes
    reads, writes = (tuple([slot for slot in of if slot.index >= own_slots]) for of in post[1:])
    return reads, writes


def derive(
    instructions: Iterable[Instruction],
    slots: int,
    hazards: frozenset[str],
    posts: Mapping[int, Post],
    own_slots: int = -1,
) -> Derived:
    """Derive the waits of a program on so many slots; `hazards` names the classes of waits to derive.

    `posts` says of which instructions which run on another core, or hand over something (`Program.posts`),
    and `own_slots` which slots order nothing, as the program has flags of its own (`Program`).
    """
    scoreboard = _Scoreboard(slots, hazards, own_slots)
    for index, instruction in enumerate(instructions):
        scoreboard.add(instruction, posts.get(index, HOME))
    return Derived(tuple(scoreboard.done_back), tuple(scoreboard.end_back), scoreboard.trail_back)


class _Scoreboard:
    """Who uses which slot, and what each pipe has waited for so far."""

    def __init__(self, slots: int, hazards: frozenset[str], own_slots: int) -> None:
        self._hazards, self._own_slots = hazards, own_slots
        self.done_back: list[tuple[int, ...]] = []
        self.end_back: list[tuple[int, ...]] = []
        self.trail_back: dict[int, tuple[int, ...]] = {}
        self._pipes: list[str] = []
        # Per slot: index of the last writer (-1: none), and the last reader since then on each pipe.
        self._writer = [-1] * slots
        self._readers: list[dict[str, int]] = [{} for _ in range(slots)]
        # What each pipe has waited for so far: [pipe][other pipe] -> newest index known done, known ended.
        # One number for each pair of pipes is enough, since a pipe ends and delivers in order.
        self._known_done: dict[str, dict[str, int]] = defaultdict(dict)
        self._known_end: dict[str, dict[str, int]] = defaultdict(dict)

    def add(self, instruction: Instruction, post: Post) -> None:
        """Note what the next instruction must wait for."""
        index = len(self._pipes)
        pipe = pipe_on(post.core, instruction.pipe)
        done: dict[str, int] = {}
        end: dict[str, int] = {}
        # What trails does not wait for what it reads before it starts, only before it ends.
        trail: dict[str, int] = {} if instruction.trails else done
        reads, writes = ordering(instruction, post, self._own_slots)
        for slot in reads:
            self._wait(trail, pipe, self._writer[slot.index], "RAW")
        for slot in writes:
            self._wait(done, pipe, self._writer[slot.index], "WAW")
            # A reader has what it needs once it has left its pipe; its own result may come later.
            for reader in self._readers[slot.index].values():
                self._wait(end, pipe, reader, "WAR")
        self.done_back.append(self._settle(done, pipe, self._known_done[pipe]) if done else ())
        self.end_back.append(self._settle(end, pipe, self._known_end[pipe]) if end else ())
        # What comes next on the pipe starts when this one has ended, and that is after what it trails.
        if trail is not done and (back := self._settle(trail, pipe, self._known_done[pipe])):
            self.trail_back[index] = back
        # Of the readers on one pipe the last is enough, since a pipe ends its instructions in order.
        for slot in reads:
            self._readers[slot.index][pipe] = index
        # Whoever writes next waits for this writer, and so for all that this one has waited for.
        for slot in writes:
            self._writer[slot.index] = index
            self._readers[slot.index].clear()
        self._pipes.append(pipe)

    def _wait(self, waits: dict[str, int], pipe: str, on: int, hazard: str) -> None:
        """Note that `pipe` must wait for instruction `on`, unless both are on one in-order pipe."""
        if on < 0:
            return
        other = self._pipes[on]
        if other != pipe and hazard in self._hazards and on > waits.get(other, -1):
            waits[other] = on

    def _settle(self, waits: dict[str, int], pipe: str, known: dict[str, int]) -> tuple[int, ...]:
        """Drop the waits that an earlier wait of the same pipe already implies (pipes deliver in order).

        Returns  how far back the others lie, the farthest first
        """
        # Nothing starts too early for that: an instruction that waited for the same or for more came before
        # on this pipe. On the device each wait takes a flag, of which a pair of pipes has eight; here it
        # takes time. A result that is visible has also left its pipe, so who knows it done need not wait for
        # its end.
        done = self._known_done[pipe]
        index = len(self._pipes)
        kept = []
        for other, on in waits.items():
            if on > known.get(other, -1) and on > done.get(other, -1):
                kept.append(index - on)
                known[other] = on
        return tuple(kept) if len(kept) < 2 else tuple(sorted(kept, reverse=True))
