"""The plan of one product: base block, L1 chunks, buffer copies and the share of each core."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from ascendsim.arguments import whole
from ascendsim.errors import ConfigError


@dataclass(frozen=True)
class Tiling:
    """How one gradient is cut into tiles; the names are the vendor's, in elements unless said otherwise.

    base_m, base_n, base_k
                   one L0C tile and the reduction of one Mmad. grad_input: m = pixels, n = channels,
                   k = (channel, tap); grad_weight: m = channels, n = (channel, tap), k = pixels
    step_ka, step_kb
                   slices of base_k that one L1 tile of the left and the right operand holds
    al1_buffers, bl1_buffers, al0_buffers, bl0_buffers, cl0_buffers
                   copies of each tile: 1, or 2 for ping-pong
    k_split        grad_weight: parts of the reduction that go to different cores; grad_input: parts of it,
                   cut by channel groups, that one core adds in float32 in global memory, one after the other
    used_cores     cores that get work

    Raises   ConfigError if a field is not a positive integer
    """

    base_m: int
    base_n: int
    base_k: int
    step_ka: int = 1
    step_kb: int = 1
    al1_buffers: int = 2
    bl1_buffers: int = 2
    al0_buffers: int = 2
    bl0_buffers: int = 2
    cl0_buffers: int = 1
    k_split: int = 1
    used_cores: int = 1

    def __post_init__(self) -> None:
        """Refuse what no schedule could execute."""
        for field in fields(self):
            value = getattr(self, field.name)
            number = whole(value)
            if number is None or number < 1:
                raise ConfigError(f"tiling: {field.name} is {value!r}; it must be a positive integer")
            object.__setattr__(self, field.name, number)


def require_whole_units(gradient: str, plan: Tiling, units: Mapping[str, int], cores: int) -> None:
    """Refuse a plan that cuts through what the machine moves as one piece, or wants cores that are not there.

    Units    field -> elements of one piece: channels of a group of C0, pixels of a fractal
    Raises   ConfigError naming the field
    """
    for name, unit in units.items():
        value = getattr(plan, name)
        if value % unit:
            raise ConfigError(
                f"tiling of {gradient}: {name} is {value}, which is no multiple of {unit}; take "
                f"{-(-value // unit) * unit}"
            )
    if plan.used_cores > cores:
        raise ConfigError(
            f"tiling of {gradient}: used_cores is {plan.used_cores}, but the product has {cores} cores"
        )


def shares(tasks: int, cores: int) -> list[range]:
    """Deal tasks to cores in contiguous ranges; the first cores take one more where it is not even."""
    base, more = divmod(tasks, cores)
    ranges, start = [], 0
    for core in range(min(tasks, cores)):
        count = base + (core < more)
        ranges.append(range(start, start + count))
        start += count
    return ranges


def even_parts(total: int, step: int, most: int) -> list[int]:
    """Return the sizes, multiples of `step` and at most `most`, that cut `total` into equally large parts.

    One size for each number of parts, largest first; the last part may be smaller.
    """
    found: list[int] = []
    units = -(-total // step)
    limit = max(1, most // step)
    parts = -(-units // limit)
    while parts <= units:
        size = -(-units // parts)
        found.append(size * step)
        # The next number of parts that gives a smaller size.
        parts = -(-units // (size - 1)) if size > 1 else units + 1
    return found
