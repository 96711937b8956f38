"""Which way a figure is better, every figure made better, and which design fits inside another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ascendsim.frozen import FrozenMap
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.profile import Change, Profile
from ascendsim.studies.hardware.records import CORES

# Figures of size and number where more is better. The two clocks of a product are one oscillator.
SIZES = (
    {"cores.cube", "cores.vector"},
    {"clock.cube_mhz", "clock.vector_mhz"},
    *({f"buffers.{name}.capacity_bytes"} for name in ("L1", "L0A", "L0B", "L0C", "UB", "BT", "FB")),
    {"l2.capacity_bytes"},
)
# Neither speed nor size: what a product is, what its numbers mean, and marks.
_NOT_SPEED = ("cores.", "buffers.", "cube.rates.", "l2.", "accumulation.", "clock.", "energy.")
_NOT_SPEEDS = ("m0", "n0", "same_l0c_spacing_cycles", "hf32_mantissa_bits", "fractal_bytes", "request_bytes")
# What follows from other figures, and cannot be changed itself.
_FOLLOWS = ("total_bytes_per_cycle", "barrier_cycles", "start_cycles", "macs_per_cycle")


@default_arithmetic
def enlargings(profile: Profile) -> tuple[Change, ...]:
    """Return a change for each figure that can be better: half the time, twice the rate, size or number.

    The names are those of `--change`. A rate of the cube follows from the sizes of its block, so that it is
    no figure of its own; the numbers of cube and vector cores change together, and so do both clocks.
    """
    found = [
        _change({path: better_value(path, figure.value)})
        for path, figure in profile.figures.items()
        if better_value(path, figure.value) not in (None, figure.value) and not _follows(path, profile)
    ]
    for paths in SIZES:
        known = {path: profile.figures[path].value for path in sorted(paths) if path in profile.figures}
        doubled = {path: 2 * value for path, value in known.items() if value}
        if doubled:
            found.append(_change(doubled))
    return tuple(found)


def better_value(path: str, value: Any) -> Any:
    """Return a faster value of a figure of speed; None for other figures.

    A share becomes a tenth larger, at most 1; a whole number of cycles is rounded down, to the least that a
    product file may give.
    """
    way = _speed(path, value)
    if not way:
        return None
    if path.endswith("efficiency"):
        return min(1.0, 1.1 * value)
    if way > 0:
        return type(value)(2 * value)
    return max(_least(path), value // 2) if isinstance(value, int) else value / 2


def _speed(path: str, value: Any) -> int:
    """Return 1 for a figure of speed that is better where it is more, -1 where it is less, 0 for others."""
    name = path.rpartition(".")[2]
    if isinstance(value, bool | str | list | tuple) or path.startswith(_NOT_SPEED) or name in _NOT_SPEEDS:
        return 0
    # The nearest part of L2 answers so much earlier; queues and buffers hold more.
    if name in ("efficiency", "shared_efficiency", "spread_cycles", "buffer_bytes"):
        return 1
    if path.startswith("queues."):
        return 1
    if name in ("request_fixed_share", "row_cycles", "m_stall_share") or name.endswith(("_cycles", "_us")):
        return -1
    if "cycles_per" in name or "_cycles." in path:
        return -1
    return 1 if "per_cycle" in path or name.endswith("tb_per_s") else 0


def sense(path: str, value: Any) -> int:
    """Return 1 for a figure of which more is better, of size or speed, -1 for less, 0 where neither is."""
    return 1 if any(path in sizes for sizes in SIZES) else _speed(path, value)


def fits_inside(small: Mapping[str, Any], large: Mapping[str, Any], profile: Profile) -> bool:
    """Return whether a design has nothing that another has not: no larger size, no faster part.

    Both are figures of a product that are replaced, dotted path -> value. Whatever runs on the one then runs
    on the other, which may leave unused what it has more.
    """
    for path in small.keys() | large.keys():
        own = profile.figures[path].value
        less, more = small.get(path, own), large.get(path, own)
        way = sense(path, own)
        if less != more and (not way or (more - less) * way < 0):
            return False
    return True


def held_to(
    values: Mapping[str, Any], others: Mapping[str, Any], profile: Profile
) -> list[FrozenMap[str, Any]]:
    """Return the sizes that a design has more of than another, as the other has them; none where it has none.

    Cores may stay idle and buffers be filled in part. Some loop nests fill a buffer whatever their plan says,
    and kernels beside the products are launched on all vector cores: so less may take less time. More cores
    of each kind may also stay idle by themselves.
    """
    own = {
        path: profile.figures[path].value
        for path in values.keys() | others.keys()
        if path in CORES or (path.startswith("buffers.") and path.endswith(".capacity_bytes"))
    }
    has = {path: values.get(path, usual) for path, usual in own.items()}
    held = {path: size for path, usual in own.items() if (size := others.get(path, usual)) < has[path]}
    idle = held.keys() & set(CORES)
    # The number of the other cores would follow that of one kind alone.
    cores = {path: values.get(path, profile.figures[path].value) for path in CORES} if idle else {}
    kinds = [cores | held | {path: cores[path]} for path in sorted(idle)] if len(idle) > 1 else []
    return [FrozenMap(sizes) for sizes in (cores | held, *kinds) if sizes]


def _least(path: str) -> int:
    return 1 if path.startswith(("vector.repeat", "vector.kind")) or ".cycles_per_stride" in path else 0


def _follows(path: str, profile: Profile) -> bool:
    return profile.figures[path].confidence == "derived" and path.endswith(_FOLLOWS)


def _change(values: dict[str, Any]) -> Change:
    # All digits of a size: the name can be given to --change, and 4.02653e+08 bytes are other ones.
    return Change("+".join(f"{path}={value:.12g}" for path, value in values.items()), FrozenMap(values))
