"""Stream-K: the tasks of the last round are cut along their reduction, so that all cores end together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ascendsim.ops.tiling.vendor.layer import ceil_div


class Tail(NamedTuple):
    """How the tasks of the last round are cut: into so many parts each, along one axis, so long.

    axis     "" (they are not), "batch_depth" (images and depths), or "height" (rows of grad_output)
    length   of a part along that axis
    """

    ways: int = 1
    axis: str = ""
    length: int = 0


def tail_along(extents: Mapping[str, int], tasks: int, cores: int) -> Tail:
    """Return how the last round is cut along the axis that gives most parts; of equal ones the first."""
    tail = tasks % cores
    if not tail or tail > cores // 2:
        return Tail()
    ways = cores // tail
    cuts = []
    for axis, extent in extents.items():
        length = ceil_div(extent, min(ways, extent))
        cuts.append(Tail(ceil_div(extent, length), axis, length))
    # Of equal ones the first, as max keeps it.
    most = max(cuts, key=lambda cut: cut.ways)
    return most if most.ways > 1 else Tail()
