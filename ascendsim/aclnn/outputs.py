"""The memory of outputs: what can be written, and written once."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import TYPE_CHECKING, Any

from ascendsim.errors import AclnnError

if TYPE_CHECKING:
    from numpy.typing import NDArray

RUNTIME = 361001  # ACLNN_ERR_RUNTIME_ERROR
# To compare places one by one; where that would take longer, memory that looks shared counts as shared.
MOST_COMPARED = 2**24
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
    if array.size == 0:
        return False
    import numpy as np

    axes = sorted((abs(step), extent) for extent, step in zip(array.shape, array.strides, strict=True))
    steps = [(step, extent) for step, extent in axes if extent > 1]
    # The usual case: along every axis the next element lies behind all that the shorter steps reach.
    reach, apart = array.itemsize, True
    for step, extent in steps:
        apart = apart and step >= reach
        reach += step * (extent - 1)
    if apart:
        return False
    if array.size * array.itemsize > reach or array.size > MOST_COMPARED:
        return True
    places = np.zeros(1, np.int64)
    for step, extent in steps:
        places = np.add.outer(places, step * np.arange(extent)).ravel()
    return bool((np.diff(np.sort(places)) < array.itemsize).any())


def _overlap(one: NDArray[Any], two: NDArray[Any]) -> bool:
    """Tell whether two arrays share a byte."""
    import numpy as np

    try:
        return np.shares_memory(one, two, max_work=MOST_WORK)
    except np.exceptions.TooHardError:
        return True
