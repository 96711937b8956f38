"""The sums of `vectors` as calls of operators: a matrix product, and both gradients of a convolution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ascendsim.errors import ConfigError
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.numerics.formats.casts import decode, encode
from ascendsim.numerics.formats.dtypes import DType, dtype
from ascendsim.ops.convolution_backward import convolution_backward
from ascendsim.ops.matmul import matmul
from ascendsim.studies.identify.vectors import Vectors, vectors_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

ROUTES = ("matmul", "grad_input", "grad_weight")
# Zeros around the sums of a grad_weight, found by trial: with so many images, and rows in multiples of so
# many, the plan of every product gives a core all pixels of an image in one Mmad. With two images and no more
# rows the library of 910B cuts them into parts, which cores add in float32 in whatever order they end.
IMAGES, ROWS = 5, 96
# What frameworks have tensors of: hifloat8 and the 8-bit floats go through operators of their own.
FORMATS = ("float16", "bfloat16", "float32", "hf32")


@dataclass(frozen=True)
class Case:
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


def cases_of(formats: tuple[str, ...] = FORMATS) -> tuple[Case, ...]:
    """Return all calls on some formats.

    Raises   ConfigError for a format without a probe
    """
    for name in formats:
        if name not in FORMATS:
            raise ConfigError(f"probe: there is none for {name!r}; it takes {', '.join(FORMATS)}")
    return tuple(Case(route, name) for name in formats for route in ROUTES)


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
    """Return the output channels of a grad_weight that makes so many rows, those of zeros with them."""
    return -(-m // ROWS) * ROWS


def _with_zeros(image: Floats, images: int) -> Floats:
    return np.concatenate([image, *[np.zeros_like(image)] * (images - 1)])


@default_arithmetic
def simulated(case: Case, product: Any, accumulation: str | None = None, **options: Any) -> Floats:
    """Return what the simulator answers to a case: float32 carriers (m, n).

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
