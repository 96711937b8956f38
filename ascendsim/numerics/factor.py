"""What a product is made of, and the threads that share it.

A product has two factors, matrices by the places of their elements: an im2col that is never written out. A
reduction that was made by many Mmads may be cut into pieces, fewer or more, with the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt

from ascendsim.numerics.accumulation import AccumulationModel

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor


Places = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]


class FactorRange(NamedTuple):
    """A range of rows or columns."""

    start: int
    stop: int


class Values:
    """The elements of a factor, and what kernels want to know of them: found once for all products.

    singles   the elements as float32, flat
    extents   length of a run -> largest magnitude and lowest set bit of each run of that length (`measured`)
    sums      as `extents`, with the sum of magnitudes in place of the largest
    """

    def __init__(self, values: Floats) -> None:
        # A read-only array is another type, for which kernels would be compiled anew.
        self.singles = values.reshape(-1) if values.flags.carray else np.array(values).reshape(-1)
        self.extents: dict[int, Doubles] = {}
        self.sums: dict[int, Doubles] = {}


class Elements(NamedTuple):
    """A factor as kernels take it: element (i, t) is values[lines[i] + steps[t]]."""

    values: Floats
    lines: Places
    steps: Places


class Factor(NamedTuple):
    """A matrix of `lines` x `steps`: the rows of a left one, the columns of a right one, each along k.

    Shapes   values (any number,), lines (m or n,), steps (k,); element (i, t) is values[lines[i] + steps[t]]
    run      steps so many at a time follow each other in `values`, from a whole multiple of `run` on
    """

    values: Values
    lines: Places
    steps: Places
    run: int = 1

    @property
    def elements(self) -> Elements:
        """The factor as kernels take it."""
        return Elements(self.values.singles, self.lines, self.steps)

    def part(self, lines: slice) -> Factor:
        """Return some of the lines."""
        return self._replace(lines=self.lines[lines])

    def filled(self, unit: int) -> Factor:
        """Return the factor with its last line repeated up to a whole multiple of `unit` lines."""
        missing = -len(self.lines) % unit
        if not missing:
            return self
        return self._replace(lines=np.concatenate([self.lines, self.lines[-1:].repeat(missing)]))

    def unlocked(self) -> Factor:
        """Return the factor with writable places: read-only places are copied."""
        # A read-only array is another type, for which kernels would be compiled anew.
        lines, steps = (one if one.flags.writeable else one.copy() for one in (self.lines, self.steps))
        return self._replace(lines=lines, steps=steps)


def matrix_factor(
    values: Values, lines: int, depth: int, *, turned: bool, images: range = range(1)
) -> Factor:
    """Return a factor of images that lie as (images, lines, depth), or turned: (images, depth, lines)."""
    begins = np.array(images)[:, None] * (lines * depth)
    if turned:
        return Factor(values, (begins + np.arange(lines)).ravel(), np.arange(depth) * lines)
    return Factor(values, (begins + np.arange(lines) * depth).ravel(), np.arange(depth))


# The kinds whose accumulators know of earlier products nothing but their values, and the one whose Mmads are
# its blocks. Another kind is unknown here until somebody has thought about it.
CHAINS = ("seq", "seq-muladd")
BLOCKS = ("block", "block-add", "tree", "align")
MMADS = ("exact-mmad",)


class Cuts(NamedTuple):
    """Cuts in the reductions of products that follow each other along k.

    places   the cuts of all of them, rising; those of each begin with its start and end with its end
    firsts   (products + 1,): the number of the first cut of each, and of all
    longest  the number of steps of the longest piece
    """

    places: Places
    firsts: Places
    longest: int

    @classmethod
    def of(cls, cuts: Sequence[Places]) -> Cuts:
        """Put the cuts of some products together."""
        places = np.concatenate(cuts)
        # From the end of one product to the start of the next there is nothing.
        longest = int(np.diff(places).max(initial=0))
        return cls(places, np.cumsum([0, *map(len, cuts)]), longest)

    def each(self) -> list[Places]:
        """Return the cuts of each product."""
        return np.split(self.places, self.firsts[1:-1])


def is_known(model: AccumulationModel) -> bool:
    """Return whether `cuts_of` knows how the model goes on from one Mmad to the next."""
    return model.kind in CHAINS + BLOCKS + MMADS and isinstance(model.block, int)


def cuts_of(model: AccumulationModel, ends: Places, most: int) -> Places:
    """Return a first 0 and then the ends of pieces that give the bits of the Mmads with these ends.

    ends   (Mmads,) rising; the last one is the length of the reduction
    most   steps of a piece, where nothing asks for a longer one
    """
    # Saturation looks at the accumulators whenever an Mmad ends, and only then.
    if model.overflow == "saturate" or model.kind in MMADS:
        return np.concatenate([[0], ends])
    # Inside an Mmad a block begins where the one before is full, and with every Mmad one begins. So where an
    # Mmad ends with a full block it makes no difference that it ends; and a piece may end with any block.
    block = 1 if model.kind in CHAINS else int(model.block)
    lengths = ends.copy()
    lengths[1:] -= ends[:-1]
    needed = ends[:-1][lengths[:-1] % block != 0].tolist()
    step = max(block, most // block * block)
    pieces = [range(first, last, step) for first, last in pairwise([0, *needed, int(ends[-1])])]
    return np.array([*chain(*pieces), ends[-1]])


Made = TypeVar("Made")

# Elements that take 0.2 ms to move. A second thread saves half of this, and waking it and waiting for it
# takes nearly as long.
LEAST: Final = 1 << 19


class Threads:
    """So many threads: the one that calls, and others that are begun when they are first needed.

    A context, at whose end the others end. Tasks that run at once write where no other one reads or writes,
    so that it makes no difference how many threads there are.
    """

    def __init__(self, count: int = 1) -> None:
        self.count = count
        self._pool: ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def run(self, function: Callable[..., Made], tasks: Iterable[tuple[object, ...]]) -> list[Made]:
        """Return a function's results for the arguments of each task; the calling thread takes the first.

        Raises   what the first task in their order raises that fails
        """
        each = list(tasks)
        if self.count == 1 or len(each) < 2:
            return [function(*task) for task in each]
        if self._pool is None:
            # Here and not above: most calls need no threads.
            from concurrent.futures import ThreadPoolExecutor

            self._pool = ThreadPoolExecutor(self.count - 1)
        others = [self._pool.submit(function, *task) for task in each[1:]]
        return [function(*each[0]), *(other.result() for other in others)]

    def share(self, function: Callable[[slice], Made], size: int, unit: int = 1) -> list[Made]:
        """Return the results of a function for each part of a size, in order.

        Raises   as `run`
        """
        if self.count == 1:
            return [function(slice(0, size))]
        return self.run(function, [(part,) for part in self.parts(size, unit)])

    def parts(self, size: int, unit: int = 1) -> list[slice]:
        """Cut a size into at most one part for each thread, all but the last of whole units."""
        units = -(-size // unit)
        edges = [min(units * at // self.count * unit, size) for at in range(self.count + 1)]
        return [slice(first, last) for first, last in pairwise(edges) if first < last]

    def for_moving(self, elements: int) -> Threads:
        """Return these to move so many elements, or the calling thread alone where that is sooner done."""
        return self if elements >= LEAST else ALONE


ALONE: Final = Threads()
