"""Which reads miss L2, decided in one pass over the kernel before it is timed.

Every read passes L2; a share of it, per tensor, is served by main memory. The share depends only on how
large the kernel's tensors are, how much of each is read, and what L2 holds when the kernel starts:

- **warm**: what fits is there already. A kernel whose tensors all fit misses nothing.
- **cold**: nothing is there. The first touch of every byte of an input misses, once for all cores.
- If the tensors together exceed the capacity, the part that cannot stay, 1 - capacity / footprint, misses
  whenever a byte is touched that would have been there otherwise.
- A workspace that the kernel has written is in L2 like everything else; writes and atomics are absorbed.

All reads of one tensor have the same share. Who is first to touch a byte would depend on the order of the
cores; sharing the miss among all readers keeps equal cores equal. A cache that follows single tiles takes
this place when the memory system is refined.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING

from ascendsim.costing import CostBook, PricedProgram
from ascendsim.errors import AscendSimError, ProgramError
from ascendsim.program import GmTensor, Kernel

if TYPE_CHECKING:
    from ascendsim.profile import Profile

L2_STARTS = ("warm", "cold")


@dataclass(frozen=True, slots=True)
class L2Account:
    """Tensor name -> share of its reads that miss (0 to 1), and the kernel's bytes by source."""

    misses: Mapping[str, Fraction]
    bytes: Mapping[str, int]


def account(kernel: Kernel, profile: Profile, l2_start: str = "warm") -> L2Account:
    """Build and price the programs of a kernel, and decide which of its reads miss.

    Raises   AscendSimError for an unknown `l2_start`; ProgramError for traffic of a tensor that the kernel
             does not list
    """
    book = CostBook(profile)
    priced = (
        (len(cores), book.price(work.build(), work.core.kind))
        for phase in kernel.phases
        for work, cores in phase.folded()
    )
    return account_of(priced, kernel, profile, l2_start)


def account_of(
    programs: Iterable[tuple[int, PricedProgram]], kernel: Kernel, profile: Profile, l2_start: str
) -> L2Account:
    """Decide which reads miss, from programs already priced and the number of cores each stands for."""
    if l2_start not in L2_STARTS:
        raise AscendSimError(f"l2_start is {l2_start!r}; it must be one of {', '.join(L2_STARTS)}")
    read = dict.fromkeys(kernel.tensors, 0)
    written = 0
    for cores, priced in programs:
        for traffic, count in priced.traffic.items():
            moved = cores * count * traffic.bytes
            if traffic.tensor.name not in read:
                raise ProgramError(
                    f"kernel {kernel.name} moves bytes of {traffic.tensor.name}, which is not among its "
                    f"tensors {', '.join(read)}; add it to Kernel.tensors"
                )
            if traffic.kind == "read":
                read[traffic.tensor.name] += moved
            else:
                written += moved
    gone = _share_that_cannot_stay(kernel, profile.l2.capacity_bytes)
    cold = l2_start == "cold"
    misses = {
        name: _miss_share(kernel.tensors[name], amount, gone, cold) for name, amount in read.items() if amount
    }
    memory = sum((misses[name] * amount for name, amount in read.items() if amount), Fraction(0))
    return L2Account(misses, {"l2_read": sum(read.values()), "l2_write": written, "memory": ceil(memory)})


def _share_that_cannot_stay(kernel: Kernel, capacity_bytes: int) -> Fraction:
    """Return the part of the kernel's footprint that L2 cannot hold."""
    footprint = sum(tensor.size_bytes for tensor in kernel.tensors.values())
    return Fraction(max(0, footprint - capacity_bytes), max(1, footprint))


def _miss_share(tensor: GmTensor, read_bytes: int, gone: Fraction, cold: bool) -> Fraction:
    """Return the share of a tensor's reads that miss: first touches, then touches again."""
    first = Fraction(min(tensor.size_bytes, read_bytes), read_bytes)
    first_miss = Fraction(1) if cold and tensor.role == "input" else gone
    return first * first_miss + (1 - first) * gone
