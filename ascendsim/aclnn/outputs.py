"""The memory of outputs: what can be written, and written once."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import TYPE_CHECKING, Any

from ascendsim.errors import AclnnError
from ascendsim.ops.problems.views import share_places

if TYPE_CHECKING:
    from numpy.typing import NDArray

RUNTIME = 361001  # ACLNN_ERR_RUNTIME_ERROR
MOST_WORK: Any = 10**6  # numpy's annotations know no number of steps


def require_writable(outputs: Mapping[str, NDArray[Any]]) -> None:
    """Refuse outputs that cannot hold their gradients.

    Raises   AclnnError 361001 for read-only memory, elements that share a place, outputs that do
    """
    for name, array in outputs.items():
        if not array.flags.writeable:
            raise AclnnError(
                RUNTIME, "run", f"the array of {name} is read-only; pass one that can be written"
            )
        if overlaps_itself(array):
            raise AclnnError(
                RUNTIME,
                "run",
                f"{name} of shape {array.shape} and strides {array.strides} bytes has elements in the same "
                "place; each needs one of its own",
            )
    for (one, first), (two, second) in combinations(outputs.items(), 2):
        if _overlap(first, second):
            raise AclnnError(RUNTIME, "run", f"{one} and {two} lie in the same memory; each needs its own")


def overlaps_itself(array: NDArray[Any]) -> bool:
    """Tell whether two elements of an array share a byte."""
    return share_places(array.shape, array.strides, array.itemsize)


def _overlap(one: NDArray[Any], two: NDArray[Any]) -> bool:
    """Tell whether two arrays share a byte."""
    import numpy as np

    try:
        return np.shares_memory(one, two, max_work=MOST_WORK)
    except np.exceptions.TooHardError:
        return True
