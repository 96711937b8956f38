"""The loops of a program that is being built: bodies emitted once, and the rounds that repeat them.

A body is told from another one by what it finds: what the rings of slots hold, and whose turn it is. As soon
as a round finds what an earlier one found, the rounds from there on repeat, and so does their code.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from ascendsim.errors import ProgramError
from ascendsim.program.frames import Frame
from ascendsim.program.loops.chains import Chains, Link
from ascendsim.program.loops.laps import Lap
from ascendsim.program.loops.rings import RingState
from ascendsim.program.reserved import Reserved
from ascendsim.program.units import Step

if TYPE_CHECKING:
    from ascendsim.profile import Profile


class _LapCode(NamedTuple):
    """The code of a round, as emitted for a lap, and how it leaves the rings, told from that lap."""

    lap: int
    steps: tuple[Step, ...]
    after: tuple[RingState, ...]


class LoopBuilder(Reserved):
    """Emit the rounds of loops into the frame of steps that is being filled, as long as they differ."""

    def __init__(self, profile: Profile) -> None:
        super().__init__(profile)
        # Code known by what it does and finds.
        self._laps: dict[Hashable, _LapCode] = {}
        self._chains = Chains()
        self._first_lap: int | None = None
        self.restart()

    def restart(self) -> None:
        """Begin another program with the same slots; code that is known stays known."""
        self._frame = Frame(self._ring_of)
        self._in_loop = False
        self._written = bytearray(len(self._slots))
        # The code, with its turns, that has been appended without being written down.
        self._recalled: set[Hashable] = set()
        for ring in self._rings:
            ring.restart()

    def __len__(self) -> int:
        return len(self._frame)

    def loop(self, laps: range, body: Hashable = None) -> Iterator[int]:
        """Yield the rounds whose bodies have to be emitted; the others repeat them.

        All that a body carries from round to round must be in rings, and it must not ask which round it is.
        A slice of GM moves from round to round, by the step of the range, where its index names the lap.
        `body`, if it is given, tells this body from all others; then programs that share this builder share
        its code. A loop inside a loop goes through all its rounds.

        Raises   ProgramError for anything but a range that rises
        """
        if self._in_loop:
            # Plain numbers: with the laps of the outer loop these do not move on.
            yield from laps
            return
        if not isinstance(laps, range) or laps.step < 1:
            raise ProgramError(f"a loop goes through {laps!r}; it must be a range that rises")
        self._in_loop = True
        try:
            # A round that is alone repeats nothing, and to look at all rings takes time.
            yield from self._rounds(laps, body) if len(laps) > 1 else map(Lap, laps)
        finally:
            self._in_loop = False

    def _rounds(self, laps: range, body: Hashable) -> Iterator[Lap]:
        """Yield the rounds of a loop until one finds what an earlier one has found."""
        found: dict[Hashable, int] = {}
        begins: list[int] = []
        frame = self._frame
        # The steps of a task say how they follow from it, which another program cannot know.
        body = None if frame.of_task else body
        for number, lap in enumerate(laps):
            frame.close()
            state = tuple([ring.whole(lap) for ring in self._rings])
            if state in found:
                self._repeat(laps, found[state], begins, list(found))
                break
            found[state] = number
            begins.append(len(frame.steps))
            known = self._laps.get((body, state))
            if known is None:
                yield Lap(lap)
                frame.close()
                if body is not None:
                    after = tuple([ring.whole(lap) for ring in self._rings])
                    self._laps[body, state] = _LapCode(lap, tuple(frame.steps[begins[-1] :]), after)
            else:
                self._again(known, lap)

    def _again(self, known: _LapCode, lap: int) -> None:
        """Append the code of a round that another program has emitted, and leave the rings as that does."""
        for step in known.steps:
            self._frame.append(step.moved(lap - known.lap))
            if (step.unit, step.turns) not in self._recalled:
                self._recalled.add((step.unit, step.turns))
                self._write(step)
        for ring, state in zip(self._rings, known.after, strict=True):
            ring.take(state, lap)

    def _repeat(self, laps: range, first: int, begins: list[int], states: list[Any]) -> None:
        """Repeat the rounds since number `first` for all that are left, and leave the rings as those do."""
        times, rest = divmod(len(laps) - first, len(begins) - first)
        self._frame.repeat(begins[first:], times, rest, laps.step)
        for ring, state in zip(self._rings, states[first + rest], strict=True):
            ring.take(state, laps.start + len(laps) * laps.step)

    def chain(self, lap: int, links: Iterable[Hashable], body: Hashable) -> Iterator[tuple[int, Any]]:
        """Yield those of some links of a round whose code has to be emitted, each with the lap that it names.

        For a loop of one round. A link is known where an earlier program has come to it, in whichever round,
        with its rings as they are now; then its code is appended. So that must follow from the link, the
        `body` and the rings alone, and name the round as in a loop. Inside of a loop or a task no link is,
        nor in the first round of all: where there is no other one, nobody comes to a link again.
        """
        if self._first_lap is None:
            self._first_lap = lap
        if self._in_loop or self._frame.of_task or lap == self._first_lap:
            for own in self.loop(range(lap, lap + 1)):
                for link in links:
                    yield own, link
            return
        self._in_loop = True
        try:
            yield from self._unknown(lap, links, body)
        finally:
            self._in_loop = False

    def _unknown(self, lap: int, links: Iterable[Hashable], body: Hashable) -> Iterator[tuple[int, Any]]:
        """Yield the links of a chain that are not known, as if their lap were 0: then others find them."""
        frame, chains, own = self._frame, self._chains, Lap(0)
        frame.close()
        frame.straight(len(frame.steps))
        self._move(-lap)
        stand, behind = chains.stand(self._rings, self._written), False
        for link in links:
            known = chains.known.get((stand, body, link))
            if known is not None:
                frame.steps += known.steps
                stand, behind = known.after, True
                continue
            if behind:
                chains.take(stand, self._rings, self._written)
            first, before = len(frame.steps), stand
            yield own, link
            frame.close()
            stand, behind = chains.stand(self._rings, self._written), False
            chains.known[before, body, link] = Link(tuple(frame.steps[first:]), stand)
        if behind:
            chains.take(stand, self._rings, self._written)
        frame.straight(len(frame.steps), lap)
        self._move(lap)

    def _move(self, by: int) -> None:
        """Let the tiles that rings hold be those of rounds further on."""
        for ring in self._rings:
            if ring.named:
                ring.take(ring.whole(), by)

    def _write(self, step: Step) -> None:
        """Note which slots a step writes."""
        for slot in step.slots(step.unit.written):
            self._written[slot] = 1
