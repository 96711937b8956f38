"""The account of L2: what it holds, decided in one pass over a kernel before that is timed.

The pass goes through the transfers of all cores in issue order, in rounds: the first of every core, the
second of every core, and so on. Each is an access to L2, a stack with the bytes accessed last on top; what
lies deeper than the capacity has gone. So a larger L2 never misses more.

- **Residencies** are what a slice of GM that transfers name has in L2. A read brings in what is missing. A
  write takes its place without a read and leaves it dirty; an atomic add reads what it adds to. A tensor that
  is not `cached` is looked up but not kept.
- **Many cores, one slice.** What is missing of it comes once; the cores that find it there, until it has gone
  again, have equal parts of the fetching. Those that come in the same round wait for each other's parts too;
  where L2 does not merge their misses (`most_fetches`) the parts cross the link for each of them.
  Of equal cores the pass knows one: the others have slices of their own as far as the tensor is large enough
  for that, and share them beyond. So equal cores stay equal, and folding changes no cycle.
- **Write-back** happens in the background: every byte read in a phase carries its part of the dirty bytes
  that are pushed out in it; every byte written, if more is written than read. What is dirty at the end of
  the kernel stays.
- **Between phases** (and runs) tensors are cut into other slices. Of what was there only the amount is kept,
  per tensor; it goes first, from all tensors alike, and is found by accesses that come in the same order, so
  by the last of them. So where L2 overflows one more tensor there may cost time: it pushes out part of those
  that are needed sooner.
- **Start.** Cold: empty. Warm: as the same kernel leaves it that began cold. A warm kernel that fits misses
  nothing. Handed: the first input, clean and spread evenly, as another kernel has written it, and before it
  tensors to which the first phase adds, whose zeros are even newer; behind it other operands in the cube's
  layout where every call brings them into it (`l2.operands_handed`). In a step of a network that is larger
  than L2 weights and stored activations have gone by the time they are needed again.
  Or what another kernel has left (`left_by`).

The result of L2 for a transfer is an `L2Outcome` (`phase.py` has an example). The pass is compiled:
`slices.py` numbers slices and groups cores, and `lru.py` walks the slices from the latest to the oldest use.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ascendsim.errors import AscendSimError, ProgramError
from ascendsim.program.instruction import Traffic
from ascendsim.program.kernel import Kernel
from ascendsim.timing.l2 import L2_STARTS
from ascendsim.timing.l2.held import L2Stack, L2State
from ascendsim.timing.l2.phase import (
    HIT,
    Accesses,
    Group,
    L2Outcome,
    Outcomes,
    PhaseLanes,
    PhaseOutcomes,
    lanes_of,
    outcomes,
    prepared,
    run,
)
from ascendsim.timing.l2.slices import L2_READ, L2_WRITTEN
from ascendsim.timing.times import CostBook

if TYPE_CHECKING:
    from ascendsim.profile import Profile

# One of them, or what the kernel before has left.
Start = str | L2State


class L2Account(NamedTuple):
    """For each phase and group of equal cores the outcomes, the kernel's bytes by source, what it leaves.

    `left` is the content of L2 after the kernel, where that before it is known tensor by tensor; else None
    """

    outcomes: tuple[tuple[Outcomes, ...], ...]
    bytes: Mapping[str, int]
    left: L2State | None = None


class LanesAccount(NamedTuple):
    """The account for each phase by the numbers of lanes, the rest as of an `L2Account`."""

    phases: tuple[PhaseOutcomes, ...]
    bytes: Mapping[str, int]
    left: L2State | None = None


def account(kernel: Kernel, profile: Profile, l2_start: Start = "warm") -> L2Account:
    """Build and price the programs of a kernel, and decide what L2 makes of their traffic.

    Raises   AscendSimError for an unknown `l2_start`; ProgramError for traffic of a tensor that the kernel
             does not list
    """
    return account_of(_priced(kernel, profile), kernel, profile, l2_start)


def account_of(
    phases: Sequence[Sequence[Group]], kernel: Kernel, profile: Profile, l2_start: Start
) -> L2Account:
    """Decide what L2 makes of the traffic of programs already priced, group by group."""
    made = account_of_lanes([lanes_of(groups) for groups in phases], kernel, profile, l2_start)
    return L2Account(
        tuple(
            tuple([phase.of_lane(lane, priced.moving) for lane, (_, priced) in enumerate(groups)])
            for phase, groups in zip(made.phases, phases, strict=True)
        ),
        made.bytes,
        made.left,
    )


def account_of_lanes(
    phases: Sequence[PhaseLanes], kernel: Kernel, profile: Profile, l2_start: Start
) -> LanesAccount:
    """Decide what L2 makes of transfers given by number, lane by lane.

    Raises   as `account`
    """
    if isinstance(l2_start, str) and l2_start not in L2_STARTS:
        raise AscendSimError(f"l2_start is {l2_start!r}; it must be one of {', '.join(L2_STARTS)}")
    accesses = _accesses(phases, kernel, l2_start)
    # Bytes between cores and L2 do not depend on what is in it.
    moved = {
        name: sum(int(phase.moved[place]) for phase in accesses)
        for name, place in (("l2_read", L2_READ), ("l2_write", L2_WRITTEN))
    }
    if only_hits(kernel, profile, l2_start):
        # The only question is what cores read at the same time.
        made = tuple(map(outcomes, accesses) if _contended(profile) else map(_hits, phases))
        return LanesAccount(made, moved | {"memory": 0, "memory_read": 0, "memory_write": 0})
    stack = _begun(accesses, kernel, profile, l2_start)
    made = tuple([outcomes(phase, run(phase, stack)) for phase in accesses])
    most = profile.l2.most_fetches
    read = stack.read_bytes + (fetched_again(phases, made, most) if most > 1 else 0)
    by_memory = {
        "memory": read + stack.written_bytes,
        "memory_read": read,
        "memory_write": stack.written_bytes,
    }
    # After a start that is a word nobody asks: it holds for each kernel alike.
    return LanesAccount(made, moved | by_memory, None if isinstance(l2_start, str) else stack.left())


def fetched_again(phases: Sequence[PhaseLanes], made: Sequence[PhaseOutcomes], most: int) -> int:
    """Return the bytes that cross the link to memory once more, as several cores miss them at one time."""
    total = Fraction(0)
    for phase, found in zip(phases, made, strict=True):
        if any(each.fetched and min(each.readers, most) > 1 for each in found.outcomes):
            for traffic, count, each in met_by(phase, found):
                total += count * traffic.bytes * each.fetched * (min(each.readers, most) - 1)
    return round(total)


def met_by(phase: PhaseLanes, found: PhaseOutcomes) -> Iterator[tuple[Traffic, int, L2Outcome]]:
    """Yield each traffic of a phase with each of its outcomes, and how many transfers of all cores had it."""
    width = len(found.outcomes)
    for lane, numbers in zip(phase.lanes, found.numbers, strict=True):
        keys, counts = np.unique(lane.traffics.astype(np.int64) * width + numbers, return_counts=True)
        for key, count in zip(keys.tolist(), counts.tolist(), strict=True):
            traffic, outcome = divmod(key, width)
            yield phase.traffics[traffic], lane.cores * count, found.outcomes[outcome]


def only_hits(kernel: Kernel, profile: Profile, l2_start: Start) -> bool:
    """Return whether L2 holds all that a kernel moves from its begin on, so that nothing is missed."""
    sizes = [tensor.size_bytes for tensor in kernel.tensors.values() if tensor.cached]
    # A tensor that L2 does not keep is missed however large L2 is, so then nothing "fits".
    fits = sum(sizes) <= profile.l2.capacity_bytes and len(sizes) == len(kernel.tensors)
    return l2_start == "warm" and fits


def asks_for_slices(traffics: Sequence[Traffic], profile: Profile) -> frozenset[str]:
    """Return the tensors whose slices matter even in a kernel that only hits.

    Those that the `traffics` of a phase read: cores that read the same bytes together lose by it. Writes hit
    whoever makes them, and their bytes do not depend on it.
    """
    if not _contended(profile):
        return frozenset()
    return frozenset([traffic.tensor.name for traffic in traffics if traffic.kind == "read"])


def _contended(profile: Profile) -> bool:
    """Return whether cores lose anything by reading the same bytes, so that it counts who reads what."""
    return profile.links["l2_read"].shared_efficiency < 1


def left_by(kernel: Kernel, profile: Profile, l2_start: Start = "warm") -> L2State:
    """Return the content of L2 after a kernel; another kernel may be timed with it as its `l2_start`.

    Tensors are known by their names, which the kernels of one call share.
    """
    phases = _accesses([lanes_of(groups) for groups in _priced(kernel, profile)], kernel, l2_start)
    stack = _begun(phases, kernel, profile, l2_start)
    for phase in phases:
        run(phase, stack)
    return stack.left()


def _priced(kernel: Kernel, profile: Profile) -> list[list[Group]]:
    """Return the priced programs of each phase, one for each group of equal cores."""
    book = CostBook(profile)
    return [
        [(len(cores), book.price(work.build(), work.core.kind)) for work, cores in phase.folded()]
        for phase in kernel.phases
    ]


def _names(kernel: Kernel, l2_start: Start) -> list[str]:
    """Return all tensors that L2 may hold: those of the kernel, then those that the one before has left."""
    return list(dict.fromkeys([*kernel.tensors, *(() if isinstance(l2_start, str) else l2_start)]))


def _accesses(phases: Sequence[PhaseLanes], kernel: Kernel, l2_start: Start) -> list[Accesses]:
    """Return the accesses of each phase, all of them to tensors of the kernel."""
    for phase in phases:
        for traffic in phase.traffics:
            if traffic.tensor.name not in kernel.tensors:
                raise ProgramError(
                    f"kernel {kernel.name} moves bytes of {traffic.tensor.name}, which is not among its "
                    f"tensors {', '.join(kernel.tensors)}; add it to Kernel.tensors"
                )
    numbers = {name: number for number, name in enumerate(_names(kernel, l2_start))}
    return [prepared(phase, numbers) for phase in phases]


def _hits(phase: PhaseLanes) -> PhaseOutcomes:
    """Return the outcomes of a phase that only hits."""
    return PhaseOutcomes(tuple([np.zeros(len(lane.traffics), np.int32) for lane in phase.lanes]), (HIT,))


def _begun(phases: Sequence[Accesses], kernel: Kernel, profile: Profile, l2_start: Start) -> L2Stack:
    """Return L2 as it is when the kernel begins."""
    stack = L2Stack(profile.l2.capacity_bytes, _names(kernel, l2_start))
    if not isinstance(l2_start, str):
        stack.take(l2_start)
    elif l2_start == "warm":
        # This run only says what the next one finds; its own bytes count for nothing.
        for phase in phases:
            run(phase, stack)
        stack.forget_bytes()
    elif l2_start == "handed":
        # Zeros to which the kernel adds are a MemSet's just before. Kernels list their tensors with the one
        # first that another kernel hands over; where each call brings its operands into the cube's layout,
        # the others come from the kernels before, too.
        tensors = list(kernel.tensors.values())
        zeros = phases[0].added_to() if phases else ()
        first = range(len(tensors[:1]))  # none of a kernel that moves nothing
        newest = {number: tensors[number] for number in dict.fromkeys([*zeros, *first])}
        if profile.l2.operands_handed:
            left = profile.l2.capacity_bytes - sum([tensor.size_bytes for tensor in newest.values()])
            others = [each for n, each in enumerate(tensors) if each.laid_out and n not in newest]
            for tensor in reversed([each for each in others if each.role == "input"]):
                stack.hold(tensor.name, min(tensor.size_bytes, max(0, left)))
                left -= tensor.size_bytes
        for tensor in newest.values():
            stack.hold(tensor.name, tensor.size_bytes)
    return stack
