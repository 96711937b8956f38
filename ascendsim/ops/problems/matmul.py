"""A matrix product: its sizes and layout, and its tensors in GM."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from ascendsim.errors import ShapeError, shown, truth, whole
from ascendsim.instructions.movers import CopyGmToL1
from ascendsim.ops.problems.convolution import stored_name
from ascendsim.program.places import Gm, GmTensor, Slot

Pair = tuple[int, int]
LAYOUTS = ("ND", "NZ")


@dataclass(frozen=True)
class MatmulProblem:
    """c = a b, `batch` times.

    m, k, n        a is (m, k), b is (k, n), c is (m, n)
    transpose_a    a lies in memory as (k, m); transpose_b: b lies as (n, k)
    layout         how all three lie in memory: "ND" (row after row) or "NZ" (columns of fractals)
    shared_a       whether there is one a for the whole batch

    Raises         ShapeError for sizes that are not positive, flags that are no truth values, a layout that
                   is neither
    """

    m: int
    k: int
    n: int
    batch: int = 1
    transpose_a: bool = False
    transpose_b: bool = False
    layout: str = "ND"
    shared_a: bool = False

    def __post_init__(self) -> None:
        """Refuse sizes that make no matrix product."""
        for name in ("m", "k", "n", "batch"):
            value = getattr(self, name)
            number = whole(value)
            if number is None or number < 1:
                raise ShapeError(f"matmul: {name} is {shown(value)}; it must be a positive integer")
            object.__setattr__(self, name, number)
        for name in ("transpose_a", "transpose_b", "shared_a"):
            flag = truth(getattr(self, name))
            if flag is None:
                raise ShapeError(f"matmul: {name} is {shown(getattr(self, name))}; it must be true or false")
            object.__setattr__(self, name, flag)
        if not isinstance(self.layout, str) or self.layout not in LAYOUTS:
            raise ShapeError(
                f"matmul: layout is {shown(self.layout)}; it must be one of {', '.join(LAYOUTS)}"
            )

    @property
    def stored_a(self) -> tuple[int, int, int]:
        """Shape of a in memory."""
        batch = 1 if self.shared_a else self.batch
        return (batch, self.k, self.m) if self.transpose_a else (batch, self.m, self.k)

    @property
    def stored_b(self) -> tuple[int, int, int]:
        """Shape of b in memory."""
        return (self.batch, self.n, self.k) if self.transpose_b else (self.batch, self.k, self.n)

    @property
    def macs(self) -> int:
        """Multiply-adds."""
        return self.batch * self.m * self.k * self.n

    def runs(self, rows: int, columns: int, itemsize: int) -> int:
        """Return in how many runs of consecutive bytes a piece of a stored matrix lies.

        Each row is one, as the copy that relays rows into fractals takes them one by one; in NZ, each column
        of fractals is, which is 32 bytes wide.
        """
        return rows if self.layout == "ND" else -(-columns * itemsize // 32)


def problem_of(
    a: tuple[int, ...], b: tuple[int, ...], *, transpose_a: bool = False, transpose_b: bool = False
) -> MatmulProblem:
    """Return the problem of two stored matrices, (rows, columns) or (batch, rows, columns) each.

    Raises   ShapeError if they do not fit
    """
    if not len(a) == len(b) in (2, 3) or a[:-2] != b[:-2]:
        raise ShapeError(
            f"matmul: a has shape {a} and b {b}; both must be matrices, or batches of equally many"
        )
    turn_a, turn_b = truth(transpose_a), truth(transpose_b)
    for name, given, flag in (("a", transpose_a, turn_a), ("b", transpose_b, turn_b)):
        if flag is None:
            raise ShapeError(f"matmul: transpose_{name} is {shown(given)}; it must be true or false")
    (m, k), (inner, n) = a[-2:], b[-2:]
    if turn_a:
        m, k = k, m
    if turn_b:
        inner, n = n, inner
    if k != inner:
        turned = "".join(f", transpose_{name}" for name, flag in (("a", turn_a), ("b", turn_b)) if flag)
        raise ShapeError(f"matmul: a {a} has inner size {k}, but b {b} has {inner}{turned}")
    return MatmulProblem(m, k, n, a[0] if len(a) == 3 else 1, bool(turn_a), bool(turn_b))


@dataclass(frozen=True)
class MatmulGemm:
    """A matrix product with its tensors in GM: `a` and `b` as they are stored, `c` (batch, m, n)."""

    problem: MatmulProblem
    a: GmTensor
    b: GmTensor
    c: GmTensor
    compute_dtype: str

    @classmethod
    def of(cls, problem: MatmulProblem, compute_dtype: str, result: str | None = None) -> MatmulGemm:
        """Describe a product that the cube multiplies as `compute_dtype`; `result` is the format of c."""
        stored = stored_name(compute_dtype)
        made = result or ("int32" if stored == "int8" else stored)
        return cls(
            problem,
            GmTensor.of("a", problem.stored_a, stored),
            GmTensor.of("b", problem.stored_b, stored),
            GmTensor.of("c", (problem.batch, problem.m, problem.n), made, "output"),
            compute_dtype,
        )

    def mmads(self, base: tuple[int, int, int]) -> int:
        """Return the number of Mmads for base blocks of size (m, n, k)."""
        sizes = self.problem.m, self.problem.n, self.problem.k
        return self.problem.batch * prod(-(-size // length) for size, length in zip(sizes, base, strict=True))

    def copy_to_l1(self, slot: Slot, place: Gm, extent: Pair, line_bytes: int) -> CopyGmToL1:
        """Return the copy of a piece of a stored matrix, by its rows and columns, into L1."""
        tensor = place.tensor
        size = extent[0] * extent[1] * tensor.itemsize
        # The copy's cost asks whether every row begins at a line of L2: requests cross none.
        # Rows are turned into fractals on the way; a matrix in NZ lies in fractals already.
        relays = self.problem.layout == tensor.layout == "ND"
        problem = self.problem if relays else replace(self.problem, layout="NZ")
        runs = problem.runs(*extent, tensor.itemsize)
        aligned = not relays or (tensor.shape[2] * tensor.itemsize) % line_bytes == 0
        return CopyGmToL1(slot, place, size, extent, rows=runs, aligned=aligned, relays=relays)
