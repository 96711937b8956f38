"""Records of the memory system: paths, the requests of copies, links and L2."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import Any, NamedTuple, TypeAlias

from ascendsim.errors import ConfigError, UnsupportedError, shown
from ascendsim.frozen import cached_property
from ascendsim.profile.check import hint
from ascendsim.profile.schema import CUBE_BYTES, CUBE_SIDES

Exact: TypeAlias = int | Fraction

# A memory request fetches a few blocks of 32 bytes at once (plan constants of the 910B's libraries); the
# requests of a copy with short rows, counted so, explain the cycles of these copies on a 910B1.
BLOCK_BYTES = 32
BURSTS = (16, 8, 4, 3, 2, 1)


class Requests(NamedTuple):
    """Requests of a copy: their number, and the bytes of full ones that occupy L2 as long."""

    number: Exact
    occupied_bytes: Fraction


class DataPath(NamedTuple):
    """A way for bytes inside one core: its pipe, its rate, and its cost once per instruction.

    least_cycles            what an instruction holds the pipe for, however few bytes it moves
    spread_cycles           how much earlier the nearest part of L2 answers than the farthest
    in_turn_cycles          into L1: how much of the latency of an operand of a convolution no other copy
                            hides, since the next one waits for it
    row_cycles              into L1: what each row takes of a copy that turns rows into fractals, beside its
                            requests; other copies go on meanwhile (0: its bytes set the pace). Into and out
                            of UB: what each row takes that is no whole blocks of 32 bytes
    request_bytes           what a request fetches at most; the core sends a shorter one no sooner (0: only
                            bytes count)
    request_fixed_share     share of L2's time for a full request that a shorter one takes as well
    buffer_bytes, drain_bytes_per_cycle
                            how far a writer may be ahead, and how fast the far side takes bytes (0: no limit)
    transposing_bytes_per_cycle
                            the rate where fractals are turned over on the way, or channels that lie apart are
                            brought together (0: the path's rate)
    m_stall_share           share of its cycles in which M stands still, as both use L0C
    """

    pipe: str
    bytes_per_cycle: Exact
    head_cycles: int
    latency_cycles: int
    least_cycles: int = 0
    spread_cycles: int = 0
    in_turn_cycles: int = 0
    row_cycles: Exact = 0
    request_bytes: int = 0
    request_fixed_share: float = 0.0
    buffer_bytes: int = 0
    drain_bytes_per_cycle: Exact = 0
    transposing_bytes_per_cycle: Exact = 0
    m_stall_share: float = 0.0

    @property
    def turning(self) -> DataPath:
        """The path at its rate for data that is turned on the way."""
        return _turning(self)

    def requests(self, size_bytes: int, rows: int = 1, aligned: bool = True) -> Requests:
        """Return the requests that `rows` equal runs of bytes take; none if the path does not count them.

        A run is fetched in whole requests, and what is left of it in bursts of the lengths that there are.
        No request crosses the end of a whole one: runs that are not `aligned` to whole requests take the
        average over the blocks where they may begin.
        """
        if not self.request_bytes:
            return Requests(0, Fraction(0))
        run = -(-size_bytes // (rows * BLOCK_BYTES))
        count, occupied = _of_run(run, self.request_bytes, self.request_fixed_share, aligned)
        return Requests(plain(rows * count), rows * occupied)

    def peak(self, size_bytes: int, requests: Exact, occupied_bytes: Fraction, pace: int = 0) -> Exact:
        """Return the core's own rate, in bytes as L2 is occupied.

        No request goes sooner than a full one, unless the copy has a pace of its own: then others go between.
        """
        if not requests:
            return self.bytes_per_cycle
        # The core sends the next request when a full one would have gone: short ones waste the difference.
        sent = 0 if pace else requests * self.request_bytes
        return self.bytes_per_cycle * max(Fraction(size_bytes), occupied_bytes) / max(sent, size_bytes)

    def writing_peak(self, size_bytes: int) -> Exact:
        """Return the core's own rate of a write: that of its way out, or of the far side if it is slower."""
        # What fits into the buffer leaves at full rate; the far side sets the pace of what comes after.
        behind = size_bytes - self.buffer_bytes
        if not self.drain_bytes_per_cycle or behind <= 0:
            return self.bytes_per_cycle
        # The whole write lasts as long as that rest needs to drain.
        return min(self.bytes_per_cycle, Fraction(size_bytes) * self.drain_bytes_per_cycle / behind)

    def pace_cycles(self, rows: int, requests: Exact) -> int:
        """Return the cycles of a copy alone that turns `rows` rows into fractals; 0: those of its bytes."""
        if not self.row_cycles:
            return 0
        # Its requests go at the pace of full ones, and beside them each row is turned.
        request_cycles = Fraction(self.request_bytes) / Fraction(self.bytes_per_cycle)
        return ceil(rows * Fraction(self.row_cycles) + requests * request_cycles)

    def padding_cycles(self, rows: int) -> int:
        """Return the cycles of `rows` rows that are padded to whole blocks in UB, or cut back from them."""
        return ceil(rows * self.row_cycles)

    def times(self, requests: Exact = 0) -> tuple[int, int]:
        """Return the cycles of an instruction before and after its bytes, which move at the path's rate.

        Before them it holds the pipe for the head. After them comes the latency of the farthest of the
        requests: the mean largest of this many draws.
        """
        # Latencies spread evenly over the slices of L2: the largest of n draws lies on average 1 / (n + 1) of
        # the spread below the farthest.
        nearer = self.spread_cycles // (requests + 1) if requests else 0
        return self.head_cycles, self.latency_cycles - nearer


@lru_cache(maxsize=64)
def _turning(path: DataPath) -> DataPath:
    return path._replace(bytes_per_cycle=path.transposing_bytes_per_cycle or path.bytes_per_cycle)


# Tiles of one kernel have a few lengths, and a search asks for each of them again and again.
@lru_cache(maxsize=4096)
def _of_run(run: int, request_bytes: int, fixed_share: float, aligned: bool) -> tuple[Fraction, Fraction]:
    """Return the requests of a run of blocks, and the bytes of full ones that occupy L2 as long."""
    count = _mean_requests(run, max(1, request_bytes // BLOCK_BYTES), aligned)
    fixed = Fraction(str(fixed_share))
    # A short request holds L2 for a fixed share of a full one's time, for the rest in step with its bytes.
    return count, fixed * count * request_bytes + (1 - fixed) * run * BLOCK_BYTES


def _mean_requests(run: int, whole: int, aligned: bool) -> Fraction:
    """Return the requests of a run of blocks; `whole` blocks make a full request."""
    # Where an unaligned run begins is not known when a kernel is built: the mean over the places it may have.
    starts = (0,) if aligned else range(whole)
    return Fraction(sum(_bursts(run, begin, whole) for begin in starts), len(starts))


def _bursts(run: int, begin: int, whole: int) -> int:
    """Return the requests of a run that begins `begin` blocks behind the last place for a whole request."""
    # Up to the first boundary the run is a rest of its own.
    first = min(run, (whole - begin) % whole)
    count, rest = divmod(run - first, whole)
    for part in (first, rest):
        for burst in BURSTS:
            times, part = divmod(part, burst)
            count += times
    return count


# Whole numbers stay ints: sums and comparisons of them are several times faster than those of fractions.
def plain(number: Fraction) -> Exact:
    """Return a fraction as an int where it is one."""
    return number.numerator if number.denominator == 1 else number


@dataclass(frozen=True)
class LinkFigures:
    """A shared link: what the chip moves in a cube cycle, and what one core can take of it.

    `total_bytes_per_cycle` has the efficiency in it; the vector total is what vector cores reach together,
    the same unless `vector_tb_per_s` was measured apart. Cores that read the same bytes at the same time
    reach `shared_efficiency` of it. The two vector cores of an AI core may have a limit as a pair (0: none).
    `latency_cycles` comes on top of the path's own.
    """

    nominal_tb_per_s: float
    efficiency: float
    total_bytes_per_cycle: Exact
    vector_total_bytes_per_cycle: Exact
    per_core_bytes_per_cycle: Exact
    per_vector_core_bytes_per_cycle: Exact
    latency_cycles: int
    per_vector_pair_bytes_per_cycle: Exact = 0
    shared_efficiency: float = 1.0

    @cached_property
    def exact_shared_efficiency(self) -> Fraction:
        """The shared efficiency as it is written, without the rounding of a float."""
        return Fraction(str(self.shared_efficiency))

    @cached_property
    def vector_part(self) -> Exact:
        """The total rate of cube cores relative to that of vector cores."""
        return plain(Fraction(self.total_bytes_per_cycle) / Fraction(self.vector_total_bytes_per_cycle))

    @cached_property
    def of_a_pair(self) -> Exact:
        """The rate of one vector core while the other one of its pair is at work."""
        alone, pair = self.per_vector_core_bytes_per_cycle, self.per_vector_pair_bytes_per_cycle
        return min(alone, Fraction(pair) / 2) if pair else alone


class L2(NamedTuple):
    """The cache between the cores and main memory.

    most_fetches      how often bytes that several cores miss at one time cross the link to memory, at most
    operands_handed   whether a kernel that is handed its first input finds all that lie in the cube's layout
    """

    capacity_bytes: int
    line_bytes: int
    sector_bytes: int
    most_fetches: int = 1
    operands_handed: bool = False

    def fetched_bytes(self, size_bytes: int, rows: int = 1) -> int:
        """Return the whole sectors that `rows` equal, aligned runs of consecutive bytes touch."""
        # Main memory answers in whole sectors, so that short rows cost more than their bytes.
        return rows * -(-size_bytes // (rows * self.sector_bytes)) * self.sector_bytes


# The size of elements that a row of a fractal has eight of.
WIDE_BYTES = 4


class Cores(NamedTuple):
    """Numbers of cores; `cube` counts AI cores where cube and vector share one."""

    cube: int
    vector: int


class ClockRates(NamedTuple):
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


_SHAPE = re.compile(r"\d+x\d+x\d+")


@dataclass(frozen=True)
class Cube:
    """The matrix unit of one core.

    It multiplies fractals: m0 x k0 elements of the left matrix, in L0A, by k0 x n0 of the right one, in L0B,
    into m0 x n0 sums in L0C. Their bytes follow from these and the elements' size.
    """

    m0: int
    n0: int
    rates: Mapping[str, CubeRate]
    mmad_head_cycles: int
    mmad_latency_cycles: int
    same_l0c_spacing_cycles: int
    # 0 where the cube has no HF32; the property below refuses to say so.
    _hf32_mantissa_bits: int

    def depth(self, itemsize: int) -> int:
        """Return the elements of so many bytes that a fractal has of the reduction, its k0."""
        return self._depths[itemsize]

    @cached_property
    def _depths(self) -> Mapping[int, int]:
        # What the cube does not multiply, no load brings: of these float16 decides, as every cube takes it.
        depths = {size: 2 * self.rates["float16"].k0 // size for size in CUBE_BYTES.values()}
        return depths | {CUBE_BYTES[dtype]: rate.k0 for dtype, rate in self.rates.items()}

    def reshaped(self, said: Any) -> dict[str, int]:
        """Return the figures, by path, of this cube as "m0 x n0 x k0", k0 of float16: those that change.

        The reduction grows alike in every format, in a fractal and in a cycle, where one product stays at
        least.
        Raises   ConfigError for another text, and sides that no cube has
        """
        sides = tuple(map(int, said.split("x"))) if isinstance(said, str) and _SHAPE.fullmatch(said) else ()
        least, most = CUBE_SIDES
        if not sides or any(side & (side - 1) or not least <= side <= most for side in sides):
            raise ConfigError(
                f"change of cube: got {shown(said)}; expected m0 x n0 x k0 of float16, powers of two from "
                f"{least} to {most}, such as cube=32x16x16"
            )
        m0, n0, k0 = sides
        had = self.rates["float16"].k0
        made = {"m0": m0, "n0": n0}
        for dtype, rate in self.rates.items():
            made[f"rates.{dtype}.k0"] = rate.k0 * k0 // had
            made[f"rates.{dtype}.block_k"] = max(1, rate.block_k * k0 // had)
        own = {"m0": self.m0, "n0": self.n0}
        own |= {
            f"rates.{d}.{name}": getattr(r, name) for d, r in self.rates.items() for name in ("k0", "block_k")
        }
        return {f"cube.{path}": value for path, value in made.items() if value != own[path]}

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
    """The img2col rate law of one L0 buffer, per 16 output pixels of `fractal_bytes` in all, and per command.

    fractal_bytes    what the cycles of the law bring: how fast, not what shape. The shape is the cube's
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
        """Return the cycles of fractals that load3d transposes; 0: `fractal_cycles` gives them."""
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
    """A plain load into L0: its head, its least cycles, and the cycles that each further command adds.

    turned_block_cycles   what the command for each 16 x 16 block of weights adds to its bytes where taps are
                          walked backwards (0: a command for each tap, whatever blocks it has)
    """

    head_cycles: int
    least_cycles: int
    issue_cycles: int
    turned_block_cycles: Exact = 0


class FixpipeRates(NamedTuple):
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
    tap_block_cycles     these cycles for weights of several taps, whose channels lie a kernel apart
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
        """Return the cycles of one instruction of `repeats` repeats; UnsupportedError for an unknown kind."""
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
    """The scalar unit: cycles from kernel entry to the first copy, and per instruction issued."""

    issue_cycles: int
    start_cycles: int


class Package(NamedTuple):
    """So many of the modelled device in one package, and the link between them; None: not known."""

    dies: int = 1
    link_gb_per_s: Exact | None = None
    link_latency_us: float | None = None


class Launch(NamedTuple):
    """Time to start a kernel, beside the work in it."""

    base_us: float
    per_core_us: float
