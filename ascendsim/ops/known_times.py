"""The times of kernels, remembered from call to call.

The layers of a network change the layout of the same shapes again and again, and a tuning run does it with
every tiling. What such a kernel takes follows from few things; two that agree in all of them take the same
cycles. Kernels of the cube are timed anew each time, but for those of calls that are remembered as a whole
(`lowering/known.py`), and for phases of theirs that clear or convert a tensor.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple
from weakref import ref

from ascendsim.profile import Profile
from ascendsim.program.kernel import Kernel
from ascendsim.program.places import GmTensor
from ascendsim.timing.kernel import measure_kernel
from ascendsim.timing.l2.account import Start, only_hits
from ascendsim.timing.times import KernelTimes, PhaseAlone


def known_times(
    kernel: Kernel, profile: Profile, *, folded: bool, l2_start: Start, stop_above: int | None = None
) -> KernelTimes:
    """Return where the cycles of a kernel went, as `measure_kernel` does.

    Raises   StoppedError where a kernel that is not remembered takes more than `stop_above` cycles
    """
    if kernel.recipe is None or not isinstance(l2_start, str):
        # What another kernel has left in L2 names tensors, and is hardly ever met again.
        alone = _alone(kernel, profile, folded) if only_hits(kernel, profile, l2_start) else {}
        return measure_kernel(
            kernel, profile, folded=folded, l2_start=l2_start, stop_above=stop_above, alone=alone
        )
    tensors = tuple([_Shaped.of(tensor) for tensor in kernel.tensors.values()])
    asked = _Asked(kernel.recipe, tensors, folded, l2_start, profile.told, ref(kernel), ref(profile))
    return _remembered(asked)._replace(kernel=kernel.name)


def _alone(kernel: Kernel, profile: Profile, folded: bool) -> dict[int, PhaseAlone]:
    """Return the phases of a kernel that misses nothing which are remembered, by their numbers."""
    return {
        number: _remembered_phase(
            _Phase(phase.recipe, folded, profile.told, number, ref(kernel), ref(profile))
        )
        for number, phase in enumerate(kernel.phases)
        if phase.recipe is not None
    }


class _Shaped(NamedTuple):
    """A tensor without its name."""

    shape: tuple[int, ...]
    dtype: str
    itemsize: int
    role: str
    cached: bool
    laid_out: bool

    @classmethod
    def of(cls, tensor: GmTensor) -> _Shaped:
        """Return all of a tensor that cycles may follow from."""
        return cls(tensor.shape, tensor.dtype, tensor.itemsize, tensor.role, tensor.cached, tensor.laid_out)


@dataclass(frozen=True)
class _Asked:
    """All that the times of a kernel follow from; kernel and profile are not kept alive by what is known."""

    recipe: Hashable
    tensors: tuple[_Shaped, ...]
    folded: bool
    l2_start: str
    machine: str
    kernel: ref[Kernel] = field(compare=False)
    profile: ref[Profile] = field(compare=False)


@dataclass(frozen=True)
class _Phase:
    """All that the times of a phase follow from, and where it is met first."""

    recipe: Hashable
    folded: bool
    machine: str
    number: int = field(compare=False)
    kernel: ref[Kernel] = field(compare=False)
    profile: ref[Profile] = field(compare=False)


# So many are the changes of layout, zeros and sums of a network of a hundred layers.
@lru_cache(maxsize=512)
def _remembered(asked: _Asked) -> KernelTimes:
    kernel, profile = asked.kernel(), asked.profile()
    # They are the caller's, who still holds them.
    assert kernel is not None
    assert profile is not None
    return measure_kernel(kernel, profile, folded=asked.folded, l2_start=asked.l2_start)


@lru_cache(maxsize=512)
def _remembered_phase(asked: _Phase) -> PhaseAlone:
    kernel, profile = asked.kernel(), asked.profile()
    assert kernel is not None
    assert profile is not None
    made = measure_kernel(
        replace(kernel, phases=(kernel.phases[asked.number],)), profile, folded=asked.folded
    )
    return PhaseAlone(made.phases[0], made.bytes)
