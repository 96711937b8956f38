"""A matrix product by its sizes."""

from __future__ import annotations

from dataclasses import dataclass

from ascendsim.arguments import truth, whole
from ascendsim.errors import ShapeError

LAYOUTS = ("ND", "NZ")


@dataclass(frozen=True)
class MatmulProblem:
    """c = a b, `batch` times.

    m, k, n        a is (m, k), b is (k, n), c is (m, n)
    transpose_a    a lies in memory as (k, m); transpose_b: b lies as (n, k)
    layout         how all three lie in memory: "ND" (row after row) or "NZ" (columns of fractals)

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

    def __post_init__(self) -> None:
        """Refuse what is no matrix product."""
        for name in ("m", "k", "n", "batch"):
            value = getattr(self, name)
            number = whole(value)
            if number is None or number < 1:
                raise ShapeError(f"matmul: {name} is {value!r}; it must be a positive integer")
            object.__setattr__(self, name, number)
        for name in ("transpose_a", "transpose_b"):
            flag = truth(getattr(self, name))
            if flag is None:
                raise ShapeError(f"matmul: {name} is {getattr(self, name)!r}; it must be true or false")
            object.__setattr__(self, name, flag)
        if self.layout not in LAYOUTS:
            raise ShapeError(f"matmul: layout is {self.layout!r}; it must be one of {', '.join(LAYOUTS)}")

    @property
    def stored_a(self) -> tuple[int, int, int]:
        """Shape of a in memory."""
        return (self.batch, self.k, self.m) if self.transpose_a else (self.batch, self.m, self.k)

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
    (m, k), (inner, n) = a[-2:], b[-2:]
    if transpose_a:
        m, k = k, m
    if transpose_b:
        inner, n = n, inner
    if k != inner:
        turned = "".join(
            f", transpose_{name}" for name, flag in (("a", transpose_a), ("b", transpose_b)) if flag
        )
        raise ShapeError(f"matmul: a {a} has inner size {k}, but b {b} has {inner}{turned}")
    return MatmulProblem(m, k, n, a[0] if len(a) == 3 else 1, transpose_a, transpose_b)
