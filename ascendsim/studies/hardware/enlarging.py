"""Every figure of a product made better, each alone: rates and sizes twice as large, times half as long."""

from __future__ import annotations

from typing import Any

from ascendsim.frozen import FrozenMap
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.profile import Change, Profile

# Figures of size and number, of which more is better. The two clocks of a product are one oscillator.
SIZES = (
    {"cores.cube", "cores.vector"},
    {"clock.cube_mhz", "clock.vector_mhz"},
    *({f"buffers.{name}.capacity_bytes"} for name in ("L1", "L0A", "L0B", "L0C", "UB", "BT", "FB")),
    {"l2.capacity_bytes"},
)
# Neither speed nor size: what a product is, what its numbers mean, and marks.
_NOT_SPEED = ("cores.", "buffers.", "cube.rates.", "l2.", "accumulation.", "clock.")
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
    """Return a faster value of a figure of speed; None of what is none.

    A share becomes a tenth larger, at most 1; a whole number of cycles is rounded down, to the least that a
    product file may give.
    """
    name = path.rpartition(".")[2]
    if isinstance(value, bool | str | list | tuple) or path.startswith(_NOT_SPEED) or name in _NOT_SPEEDS:
        return None
    if name in ("efficiency", "shared_efficiency"):
        return min(1.0, 1.1 * value)
    # The nearest part of L2 answers so much earlier; queues and buffers hold more.
    if name in ("spread_cycles", "buffer_bytes") or path.startswith("queues."):
        return 2 * value
    if name in ("request_fixed_share", "row_cycles", "m_stall_share"):
        return value / 2
    if "cycles_per" in name or name.endswith("_cycles") or ".repeat_cycles." in path or "_cycles." in path:
        return max(_least(path), value // 2 if isinstance(value, int) else value / 2)
    if name.endswith("_us"):
        return value / 2
    if "per_cycle" in path or name.endswith("tb_per_s"):
        return type(value)(2 * value)
    return None


def _least(path: str) -> int:
    return 1 if path.startswith(("vector.repeat", "vector.kind")) or ".cycles_per_stride" in path else 0


def _follows(path: str, profile: Profile) -> bool:
    return profile.figures[path].confidence == "derived" and path.endswith(_FOLLOWS)


def _change(values: dict[str, Any]) -> Change:
    # All digits of a size: the name can be given to --change, and 4.02653e+08 bytes are other ones.
    return Change("+".join(f"{path}={value:.12g}" for path, value in values.items()), FrozenMap(values))
