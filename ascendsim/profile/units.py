"""What a core is made of, as plain frozen values: clocks, buffers, and the laws of its units."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

from ascendsim.errors import UnsupportedError
from ascendsim.profile.check import hint
from ascendsim.profile.memory import Exact

# Elements of which a row of a fractal has eight.
WIDE_BYTES = 4


class Cores(NamedTuple):
    """Numbers of cores; `cube` counts AI cores where cube and vector share one."""

    cube: int
    vector: int


class Clock(NamedTuple):
    """Clock rates of the two kinds of core."""

    cube_mhz: int
    vector_mhz: int


class Buffer(NamedTuple):
    """An on-chip buffer of one core."""

    capacity_bytes: int
    alignment_bytes: int


class CubeRate(NamedTuple):
    """The cube for one operand dtype: fractal k, k per cycle, multiply-adds per cycle."""

    k0: int
    block_k: int
    macs_per_cycle: int


@dataclass(frozen=True)
class Cube:
    """The matrix unit of one core."""

    m0: int
    n0: int
    rates: Mapping[str, CubeRate]
    mmad_head_cycles: int
    mmad_latency_cycles: int
    same_l0c_spacing_cycles: int
    # 0 where the cube has no HF32; the property below refuses to say so.
    _hf32_mantissa_bits: int

    def rate(self, dtype: str) -> CubeRate:
        """Return the rate of an operand dtype; UnsupportedError where this cube does not take it."""
        try:
            return self.rates[dtype]
        except KeyError:
            raise UnsupportedError(
                f"the cube does not take {dtype}{hint(dtype, tuple(self.rates))}"
            ) from None

    @property
    def hf32_mantissa_bits(self) -> int:
        """Explicit mantissa bits of HF32; UnsupportedError where the cube has no HF32."""
        self.rate("hf32")
        return self._hf32_mantissa_bits


class Load3d(NamedTuple):
    """The img2col rate law of one L0 buffer, per 512-byte fractal of 16 output pixels, and per command.

    command_cycles   what each command takes, beside the path's head and its fractals
    command_covers   what of the fractals, pixels by (channel group, tap), one command makes: "matrix", all of
                     them; or "line", one row or one column of them
    transposes       whether it also turns grad_output over on its way to L0A; else load2d does
    turned_cycles    what a fractal takes that it so turns over, of 4-byte elements (0: as the law says)
    """

    fractal_bytes: int
    cycles_per_stride: int
    cycles_per_row: int
    most_cycles: int
    extra_cycles: int
    fast_strides: tuple[int, ...]
    command_cycles: int
    command_covers: str
    transposes: bool = False
    turned_cycles: Exact = 0

    def commands(self, pixel_fractals: Any, groups: Any) -> Any:
        """Return the commands for fractals of pixels by (channel group, tap) pairs; numbers or arrays."""
        if self.command_covers == "matrix":
            return 1
        # A line goes along the longer side, so that there are as few of them as can be.
        return pixel_fractals + (groups - pixel_fractals) * (groups < pixel_fractals)

    def turned(self, fractals: Any, itemsize: int) -> Any:
        """Return the cycles of fractals that are turned over; 0 where they take what others take."""
        return fractals * (Fraction(self.turned_cycles) if itemsize == WIDE_BYTES else 0)

    def fractal_cycles(self, stride_w: int, rows: int) -> int:
        """Return the cycles of one fractal whose 16 pixels span `rows` rows at width stride `stride_w`.

        Fast strides cost in proportion to the stride, plus one per row once there is more than one; the cost
        never passes that of fetching the 16 pixels one by one, which is also what every other stride pays.
        """
        if stride_w not in self.fast_strides:
            return self.most_cycles + self.extra_cycles
        # The vendor's table adds rows from two on: a single one is in the cycles of the stride.
        switches = rows if rows > 1 else 0
        cycles = self.cycles_per_stride * stride_w + self.cycles_per_row * switches
        return min(self.most_cycles, cycles) + self.extra_cycles


class Load2d(NamedTuple):
    """A plain load into L0: its head, what it takes at least, and what each of several commands adds.

    turned_block_cycles   what the command for each 16 x 16 block of weights adds to its bytes where taps are
                          walked backwards (0: a command for each tap, whatever blocks it has)
    """

    head_cycles: int
    least_cycles: int
    issue_cycles: int
    turned_block_cycles: Exact = 0


class Fixpipe(NamedTuple):
    """The way out of L0C; empty where there is no Fixpipe.

    read_bytes_per_cycle          of L0C, before the path's own rate: the two follow each other
    matrix_least_cycles           what the path's least_cycles become for a plain matrix
    channel_split_bytes_per_cycle the path's rate where a fractal is cut into groups of 8 channels
    channel_split_atomic_bytes_per_cycle
                                  the same until the adds have arrived where the result is added; FIX is busy
                                  so long, and L0C free as soon as of one that is written (0: as written)
    unit_flag_bytes               of L0C that Mmad hands over at a time (0: finished tiles only)
    """

    read_bytes_per_cycle: Exact = 0
    matrix_least_cycles: int = 0
    channel_split_bytes_per_cycle: Exact = 0
    channel_split_atomic_bytes_per_cycle: Exact = 0
    unit_flag_bytes: int = 0


class Vector(NamedTuple):
    """The vector unit of one core, in cycles of the vector clock.

    An instruction takes `head_cycles`, that of its kind if it has one, and `repeat_cycles` for each repeat,
    but `least_cycles` at least. Kinds in `group_repeats` write once for so many repeats; a group that is
    begun takes the kind's least.

    pixel_block_cycles   what each block of 32 bytes of one channel takes, beside its repeats, where pixels of
                         many channels become pixels of C0 channels each (0: nothing)
    tap_block_cycles     the same of weights of several taps, whose channels lie a kernel apart
    """

    bytes_per_cycle: int
    head_cycles: int
    latency_cycles: int
    least_cycles: int
    repeat_cycles: Mapping[str, int]
    kind_head_cycles: Mapping[str, int]
    kind_least_cycles: Mapping[str, int]
    group_repeats: Mapping[str, int]
    pixel_block_cycles: Exact = 0
    tap_block_cycles: Exact = 0

    def instruction_cycles(self, kind: str, repeats: int) -> int:
        """Return the cycles of one instruction of so many repeats; UnsupportedError for an unknown kind."""
        rate = self.repeat_cycles.get(kind)
        if rate is None:
            names = ", ".join(self.repeat_cycles)
            raise UnsupportedError(
                f"vector.repeat_cycles.{kind} is no figure of this product; it has {names}"
            )
        least = self.kind_least_cycles.get(kind, self.least_cycles)
        head = self.kind_head_cycles.get(kind, self.head_cycles)
        group = self.group_repeats.get(kind)
        if group is None:
            return max(least, head + repeats * rate)
        begun = repeats % group
        return head + (repeats - begun) * rate + (max(least, begun * rate) if begun else 0)


class Sync(NamedTuple):
    """Waiting for each other: pipes of a core, and all cores."""

    flag_cycles: int
    barrier_cycles: int


class Scalar(NamedTuple):
    """The scalar unit: what it takes from kernel entry to the first copy, and per instruction issued."""

    issue_cycles: int
    start_cycles: int


class Launch(NamedTuple):
    """Time to start a kernel, beside the work in it."""

    base_us: float
    per_core_us: float
