"""Sums that separate accumulation models, as the rows of one matrix times the columns of another.

Most sums end by subtracting their first terms, so that the result is the rounding error: a few
bits, which a result in 16 bits can hold. Sums take 96 places of a reduction of 128: the first
term is at 0, the terms to be kept or lost in between, the cancelling ones at 64 or later. Zeros fill the
rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ascendsim.errors import ConfigError
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.numerics.casts import decode, encode
from ascendsim.numerics.dtypes import DType, dtype
from ascendsim.ops.convolution_backward import convolution_backward
from ascendsim.ops.matmul import matmul

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]


DEPTH = 128
FAR = 64  # further from the beginning than the largest documented k per cycle: in a block of its own
# Half the dynamic range of a product comes from the columns: 2^12 in all of float16's normal numbers.
COLUMN = 2.0**12


@dataclass(frozen=True)
class Vectors:
    """Sums by question: names of the rows, a (rows, DEPTH), b (DEPTH, columns)."""

    questions: tuple[str, ...]
    a: Floats
    b: Floats


class _Rows:
    """Collects rows, given as products of the first column: place -> value."""

    def __init__(self) -> None:
        self.questions: list[str] = []
        self.rows: list[Floats] = []

    def add(self, question: str, products: dict[int, float]) -> None:
        row = np.zeros(DEPTH, np.float32)
        for place, value in products.items():
            row[place] = value / COLUMN
        self.questions.append(question)
        self.rows.append(row)


@default_arithmetic
def vectors_of(fmt: DType, seed: int = 0) -> Vectors:
    """Return the sums whose operands lie on the grid of a format.

    fmt   at least eight significant bits and the exponents of float16
    """
    rows = _Rows()
    _blocks(rows)
    _cuts(rows)
    _ties(rows)
    _cancelling(rows, np.random.default_rng(seed))
    _last_roundings(rows, fmt)
    _products(rows, fmt, np.random.default_rng(seed + 2))
    _ends(rows, fmt)
    _operands(rows, fmt)
    return Vectors(tuple(rows.questions), np.stack(rows.rows), _columns(fmt, seed))


def _columns(fmt: DType, seed: int) -> Floats:
    """Return the columns: all alike (three sizes), with signs, and with full significands."""
    rng = np.random.default_rng(seed + 1)
    b = np.empty((DEPTH, 8), np.float32)
    b[:, 0] = COLUMN
    b[:, 1] = 1.0
    b[:, 2] = 2.0**-60 if fmt.min_exponent < -60 else 2.0**-12
    b[:, 3] = COLUMN * np.where(rng.random(DEPTH) < 0.5, -1, 1)
    # One factor for all places, so that sums still cancel, but no product is a single bit.
    full = 2.0 - 2.0**-fmt.mantissa_bits
    b[:, 4] = COLUMN * full / 2
    b[:, 5] = COLUMN * (1 + 2.0**-fmt.mantissa_bits)
    b[:, 6:] = COLUMN * _on_grid(rng.uniform(1, 2, (DEPTH, 2)), fmt)
    return b


def _on_grid(values: NDArray[np.float64], fmt: DType) -> Floats:
    """Return values in 1 .. 2 cut to the significand of a format."""
    scale = 2.0**fmt.mantissa_bits
    return (np.floor(values * scale) / scale).astype(np.float32)


def _blocks(rows: _Rows) -> None:
    """Ask which products meet before a rounding: a large one, a small one some places on, the large one."""
    large = 2.0**26
    # 4 is half a step of 2^26: alone it is lost in a tie, with what cancels the large one it is kept.
    for distance in (1, 2, 3, 4, 5, 7, 8, 12, 15, 16, 24, 31, 32, 48, 63):
        rows.add("block", {0: large, distance: 4.0, FAR + 16: -large})
        rows.add("block", {0: large, distance: 4.0, distance + 1: -large})
        rows.add("block", {0: 4.0, distance: large, FAR + 16: -large})
        # Two of them, which make a step if they meet before the large one.
        rows.add("block", {0: large, FAR - 32: 4.0, FAR - 32 + distance % 32: 4.0, FAR + 16: -large})
    for one, other, third in ((0, 1, 2), (0, 2, 1), (0, 3, 1), (0, 4, 2), (0, 8, 1), (0, 8, 4), (1, 3, 2)):
        rows.add("pairing", {one: large, other: -large, third: 4.0, FAR: 1.0})
    # As many small ones as a block may hold, at the next block of any size.
    for count in (2, 3, 4, 5, 8, 9, 16, 17, 31):
        tiny = dict.fromkeys(range(FAR - 32, FAR - 32 + count), 2.0)
        rows.add("block", {0: large, **tiny, FAR + 16: -large})


def _cuts(rows: _Rows) -> None:
    """Ask how far below the largest term one is cut: two equal terms ever further below it."""
    for below in range(20, 29):
        small = 2.0 ** (26 - below)
        for place in (1, FAR):
            # Beside the large product, and beside what it has made of the accumulator.
            rows.add("cut", {0: 2.0**26, place: small, place + 1: small, place + 2: -(2.0**26)})
            rows.add("cut", {0: -(2.0**26), place: -small, place + 1: -small, place + 2: 2.0**26})
        rows.add("cut", {0: 2.0**26, FAR - 32: small, FAR - 31: small, FAR + 16: -(2.0**26)})


def _ties(rows: _Rows) -> None:
    """Ask where ties go, and what decides beside one."""
    for sign in (1.0, -1.0):
        large = sign * 2.0**26  # its step is 8
        for odd in (0.0, 8.0):
            for part in (1.0, 3.0, 4.0, 4.25, 5.0, 7.0):
                begin = {0: large, 1: sign * odd} if odd else {0: large}
                for near in (1.0, -1.0):
                    term = sign * near * part
                    rows.add("tie", {**begin, FAR - 32: term, FAR + 16: -large})
                    rows.add("tie", {**begin, FAR - 32: term, FAR - 31: sign * 0.25, FAR + 16: -large})


def _cancelling(rows: _Rows, rng: np.random.Generator) -> None:
    """Ask everything at once: random terms whose sum is zero, so that the result is what rounding left."""
    for number in range(48):
        half = int(rng.integers(4, 32))
        values = np.ldexp(rng.integers(128, 256, half) / 128.0, rng.integers(2, 24, half))
        terms = np.concatenate([values, -values]) * rng.choice([-1.0, 1.0])
        places = rng.permutation(2 * half) if number % 2 else np.arange(2 * half)
        rows.add("cancelling", dict(zip(places.tolist(), terms.tolist(), strict=True)))


def _last_roundings(rows: _Rows, fmt: DType) -> None:
    """Ask how the last sum is rounded to float32, by a result that is just beside a tie of its own format."""
    # In the second column, of ones: a tie of the format, beside it half of the last bit of float32 or more.
    large = 2.0**15 * COLUMN
    tie, half = large * 2.0 ** -(fmt.mantissa_bits + 1), large * 2.0**-24
    for sign in (1.0, -1.0):
        for odd in (0.0, 2 * tie):
            # The wide format has its ties where the others have halves of a last bit.
            begin = {0: sign * (large + odd), 1: sign * tie} if fmt.bits < 32 else {0: sign * large}
            for part in (half, -half / 2, half * (1 + 2.0**-4), half / 2):
                rows.add("last rounding", {**begin, 2: sign * part})


def _products(rows: _Rows, fmt: DType, rng: np.random.Generator) -> None:
    """Ask whether products are rounded, by few of them with all their bits."""
    for _ in range(16):
        terms = _on_grid(rng.uniform(1, 2, 8), fmt) * rng.choice([-1.0, 1.0], 8)
        rows.add("products", {at: float(64 * term) for at, term in enumerate(terms)})


def _ends(rows: _Rows, fmt: DType) -> None:
    """Ask what becomes of subnormal operands, subnormal sums and sums beyond the largest value."""
    subnormal = 2.0 ** (fmt.min_exponent - 1)
    rows.add("subnormal", {0: 4 * subnormal * COLUMN})
    rows.add("subnormal", {0: subnormal * COLUMN})
    rows.add("subnormal", {0: 4.0, 1: -3 * subnormal * COLUMN / 4})
    if fmt.min_exponent < -60:
        # Beside the column of 2^-60: sums of 2^-127 and so on, of operands that are normal.
        for exponent in (-66, -67, -68, -70):
            rows.add("subnormal", {0: 2.0**exponent * COLUMN})
            rows.add("subnormal", {0: 2.0**-65 * COLUMN, FAR: (2.0**exponent - 2.0**-65) * COLUMN})
        rows.add("overflow", {0: 2.0**127 * 0.75, FAR: 2.0**127})
        rows.add("overflow", {0: 2.0**127, 1: 2.0**127, FAR: -(2.0**127)})
    # Beyond float16, for float16 accumulators: back in range at the end.
    rows.add("overflow", {0: 2.0**16, FAR: -(2.0**16), FAR + 1: 3.0})


def _operands(rows: _Rows, fmt: DType) -> None:
    """Ask which bits of an operand are multiplied, one product at a time: fewer than float32's in HF32."""
    for low in range(8, fmt.mantissa_bits + 1):
        for value in (1 + 2.0**-low, 1 + 3 * 2.0**-low, 1 + 2.0**-low + 2.0**-fmt.mantissa_bits):
            rows.add("operand", {0: value, FAR: -1.0})
            rows.add("operand", {0: -value, FAR: 1.0})


ROUTES = ("matmul", "grad_input", "grad_weight")
# Zeros around the sums of a grad_weight, found by trial: with so many images, and rows in multiples of so
# many, the plan of every product gives a core all pixels of an image in one Mmad. With two images and no more
# rows the library of 910B cuts them into parts, which cores add in float32 in whatever order they end.
IMAGES, ROWS = 5, 96
# What frameworks have tensors of: hifloat8 and the 8-bit floats go through operators of their own.
FORMATS = ("float16", "bfloat16", "float32", "hf32")


@dataclass(frozen=True)
class ProbeCase:
    """One call: which operator, on which format; hf32 is float32 that the cube may round."""

    route: str
    format: str

    @property
    def name(self) -> str:
        """Name of its arrays in the folder."""
        return f"{self.route}-{self.format}"

    @property
    def stored(self) -> DType:
        """Format of its tensors."""
        return dtype("float32" if self.format == "hf32" else self.format)

    def vectors(self) -> Vectors:
        """Return the sums that it computes."""
        return vectors_of(self.stored)


def cases_of(formats: tuple[str, ...] = FORMATS) -> tuple[ProbeCase, ...]:
    """Return all calls on some formats.

    Raises   ConfigError for a format without a probe
    """
    for name in formats:
        if name not in FORMATS:
            raise ConfigError(f"probe: there is none for {name!r}; it takes {', '.join(FORMATS)}")
    return tuple(ProbeCase(route, name) for name in formats for route in ROUTES)


def operands(route: str, a: Floats, b: Floats) -> tuple[NDArray[Any], ...]:
    """Return the tensors of a call whose result is a (m, k) times b (k, n), row after row.

    Shapes   matmul: a, b. grad_input: grad_output (2, k, m, 1), weight (k, n, 1, 1); grad_weight:
             grad_output (5, m and zeros, 1, k), input (5, n, 1, k). All images but the first are zero:
             operators compute single images of single taps in ways of their own
    """
    if route == "matmul":
        return a, b
    if route == "grad_input":
        return _with_zeros(a.T[None, :, :, None], 2), b[:, :, None, None]
    rows = np.pad(a, ((0, weight_rows(len(a)) - len(a)), (0, 0)))
    return _with_zeros(rows[None, :, None, :], IMAGES), _with_zeros(b.T[None, :, None, :], IMAGES)


def weight_rows(m: int) -> int:
    """Return the output channels of a grad_weight with `m` rows of sums, rows of zeros included."""
    return -(-m // ROWS) * ROWS


def _with_zeros(image: Floats, images: int) -> Floats:
    return np.concatenate([image, *[np.zeros_like(image)] * (images - 1)])


@default_arithmetic
def simulated(case: ProbeCase, product: Any, accumulation: str | None = None, **options: Any) -> Floats:
    """Return the simulator's answer to a case: float32 carriers (m, n).

    options   of `matmul` or `convolution_backward`: a tiling, say
    """
    v = case.vectors()
    first, second = (encode(x, case.stored) for x in operands(case.route, v.a, v.b))
    options = {"product": product, "accumulation": accumulation, **options}
    math = 3 if case.format == "hf32" else 0
    if case.route == "matmul":
        return decode(matmul(first, second, cube_math_type=math, **options).output, case.stored)
    m, n = v.a.shape[0], v.b.shape[1]
    if case.route == "grad_input":
        x, mask = encode(np.zeros((2, n, m, 1), np.float32), case.stored), (True, False, False)
        made = _backward(first, x, second, mask, math, options).grad_input
        return decode(made, case.stored)[0, :, :, 0].T
    shape, mask = (weight_rows(m), n, 1, 1), (False, True, False)
    w = encode(np.zeros(shape, np.float32), case.stored)
    made = _backward(first, second, w, mask, math, options).grad_weight
    return decode(made, case.stored)[:m, :, 0, 0]


def _backward(grad: Any, x: Any, w: Any, mask: tuple[bool, bool, bool], math: int, options: Any) -> Any:
    return convolution_backward(grad, x, w, None, 1, 0, 1, False, 0, 1, mask, math, **options)
