"""Profile: one product as plain frozen values, every one with the figure it came from."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Any, NamedTuple, TypeAlias

from ascendsim.errors import UnsupportedError
from ascendsim.profile.check import hint

Exact: TypeAlias = int | Fraction

# A memory request fetches so many blocks of 32 bytes at once (plan constants of the 910B's libraries); the
# requests of a copy with short rows, counted so, explain what such copies take on a 910B1.
BLOCK_BYTES = 32
BURSTS = (16, 8, 4, 3, 2, 1)


@dataclass(frozen=True)
class Figure:
    """One hardware figure with its provenance; the unit is in the name it goes by."""

    value: Any
    source: str
    confidence: str
    range: tuple[Any, ...] | None = None
    note: str = ""


@dataclass(frozen=True)
class Cores:
    """How many cores; `cube` counts AI cores where cube and vector share one."""

    cube: int
    vector: int


@dataclass(frozen=True)
class Clock:
    """Clock rates of the two kinds of core."""

    cube_mhz: int
    vector_mhz: int


@dataclass(frozen=True)
class Buffer:
    """An on-chip buffer of one core."""

    capacity_bytes: int
    alignment_bytes: int


@dataclass(frozen=True)
class CubeRate:
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


class Requests(NamedTuple):
    """How many requests a copy takes, and as how many bytes of full ones they occupy L2."""

    number: Exact
    occupied_bytes: Fraction


@dataclass(frozen=True)
class DataPath:
    """A way for bytes inside one core: who runs it, how fast, what it costs once per instruction.

    least_cycles            what an instruction holds the pipe for, however few bytes it moves
    spread_cycles           how much earlier the nearest part of L2 answers than the farthest
    row_cycles              what each row takes of a copy that turns rows into fractals, beside its requests;
                            other copies go on meanwhile (0: its bytes set the pace)
    request_bytes           what a request fetches at most; the core sends a shorter one no sooner (0: only
                            bytes count)
    request_fixed_share     share of L2's time for a full request that a shorter one takes as well
    buffer_bytes, drain_bytes_per_cycle
                            how far a writer may be ahead, and how fast the far side takes bytes (0: no limit)
    transposing_bytes_per_cycle
                            the rate where fractals are turned over on the way (0: the same)
    """

    pipe: str
    bytes_per_cycle: Exact
    head_cycles: int
    latency_cycles: int
    least_cycles: int = 0
    spread_cycles: int = 0
    row_cycles: Exact = 0
    request_bytes: int = 0
    request_fixed_share: float = 0.0
    buffer_bytes: int = 0
    drain_bytes_per_cycle: Exact = 0
    transposing_bytes_per_cycle: Exact = 0

    def requests(self, size_bytes: int, rows: int = 1, aligned: bool = True) -> Requests:
        """Return the requests that `rows` equal runs of bytes take; none if the path does not count them.

        A run is fetched in whole requests, and what is left of it in bursts of the lengths that there are.
        No request crosses the place where a whole one would end: runs that are not `aligned` to such places
        take what they do on average over the blocks where they may begin.
        """
        if not self.request_bytes:
            return Requests(0, Fraction(0))
        run = -(-size_bytes // (rows * BLOCK_BYTES))
        whole = max(1, self.request_bytes // BLOCK_BYTES)
        starts = (0,) if aligned else tuple(range(whole))
        count = Fraction(sum(_bursts(run, begin, whole) for begin in starts), len(starts))
        fixed = Fraction(str(self.request_fixed_share))
        occupied = fixed * count * self.request_bytes + (1 - fixed) * run * BLOCK_BYTES
        return Requests(_plain(rows * count), rows * occupied)

    def peak(self, size_bytes: int, requests: Exact, occupied_bytes: Fraction, pace: int = 0) -> Exact:
        """Return the core's own rate, in bytes as L2 is occupied.

        No request goes sooner than a full one, unless the copy has a pace of its own: then others go between.
        """
        if not requests:
            return self.bytes_per_cycle
        sent = 0 if pace else requests * self.request_bytes
        return self.bytes_per_cycle * max(Fraction(size_bytes), occupied_bytes) / max(sent, size_bytes)

    def writing_peak(self, size_bytes: int) -> Exact:
        """Return the core's own rate of a write: that of its way out, or of the far side if it is slower."""
        behind = size_bytes - self.buffer_bytes
        if not self.drain_bytes_per_cycle or behind <= 0:
            return self.bytes_per_cycle
        return min(self.bytes_per_cycle, Fraction(size_bytes) * self.drain_bytes_per_cycle / behind)

    def pace_cycles(self, rows: int, requests: Exact) -> int:
        """Return what a copy takes by itself that turns so many rows into fractals; 0: as its bytes."""
        if not self.row_cycles:
            return 0
        request_cycles = Fraction(self.request_bytes) / Fraction(self.bytes_per_cycle)
        return ceil(rows * Fraction(self.row_cycles) + requests * request_cycles)

    def times(self, requests: Exact = 0) -> tuple[int, int]:
        """Return what an instruction takes beside its bytes at the path's rate: before them, and after.

        Before them it holds the pipe for the head. After them comes the latency of the farthest of the
        requests: the mean largest of so many draws.
        """
        nearer = self.spread_cycles // (requests + 1) if requests else 0
        return self.head_cycles, self.latency_cycles - nearer


def _bursts(run: int, begin: int, whole: int) -> int:
    """Return the requests of a run of blocks that begins so many after the last place for a whole request."""
    first = min(run, (whole - begin) % whole)
    count, rest = divmod(run - first, whole)
    for part in (first, rest):
        for burst in BURSTS:
            times, part = divmod(part, burst)
            count += times
    return count


def _plain(number: Fraction) -> Exact:
    """Return a fraction as an int where it is one."""
    return number.numerator if number.denominator == 1 else number


@dataclass(frozen=True)
class Load3d:
    """The img2col rate law of one L0 buffer, per 512-byte fractal of 16 output pixels."""

    fractal_bytes: int
    cycles_per_stride: int
    cycles_per_row: int
    most_cycles: int
    extra_cycles: int
    fast_strides: tuple[int, ...]

    def fractal_cycles(self, stride_w: int, rows: int) -> int:
        """Return the cycles of one fractal whose 16 pixels span `rows` rows at width stride `stride_w`.

        Fast strides cost in proportion to the stride, plus one per row once there is more than one; the cost
        never passes that of fetching the 16 pixels one by one, which is also what every other stride pays.
        """
        if stride_w not in self.fast_strides:
            return self.most_cycles + self.extra_cycles
        switches = rows if rows > 1 else 0
        cycles = self.cycles_per_stride * stride_w + self.cycles_per_row * switches
        return min(self.most_cycles, cycles) + self.extra_cycles


@dataclass(frozen=True)
class Link:
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


@dataclass(frozen=True)
class L2:
    """The cache between the cores and main memory."""

    capacity_bytes: int
    line_bytes: int
    sector_bytes: int

    def fetched_bytes(self, size_bytes: int, rows: int = 1) -> int:
        """Return the whole sectors that `rows` equal, aligned runs of consecutive bytes touch."""
        return rows * -(-size_bytes // (rows * self.sector_bytes)) * self.sector_bytes


@dataclass(frozen=True)
class Load2d:
    """A plain load into L0: its head, what it takes at least, and what each of several commands adds."""

    head_cycles: int
    least_cycles: int
    issue_cycles: int


@dataclass(frozen=True)
class Fixpipe:
    """The way out of L0C; empty where there is no Fixpipe.

    elements_per_cycle            documented peak by output width in bits
    read_bytes_per_cycle          of L0C, before the path's own rate: the two follow each other
    matrix_least_cycles           what the path's least_cycles become for a plain matrix
    channel_split_bytes_per_cycle the path's rate where a fractal is cut into groups of 8 channels
    unit_flag_bytes               of L0C that Mmad hands over at a time (0: finished tiles only)
    """

    elements_per_cycle: Mapping[int, int]
    read_bytes_per_cycle: Exact = 0
    matrix_least_cycles: int = 0
    channel_split_bytes_per_cycle: Exact = 0
    unit_flag_bytes: int = 0


@dataclass(frozen=True)
class Vector:
    """The vector unit of one core, in cycles of the vector clock.

    An instruction takes `head_cycles`, that of its kind if it has one, and `repeat_cycles` for each repeat,
    but `least_cycles` at least. Kinds in `group_repeats` write once for so many repeats; a group that is
    begun takes the kind's least.
    """

    bytes_per_cycle: int
    head_cycles: int
    latency_cycles: int
    least_cycles: int
    repeat_cycles: Mapping[str, int]
    kind_head_cycles: Mapping[str, int]
    kind_least_cycles: Mapping[str, int]
    group_repeats: Mapping[str, int]

    def instruction_cycles(self, kind: str, repeats: int) -> int:
        """Return the cycles of one instruction of so many repeats."""
        rate = self.repeat_cycles[kind]
        least = self.kind_least_cycles.get(kind, self.least_cycles)
        head = self.kind_head_cycles.get(kind, self.head_cycles)
        group = self.group_repeats.get(kind)
        if group is None:
            return max(least, head + repeats * rate)
        begun = repeats % group
        return head + (repeats - begun) * rate + (max(least, begun * rate) if begun else 0)


@dataclass(frozen=True)
class Sync:
    """Waiting for each other: pipes of a core, a cube core and its vector cores, all cores."""

    flag_cycles: int
    cross_core_flag_cycles: int
    barrier_cycles: int


@dataclass(frozen=True)
class Scalar:
    """The scalar unit: what it takes from kernel entry to the first copy, and per instruction issued."""

    issue_cycles: int
    start_cycles: int


@dataclass(frozen=True)
class Launch:
    """What starting a kernel takes beside the work in it."""

    base_us: float
    per_core_us: float


@dataclass(frozen=True, eq=False)
class Profile:
    """One product; compared and hashed by identity, so that it is a cheap cache key.

    `l1_write_bytes_per_cycle` is what MTE2 writes into L1 while MTE1 has to wait (0: both at once).
    """

    product: str
    variant: str
    evidence: str
    core_structure: str
    npu_arch: str
    cores: Cores
    clock: Clock
    buffers: Mapping[str, Buffer]
    cube: Cube
    paths: Mapping[str, DataPath]
    load3d: Mapping[str, Load3d]
    load2d: Load2d
    l1_write_bytes_per_cycle: Exact
    fixpipe: Fixpipe
    links: Mapping[str, Link]
    l2: L2
    vector: Vector
    sync: Sync
    scalar: Scalar
    queues: Mapping[str, int]
    vector_queues: Mapping[str, int]
    launch: Launch
    accumulation: Mapping[str, str]
    deterministic_default: bool
    figures: Mapping[str, Figure]
    sources: Mapping[str, str]

    def has_path(self, source: str, target: str) -> bool:
        """Tell whether bytes can go from one place to another in one instruction."""
        return f"{source}_{target}" in self.paths

    def path(self, source: str, target: str) -> DataPath:
        """Return the path between two places; UnsupportedError where the product has none."""
        try:
            return self.paths[f"{source}_{target}"]
        except KeyError:
            names = ", ".join(name.replace("_", "->") for name in self.paths)
            raise UnsupportedError(f"{self.variant} has no path {source}->{target}; it has {names}") from None

    def load3d_bytes_per_cycle(self, buffer: str, stride_w: int, rows: int) -> Fraction:
        """Return the img2col rate into L0A or L0B; see Load3d.fractal_cycles."""
        law = self.load3d[buffer]
        return Fraction(law.fractal_bytes, law.fractal_cycles(stride_w, rows))

    def launch_us(self, cores: int) -> float:
        """Return the microseconds to start a kernel on this many cores; its entry is in its cycles."""
        return self.launch.base_us + self.launch.per_core_us * cores

    def assumed(self) -> dict[str, Figure]:
        """Return the figures that nobody published or measured, by dotted path; each has a range."""
        return {path: figure for path, figure in self.figures.items() if figure.confidence == "assumed"}
