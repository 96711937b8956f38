"""Records of the memory system: paths, the requests of copies, links and L2."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import NamedTuple, TypeAlias

from ascendsim.frozen import cached_property

Exact: TypeAlias = int | Fraction

# A memory request fetches so many blocks of 32 bytes at once (plan constants of the 910B's libraries); the
# requests of a copy with short rows, counted so, explain what such copies take on a 910B1.
BLOCK_BYTES = 32
BURSTS = (16, 8, 4, 3, 2, 1)


class Requests(NamedTuple):
    """Requests of a copy: their number, and the bytes of full ones that occupy L2 as long."""

    number: Exact
    occupied_bytes: Fraction


class DataPath(NamedTuple):
    """A way for bytes inside one core: who runs it, how fast, what it costs once per instruction.

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
                            brought together (0: the same)
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
        """The path at its rate for what is turned on the way."""
        return _turning(self)

    def requests(self, size_bytes: int, rows: int = 1, aligned: bool = True) -> Requests:
        """Return the requests that `rows` equal runs of bytes take; none if the path does not count them.

        A run is fetched in whole requests, and what is left of it in bursts of the lengths that there are.
        No request crosses the place where a whole one would end: runs that are not `aligned` to such places
        take what they do on average over the blocks where they may begin.
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
        """Return what a copy takes by itself that turns so many rows into fractals; 0: as its bytes."""
        if not self.row_cycles:
            return 0
        # Its requests go at the pace of full ones, and beside them each row is turned.
        request_cycles = Fraction(self.request_bytes) / Fraction(self.bytes_per_cycle)
        return ceil(rows * Fraction(self.row_cycles) + requests * request_cycles)

    def padding_cycles(self, rows: int) -> int:
        """Return what so many rows take that are filled up to whole blocks in UB, or cut back from them."""
        return ceil(rows * self.row_cycles)

    def times(self, requests: Exact = 0) -> tuple[int, int]:
        """Return what an instruction takes beside its bytes at the path's rate: before them, and after.

        Before them it holds the pipe for the head. After them comes the latency of the farthest of the
        requests: the mean largest of so many draws.
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
    """Return the requests of a run of blocks, of which `whole` are a full one."""
    # Where an unaligned run begins is not known when a kernel is built: the mean over the places it may have.
    starts = (0,) if aligned else range(whole)
    return Fraction(sum(_bursts(run, begin, whole) for begin in starts), len(starts))


def _bursts(run: int, begin: int, whole: int) -> int:
    """Return the requests of a run of blocks that begins so many after the last place for a whole request."""
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
        """What the total of cube cores is of that of vector cores."""
        return plain(Fraction(self.total_bytes_per_cycle) / Fraction(self.vector_total_bytes_per_cycle))

    @cached_property
    def of_a_pair(self) -> Exact:
        """What one vector core can take while the other one of its pair is at work."""
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
