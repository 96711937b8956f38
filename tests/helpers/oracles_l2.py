"""The slow and obvious definition of the account of L2: its stack, its slices, its transfers."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from ascendsim.errors import AscendSimError, ProgramError
from ascendsim.profile import Profile
from ascendsim.program.instruction import Traffic
from ascendsim.program.kernel import Kernel
from ascendsim.program.places import Gm, GmTensor
from ascendsim.timing.l2.account import L2_STARTS, L2Account, Start
from ascendsim.timing.l2.phase import HIT, L2Outcome, Outcomes
from ascendsim.timing.times import CostBook, PricedProgram

# -------------------------------------------------------------------------------------------------------
# L2 as a stack: the bytes accessed last lie on top, and what lies deeper than the capacity has gone.
# -------------------------------------------------------------------------------------------------------

# What L2 holds between kernels: name of the tensor -> bytes that are resident, how many of them are dirty,
# and a 1 behind these where they are spread evenly.
L2State = Mapping[str, tuple[int, ...]]


class Residency:
    """Bytes of a tensor that are accessed together: how many of them are in L2, and how many are dirty."""

    __slots__ = ("dirty", "resident", "size", "tensor")

    def __init__(self, tensor: str, size: int) -> None:
        self.tensor = tensor
        self.size = size
        self.resident = 0
        self.dirty = 0


class Stack:
    """L2: residencies by when they were accessed last, above what is left of each tensor from before.

    A whole residency moves to the top when it is accessed, and leaves byte by byte from the bottom. So
    within a phase a larger stack holds all that a smaller one does, and never misses more.
    """

    def __init__(self, capacity_bytes: int) -> None:
        self.read_bytes = 0
        self.written_bytes = 0
        self._capacity = capacity_bytes
        self._stack: OrderedDict[int, Residency] = OrderedDict()
        self._before: dict[str, Residency] = {}
        # Tensors of which what is here is spread evenly.
        self._even: set[str] = set()
        self._used = 0

    def forget_bytes(self) -> None:
        """Count bytes from zero again; keep what L2 holds."""
        self.read_bytes = self.written_bytes = 0

    def hold(self, tensor: str, size_bytes: int) -> None:
        """Begin with a tensor that another kernel has written, clean and spread evenly, as far as it fits."""
        residency = self._before[tensor] = Residency(tensor, size_bytes)
        residency.resident = min(size_bytes, self._capacity - self._used)
        self._even.add(tensor)
        self._used += residency.resident

    def take(self, state: L2State) -> None:
        """Begin with what another kernel has left."""
        for tensor, (resident, dirty, *even) in state.items():
            residency = self._before[tensor] = Residency(tensor, resident)
            self._even.update([tensor] * bool(even))
            residency.resident, residency.dirty = resident, dirty
            self._used += resident
        # The other kernel may have run with a larger L2; what leaves here is no traffic of this kernel.
        self.make_room()
        self.forget_bytes()

    def left(self) -> L2State:
        """Return how much of each tensor is here, and how much of that is dirty."""
        self.begin()
        return {
            name: (kept.resident, kept.dirty, *[1] * (name in self._even))
            for name, kept in self._before.items()
            if kept.resident
        }

    def begin(self) -> None:
        """Begin a phase: keep of every tensor only how much of it is here."""
        # The next phase or kernel names other slices of the same tensor. Which bytes of them are here would
        # take a map of addresses; the amount is enough where a tensor is gone through from begin to end.
        for residency in self._stack.values():
            kept = self._before.setdefault(residency.tensor, Residency(residency.tensor, 0))
            self._even.discard(residency.tensor)
            kept.resident += residency.resident
            kept.dirty += residency.dirty
        self._stack.clear()

    def find(self, residency: Residency, end: int, begin: int) -> None:
        """Let a residency that is accessed for the first time in a phase find what is here of it.

        The phase goes through `end` bytes of its tensor; the residency begins at byte `begin` of them.
        """
        # What came last before is what is still here, so it is the end of the tensor that is found. A tensor
        # that is larger than L2 and read from the front again pushes its own end out before it gets there.
        kept = self._before.get(residency.tensor)
        if kept is None or not kept.resident:
            return
        if residency.tensor in self._even:
            found = residency.size * min(kept.resident, end - begin) // (end - begin)
        else:
            found = min(residency.size, max(0, begin + residency.size - (end - kept.resident)))
        if found:
            residency.dirty = kept.dirty * found // kept.resident
            residency.resident = found
            kept.dirty -= residency.dirty
            kept.resident -= found
            self._stack[id(residency)] = residency

    def access(self, residency: Residency, traffic: Traffic) -> tuple[int, int]:
        """Read, write or add to a residency; return the bytes that are fetched, and those written past L2."""
        missing = residency.size - residency.resident
        writes = traffic.kind != "read"
        # A write replaces what was there, so its old bytes need not come; an atomic add needs them.
        fetched = 0 if traffic.kind == "write" else missing
        self.read_bytes += fetched
        if not traffic.tensor.cached:
            through = residency.size if writes else 0
            self.written_bytes += through
            return fetched, through
        residency.resident = residency.size
        if writes:
            residency.dirty = residency.size
        self._stack[id(residency)] = residency
        self._stack.move_to_end(id(residency))
        self._used += missing
        return fetched, 0

    def make_room(self) -> int:
        """Let go of what lies too deep; return how much of it was dirty."""
        excess = self._used - self._capacity
        if excess <= 0:
            return 0
        self._used = self._capacity
        old = sum(residency.resident for residency in self._before.values())
        # What is left from before was accessed before all that is on the stack, so it goes first; from all
        # tensors alike, since in which order they came is not known any more.
        gone = min(excess, old)
        pushed = 0
        for residency in self._before.values():
            part = min(residency.resident, -(-gone * residency.resident // old)) if gone else 0
            old -= residency.resident
            pushed += _drop(residency, part)
            gone -= part
            excess -= part
        # Then from the bottom of the stack; the one across the edge keeps what is above it.
        while excess:
            key, residency = next(iter(self._stack.items()))
            part = min(residency.resident, excess)
            pushed += _drop(residency, part)
            excess -= part
            if not residency.resident:
                del self._stack[key]
        self.written_bytes += pushed
        return pushed


def _drop(residency: Residency, part: int) -> int:
    """Take bytes out of a residency; return how many of them were dirty."""
    if not part:
        return 0
    # Which of its bytes are dirty is not known either, so they go in proportion.
    dirty = residency.dirty * part // residency.resident
    residency.resident -= part
    residency.dirty -= dirty
    return dirty


# --- The slices of GM that the transfers of a phase name, and how many bytes of L2 they stand for. -----

Share = Fraction | int


class Slice:
    """A slice of a tensor that transfers name, and the residencies that it stands for.

    The slice itself is `known`. Of a group of equal cores only the slice of one is; the others may have
    slices like it of their own, in one residency for each group.
    """

    __slots__ = ("bytes", "cores", "known", "own", "tensor")

    def __init__(self, tensor: GmTensor, size_bytes: int) -> None:
        self.tensor = tensor
        self.bytes = size_bytes
        self.cores: dict[int, int] = {}
        self.known = Residency(tensor.name, size_bytes)
        self.own: dict[int, Residency] = {}


class SliceTransfer(NamedTuple):
    """A transfer as L2 sees it: whose it is, the slice that it names, and its traffic."""

    group: int
    instruction: int
    slice: Slice
    traffic: Traffic


def transfers_of(
    group: int, cores: int, priced: PricedProgram, slices: dict[Hashable, Slice]
) -> Iterator[SliceTransfer]:
    """Yield the transfers of a group in issue order and note the slices that they name."""
    newest: dict[str, int] = {}
    instructions = priced.program.instructions
    for index in priced.moving:
        traffic = priced.prices[index].traffic
        assert traffic is not None
        name = traffic.tensor.name
        place = _place(instructions[index].gm)
        if place is None:
            # It does not say where, so it goes on through the tensor, and begins again at its end.
            begin = newest.get(name, 0)
            if begin + traffic.bytes > traffic.tensor.size_bytes:
                begin = 0
            newest[name] = begin + traffic.bytes
            place = begin, traffic.bytes
        # Slices that overlap but differ count as two: to find what they have in common takes time for each
        # pair. `cut` corrects the sum of their bytes.
        key = name, place
        if key not in slices:
            slices[key] = Slice(traffic.tensor, traffic.bytes)
        slices[key].cores[group] = cores
        yield SliceTransfer(group, index, slices[key], traffic)


def cut(slices: Sequence[Slice]) -> dict[str, Share]:
    """Give residencies their sizes; return by tensor which part of the unknown slices is no known one.

    Slices that are not known lie apart as far as the tensor is large enough for them beside the known ones;
    for the rest they are the known ones. Known slices of more bytes than there are overlap, so each counts
    for its part of what there is.
    """
    # The pass knows the program of one core of a group. Where the others read follows from how much there is
    # to read: equal cores that cut a tensor among them fill it; if it is too small for that, they share it.
    sizes: dict[str, int] = {}
    known: dict[str, int] = {}
    others: dict[str, int] = {}
    for part in slices:
        name = part.tensor.name
        sizes[name] = part.tensor.size_bytes
        known[name] = known.get(name, 0) + part.bytes
        others[name] = others.get(name, 0) + part.bytes * (sum(part.cores.values()) - len(part.cores))
    apart: dict[str, Share] = {
        name: whole(Fraction(max(0, min(others[name], size - known[name])), others[name] or 1))
        for name, size in sizes.items()
    }
    for part in slices:
        name = part.tensor.name
        # At least a byte: what has none is never missed.
        if known[name] > sizes[name]:
            part.known.size = max(1, part.bytes * sizes[name] // known[name])
        if apart[name]:
            for group, cores in part.cores.items():
                if cores > 1:
                    part.own[group] = Residency(name, max(1, int(part.bytes * (cores - 1) * apart[name])))
    return apart


def whole(share: Fraction) -> Share:
    """Return a share as an int where it is one; ints are faster."""
    return int(share) if share.denominator == 1 else share


def _place(gm: Gm | None) -> Hashable:
    """Return the slice of a tensor as something that can be compared."""
    if gm is None:
        return None
    # Slices can be hashed from Python 3.12 on; the package runs on 3.11.
    return tuple([(i.start, i.stop, i.step) if isinstance(i, slice) else i for i in gm.index])


# --- The slow and obvious definition of the account of L2: transfers as objects, shares as fractions. --
# `oracles_l2.py` cuts tensors into slices, `oracles_l2.py` is L2 itself. The package has the
# same as a compiled walk over integers (`timing/l2/`), and must give the same numbers.

# A team of cores as this pass needs it: how many equal ones, and the program of one of them.
Group = tuple[int, PricedProgram]


class _Access(NamedTuple):
    """Transfers that access one residency together, and how many cores of each transfer's group do.

    `readers` of them wait for the same bytes.
    """

    residency: Residency
    readers: Share
    transfers: tuple[SliceTransfer, ...]
    cores: tuple[Share, ...]


class _Fetch:
    """Bytes that came from main memory once, and the transfers that have found them since, until they go."""

    __slots__ = ("cores", "fetched", "found", "groups")

    def __init__(self, fetched: int) -> None:
        self.fetched = fetched
        self.cores: Share = 0
        self.groups: set[int] = set()
        self.found: list[tuple[SliceTransfer, Share, Share]] = []

    def join(self, access: _Access) -> None:
        """Let those of an access share the fetch that have not found its bytes before."""
        for transfer, cores in zip(access.transfers, access.cores, strict=True):
            # A core that comes again has had its part: what it finds then costs memory nothing.
            if transfer.group not in self.groups:
                self.groups.add(transfer.group)
                self.cores += cores
                self.found.append((transfer, cores, access.readers))


class PhaseAccesses:
    """All accesses of one phase, in rounds: the first transfer of every core, then the second of each, ...

    Rounds stand for time, which is not known yet: how long transfers take depends on what L2 makes of them.
    """

    def __init__(self, groups: Sequence[Group]) -> None:
        self._cores = [cores for cores, _ in groups]
        slices: dict[Hashable, Slice] = {}
        self._lanes = [list(transfers_of(group, *work, slices)) for group, work in enumerate(groups)]
        self._apart = cut(list(slices.values()))
        self._residencies = [
            residency for part in slices.values() for residency in (part.known, *part.own.values())
        ]
        self._ends: dict[str, int] = {}
        for residency in self._residencies:
            self._ends[residency.tensor] = self._ends.get(residency.tensor, 0) + residency.size
        self._shares: dict[tuple[str, tuple[int, ...]], tuple[tuple[Share, ...], Share]] = {}
        self._accesses: list[_Access] = []
        for number in range(max((len(lane) for lane in self._lanes), default=0)):
            self._accesses += self._round([lane[number] for lane in self._lanes if number < len(lane)])

    def added_to(self) -> set[str]:
        """Return the names of the tensors that the phase adds to."""
        traffics = [access.transfers[0].traffic for access in self._accesses]
        return {traffic.tensor.name for traffic in traffics if traffic.kind == "atomic"}

    def _round(self, transfers: list[SliceTransfer]) -> Iterator[_Access]:
        """Yield the accesses of one round: those of one slice together, then of those like it."""
        together: dict[tuple[int, str], list[SliceTransfer]] = {}
        for transfer in transfers:
            together.setdefault((id(transfer.slice), transfer.traffic.kind), []).append(transfer)
        for same in together.values():
            part = same[0].slice
            cores, total = self._accessing(part.tensor.name, tuple([transfer.group for transfer in same]))
            yield _Access(part.known, total, tuple(same), cores)
            for transfer in same if part.own else ():
                if transfer.group in part.own:
                    others = (self._cores[transfer.group] - 1) * self._apart[part.tensor.name]
                    yield _Access(part.own[transfer.group], 1, (transfer,), (others,))

    def _accessing(self, tensor: str, groups: tuple[int, ...]) -> tuple[tuple[Share, ...], Share]:
        """Return how many cores of each group access the known slice that the groups name, and their sum."""
        key = tensor, groups
        if key not in self._shares:
            # One core of each group names the slice itself; of the others, those that have none of their own.
            apart = self._apart[tensor]
            cores = tuple([1 + (self._cores[group] - 1) * (1 - apart) for group in groups])
            self._shares[key] = cores, sum(cores)
        return self._shares[key]

    def run(self, stack: Stack) -> tuple[Outcomes, ...]:
        """Send the phase through L2 and return what it makes of the traffic, group by group."""
        stack.begin()
        for residency in self._residencies:
            residency.resident = residency.dirty = 0
        # Where in its tensor a residency begins: behind those that were accessed for the first time before
        # it.
        begin = dict.fromkeys(self._ends, 0)
        newest: dict[int, _Fetch | None] = {}
        fetches: list[_Fetch] = []
        pushed = 0
        for access in self._accesses:
            residency, traffic = access.residency, access.transfers[0].traffic
            if id(residency) not in newest:
                newest[id(residency)] = None
                stack.find(residency, self._ends[residency.tensor], begin[residency.tensor])
                begin[residency.tensor] += residency.size
            fetched, through = stack.access(residency, traffic)
            pushed += through + stack.make_room()
            fetch = newest[id(residency)]
            if fetched:
                fetch = newest[id(residency)] = _Fetch(fetched)
                fetches.append(fetch)
            # A write needs nothing of what was fetched, so it has no part in the fetching.
            if fetch is not None and traffic.kind != "write":
                fetch.join(access)
        return self._outcomes(fetches, pushed)

    def _outcomes(self, fetches: Sequence[_Fetch], pushed: int) -> tuple[Outcomes, ...]:
        """Say what every transfer meets, the mean over the cores of its group."""
        made = self.together()
        if pushed:
            self._push(pushed, made)
        # The program is one for all cores of a group, so each of its transfers has the mean of their
        # outcomes. Equal outcomes are one object, here and below: timing looks them up by identity. Both
        # sides are kept, so that no identity is used twice.
        known: dict[Hashable, tuple[L2Outcome, L2Outcome]] = {}
        for fetch in fetches:
            for transfer, cores, readers in fetch.found:
                moved = self._cores[transfer.group] * transfer.slice.bytes
                mine = made[transfer.group]
                before = mine.get(transfer.instruction, HIT)
                key = id(before), fetch.fetched, cores, moved, fetch.cores, readers
                if key not in known:
                    part = Fraction(fetch.fetched * cores, moved) / fetch.cores
                    known[key] = before, _both(before, part, readers)
                mine[transfer.instruction] = known[key][1]
        return made

    def together(self) -> tuple[dict[int, L2Outcome], ...]:
        """Say which bytes are read by several cores in one round, as if all of them were in L2."""
        made: tuple[dict[int, L2Outcome], ...] = tuple({} for _ in self._cores)
        known: dict[tuple[Share, int], L2Outcome] = {}
        for access in self._accesses:
            if access.readers > 1 and access.transfers[0].traffic.kind == "read":
                for transfer, cores in zip(access.transfers, access.cores, strict=True):
                    key = cores, self._cores[transfer.group]
                    outcome = known.get(key)
                    if outcome is None:
                        outcome = known[key] = L2Outcome(together=whole(Fraction(*key)))
                    made[transfer.group][transfer.instruction] = outcome
        return made

    def _push(self, pushed: int, made: tuple[dict[int, L2Outcome], ...]) -> None:
        """Let transfers carry what is pushed out: the reads, or the writes if more is written."""
        # Write-back goes on in the background and belongs to no transfer, but it takes its part of the link.
        # Spread evenly over a phase it slows what moves most, and no single transfer waits for all of it.
        moved = {"read": 0, "write": 0}
        for lane in self._lanes:
            for transfer in lane:
                size = self._cores[transfer.group] * transfer.slice.bytes
                moved[transfer.traffic.direction] += size
        carrier = "read" if moved["read"] >= moved["write"] else "write"
        part = Fraction(pushed, moved[carrier])
        known: dict[int, tuple[L2Outcome, L2Outcome]] = {}
        for lane, mine in zip(self._lanes, made, strict=True):
            for transfer in lane:
                if transfer.traffic.direction == carrier:
                    before = mine.get(transfer.instruction, HIT)
                    if id(before) not in known:
                        known[id(before)] = before, before._replace(pushed_out=part)
                    mine[transfer.instruction] = known[id(before)][1]


def _both(outcome: L2Outcome, fetched: Share, readers: Share) -> L2Outcome:
    """Add fetched bytes to an outcome; a core waits for all that it waits for."""
    total = outcome.fetched + fetched
    waited = outcome.fetched * outcome.readers + fetched * readers
    return outcome._replace(fetched=whole(Fraction(total)), readers=whole(Fraction(waited) / total))


def account(kernel: Kernel, profile: Profile, l2_start: Start = "warm") -> L2Account:
    """Build and price the programs of a kernel, and decide what L2 makes of their traffic.

    Raises   AscendSimError for an unknown `l2_start`; ProgramError for traffic of a tensor that the kernel
             does not list
    """
    return account_of(_priced(kernel, profile), kernel, profile, l2_start)


def left_by(kernel: Kernel, profile: Profile, l2_start: Start = "warm") -> L2State:
    """Return what L2 holds after a kernel; another kernel may be timed with it as its `l2_start`.

    Tensors are known by their names, which the kernels of one call share. A change of layout that the cube's
    kernels make themselves gives its tensor another name, so what it would hand over in L2 is lost here.
    """
    phases = [PhaseAccesses(groups) for groups in _priced(kernel, profile)]
    stack = _begun(phases, kernel, profile, l2_start)
    for phase in phases:
        phase.run(stack)
    return stack.left()


def _priced(kernel: Kernel, profile: Profile) -> list[list[Group]]:
    """Return the priced programs of each phase, one for each group of equal cores."""
    book = CostBook(profile)
    return [
        [(len(cores), book.price(work.build(), work.core.kind)) for work, cores in phase.folded()]
        for phase in kernel.phases
    ]


def account_of(
    phases: Sequence[Sequence[Group]], kernel: Kernel, profile: Profile, l2_start: Start
) -> L2Account:
    """Decide what L2 makes of the traffic of programs already priced, group by group."""
    if isinstance(l2_start, str) and l2_start not in L2_STARTS:
        raise AscendSimError(f"l2_start is {l2_start!r}; it must be one of {', '.join(L2_STARTS)}")
    # Bytes between cores and L2 do not depend on what is in it.
    moved = _bytes_moved(phases, kernel)
    # Where cores lose nothing by reading the same bytes, nobody asks who reads what together.
    contended = profile.links["l2_read"].shared_efficiency < 1
    sizes = [tensor.size_bytes for tensor in kernel.tensors.values() if tensor.cached]
    # A tensor that L2 does not keep is missed however large L2 is, so then nothing "fits".
    fits = sum(sizes) <= profile.l2.capacity_bytes and len(sizes) == len(kernel.tensors)
    if l2_start == "warm" and fits:
        # Nothing is missed, so the only question is what cores read at the same time.
        outcomes: tuple[tuple[Outcomes, ...], ...] = tuple(
            PhaseAccesses(groups).together() if contended else tuple({} for _ in groups) for groups in phases
        )
        return L2Account(outcomes, moved | {"memory": 0, "memory_read": 0, "memory_write": 0})
    accesses = [PhaseAccesses(groups) for groups in phases]
    stack = _begun(accesses, kernel, profile, l2_start)
    outcomes = tuple(phase.run(stack) for phase in accesses)
    # What several cores miss at one time comes for each of them, `most_fetches` times at most.
    again = sum(
        cores * priced.prices[index].traffic.bytes * made.fetched * (min(made.readers, most) - 1)
        for most in [profile.l2.most_fetches]
        for groups, phase in zip(phases, outcomes, strict=True)
        for (cores, priced), found in zip(groups, phase, strict=True)
        for index, made in found.items()
    )
    read = stack.read_bytes + round(again)
    memory = read + stack.written_bytes
    by_memory = {"memory": memory, "memory_read": read, "memory_write": stack.written_bytes}
    return L2Account(outcomes, moved | by_memory, None if isinstance(l2_start, str) else stack.left())


def _begun(phases: Sequence[PhaseAccesses], kernel: Kernel, profile: Profile, l2_start: Start) -> Stack:
    """Return L2 as it is when the kernel begins."""
    stack = Stack(profile.l2.capacity_bytes)
    if not isinstance(l2_start, str):
        stack.take(l2_start)
    elif l2_start == "warm":
        # This run only says what the next one finds; its own bytes count for nothing.
        for phase in phases:
            phase.run(stack)
        stack.forget_bytes()
    elif l2_start == "handed":
        # The zeros to which the first phase adds, then the first input.
        added = phases[0].added_to() if phases else set()
        names = [name for name in kernel.tensors if name in added]
        newest = [kernel.tensors[name] for name in dict.fromkeys([*names, next(iter(kernel.tensors))])]
        # Behind these, in what room they leave, other inputs that the call has brought into the cube's
        # layout; the last one has gone furthest.
        room = profile.l2.capacity_bytes - sum(tensor.size_bytes for tensor in newest)
        for tensor in list(kernel.tensors.values())[::-1] if profile.l2.operands_handed else []:
            if tensor.role == "input" and tensor.layout in ("NDC1HWC0", "DC1HWC0N") and tensor not in newest:
                stack.hold(tensor.name, min(tensor.size_bytes, max(room, 0)))
                room -= tensor.size_bytes
        for tensor in newest:
            stack.hold(tensor.name, tensor.size_bytes)
    return stack


def _bytes_moved(phases: Sequence[Sequence[Group]], kernel: Kernel) -> dict[str, int]:
    """Return the bytes that the cores move through L2."""
    moved = {"l2_read": 0, "l2_write": 0}
    for groups in phases:
        for cores, priced in groups:
            for index in priced.moving:
                traffic = priced.prices[index].traffic
                if traffic.tensor.name not in kernel.tensors:
                    raise ProgramError(
                        f"kernel {kernel.name} moves bytes of {traffic.tensor.name}, which is not among its "
                        f"tensors {', '.join(kernel.tensors)}; add it to Kernel.tensors"
                    )
                moved[f"l2_{traffic.direction}"] += cores * traffic.bytes
    return moved
