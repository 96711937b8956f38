"""Matrix products of torch as calls of `matmul`, forward and backward.

torch makes the gradients of a product by two more products, each an operator of its own. Which layer they
belong to, and whose gradient they are, follows from the node of autograd that is running: its number was the
next one when the product's forward ran.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from math import prod
from threading import get_ident
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.numerics.casts import decode, decoded, stored
from ascendsim.numerics.dtypes import dtype as lookup_dtype
from ascendsim.numerics.metrics import error_metrics
from ascendsim.ops.matmul import PlannedProduct, estimate_matmul
from ascendsim.ops.options.call import options_of
from ascendsim.ops.options.keywords import ProductOptions
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.matmul import MatmulProblem, problem_of
from ascendsim.studies.sweep import judged
from ascendsim.torch.autograd import FORMATS, array_of, has_values, tensor_of, type_name
from ascendsim.torch.passes import (
    ANY_SIZE,
    OUTPUT,
    UNNAMED,
    LayerNames,
    LayerPass,
    Setting,
    as_stored,
    summed,
    with_addend,
)

if TYPE_CHECKING:
    from ascendsim.ops.results import Estimate
    from ascendsim.studies.records import JudgedGradient


_ATEN = torch.ops.aten
_PLAIN, _ADDED = (_ATEN.mm, _ATEN.bmm), (_ATEN.addmm, _ATEN.baddbmm)
# Number of an operator, whose hash is a function of Python -> whether it adds something, and whether its
# first argument is what it writes.
PRODUCTS = {
    **{id(form): (False, False) for one in _PLAIN for form in (one.default, one.out)},
    **{id(form): (True, False) for one in _ADDED for form in (one.default, one.out)},
    **{id(one.default): (True, True) for one in (_ATEN.addmm_, _ATEN.baddbmm_)},
}
SUM = _ATEN.sum.dim_IntList
# What a setting for convolutions says of products too; tilings and schedules are by gradient.
_SHARED = ProductOptions.__annotations__.keys() - {"product", "tiling", "schedule", "l2_start"}
_MOST_SEEN = 1 << 16


@dataclass(frozen=True)
class ProductCall:
    """One call of `matmul`.

    dtype   format of both factors
    result  format in which it leaves the cube
    """

    problem: MatmulProblem
    dtype: str
    result: str

    @classmethod
    def of(cls, layer: LayerPass, setting: Setting) -> ProductCall:
        """Return the call of a pass of a layer."""
        assert isinstance(layer.problem, MatmulProblem)
        own = layer.dtypes[0]
        taken = setting.operands or own
        return cls(layer.problem, taken, own if layer.results == ("grad_weight",) else taken)

    def options(self, setting: Setting) -> dict[str, Any]:
        """Return the keywords of `matmul` and its estimate."""
        shared = {name: value for name, value in setting.options.items() if name in _SHARED}
        formats = {"cube_math_type": setting.cube_math_type, "out_dtype": self.result}
        return shared | formats | {"product": setting.product}

    def planned(self, setting: Setting) -> PlannedProduct:
        """Return the plan of the call; equal calls of a thread share one."""
        return _planned(self, setting, get_ident())

    def costs(self, setting: Setting) -> Estimate:
        """Estimate the cycles.

        Raises   as `estimate_matmul`
        """
        return estimate_matmul(self.problem, self.dtype, **(self.options(setting) | ANY_SIZE))


# The same calls come in every step of a training run: their sizes are checked once.
_fitting = lru_cache(maxsize=256)(problem_of)
_product_problem = lru_cache(maxsize=256)(MatmulProblem)
_sum_problem = lru_cache(maxsize=256)(ConvProblem)


# Some for each layer of a large network; programs come from builders that threads cannot share.
@lru_cache(maxsize=256)
def _planned(call: ProductCall, setting: Setting, _thread: int) -> PlannedProduct:
    given = call.options(setting)
    formats = (call.dtype, call.dtype), given.pop("out_dtype"), given.pop("cube_math_type")
    return PlannedProduct.of(call.problem, *formats, options_of("matmul", given, ProductOptions))


@dataclass(frozen=True, eq=False)
class ProductPass:
    """A product that torch asks for: alpha x a b + beta x addend.

    a, b     matrices, or batches of as many
    addend   None: nothing is added
    written  the tensor that the result goes to; None: a new one
    """

    layer: LayerPass
    a: torch.Tensor
    b: torch.Tensor
    addend: torch.Tensor | None
    alpha: float
    beta: float
    written: torch.Tensor | None
    by_torch: Callable[[], Any]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the result."""
        return (*self.a.shape[:-1], self.b.shape[-1])

    @default_arithmetic
    def run(self, setting: Setting) -> tuple[Any, set[str], str]:
        """Return the values, the kernels that saturated one, and the format in the cube.

        Addend   as a convolution's bias: added in float32 after the kernel, and rounded once to the format
        Raises   as `matmul`; RuntimeError by torch for an addend of another shape
        """
        call, own = ProductCall.of(self.layer, setting), self.layer.dtypes[0]
        p = call.problem
        a = array_of(self.a.mT if p.transpose_a else self.a)
        b = array_of(self.b.mT if p.transpose_b else self.b)
        # Whether they fit; the rest of a plan does not depend on the matrices.
        _fitting(a.shape, b.shape, transpose_a=p.transpose_a, transpose_b=p.transpose_b)
        if self.addend is not None and self.addend.shape != (p.n,):
            self.addend.expand(self.shape)  # torch refuses one that does not fit
        planned, (given, cut) = call.planned(setting), as_stored({"a": a, "b": b}, (call.dtype,) * 2, setting)
        carriers = {name: decoded(values, call.dtype) for name, values in given.items()}
        _, output, late = planned.made(carriers, setting.order)
        made = stored(output.reshape(self.shape), call.result)
        more = None if self.addend is None else array_of(self.addend)
        values, last = with_addend(made, more, own, setting, self.alpha, self.beta)
        return values, cut | late | last, planned.said["compute_dtype"]

    def judged(self, values: Any, compute_dtype: str) -> JudgedGradient:
        """Return the errors of values against float64."""
        a, b = (_float64(array_of(one)) for one in (self.a, self.b))
        with np.errstate(all="ignore"):
            exact = a @ b * self.alpha if self.alpha else np.zeros(self.shape)
            if self.addend is not None and self.beta:
                exact = exact + _float64(array_of(self.addend)) * self.beta
        return judged(self.layer.results[0], values, exact, compute_dtype)

    def tensor(self, values: Any) -> torch.Tensor:
        """Return values as torch gets them, in the tensor that it wants written, if it names one."""
        made = tensor_of(values, self.a)
        if self.written is None:
            return made
        if self.written.shape != made.shape:
            self.written.resize_(made.shape)
        return self.written.copy_(made)


def _float64(values: Any) -> Any:
    return decode(values, lookup_dtype(values.dtype)).astype(np.float64)


def with_terms(one: JudgedGradient, grad_output: Any, exact: Any, made: Any) -> JudgedGradient:
    """Return the errors of a grad_bias with the magnitudes of its terms, and whether these cancel."""
    fmt = lookup_dtype(grad_output.dtype)
    axes = (0, *range(2, grad_output.ndim))
    sizes = np.abs(_float64(grad_output)).sum(axis=axes)
    # Terms are off by half a step each, so that of a sum below that no digit is certain.
    lost = np.abs(exact) <= 2.0 ** -(fmt.mantissa_bits + 1) * sizes
    errors = error_metrics(made, exact, one.errors.dtype, sizes)
    return replace(one, errors=errors, cancels=bool(sizes.any() and np.mean(lost) > 0.5))


def _is_turned(matrix: torch.Tensor) -> bool:
    """Return whether a matrix is the transposed view of one that lies row after row."""
    return not matrix.is_contiguous() and matrix.mT.is_contiguous()


@dataclass(frozen=True)
class SumPass:
    """The gradient of what a product adds: sums of `terms` (rows, columns) over the rows."""

    layer: LayerPass
    terms: torch.Tensor
    shape: tuple[int, ...]
    by_torch: Callable[[], Any]

    def run(self, setting: Setting) -> tuple[Any, Collection[str], str]:
        """Return the sums, the kernels that saturated a value, and no format, as no cube is there."""
        return *summed(self.layer.convolution, array_of(self.terms), setting), ""

    @default_arithmetic
    def judged(self, values: Any, compute_dtype: str) -> JudgedGradient:
        """Return the errors of sums against float64."""
        terms = array_of(self.terms)
        with np.errstate(all="ignore"):
            exact = _float64(terms).sum(axis=(0, 2))
        return with_terms(judged("grad_bias", values, exact, compute_dtype), terms, exact, values)

    def tensor(self, values: Any) -> torch.Tensor:
        """Return values as torch gets them."""
        return tensor_of(values, self.terms).reshape(self.shape)


@dataclass(frozen=True)
class _Seen:
    """A product whose node of autograd is known: its layer, sizes, and where its factors begin."""

    name: str
    sizes: tuple[int, int, int]
    places: tuple[int, int]
    made: tuple[int, ...]

    def result_of(self, product: tuple[int, int, int], places: tuple[int, int]) -> str:
        """Return what a product (m, k, n) in this one's node makes; a checkpoint makes its output again."""
        m, k, n = self.sizes
        # As torch writes them; of matrices it may make the transposed result.
        usual = {"grad_input": (m, n, k), "grad_weight": (k, m, n), "output": (m, k, n)}
        fitting = [name for name, sizes in usual.items() if sizes[1] == product[1]]
        if len(fitting) < 2:
            return fitting[0] if fitting else "output"
        has_a, has_b = (place in places for place in self.places)
        if has_a != has_b:
            # The gradient of one factor reads the other one.
            return "grad_weight" if has_a else "grad_input"
        return next((name for name in fitting if usual[name] == product), fitting[0])


class Products:
    """Finds the products among torch's operators, and names them; `names` are those of the layers."""

    def __init__(self, names: LayerNames) -> None:
        self._names = names
        self._seen: OrderedDict[int, _Seen] = OrderedDict()

    def asked(self, func: Any, args: Any, kwargs: Any) -> ProductPass | SumPass | None:
        """Return the product, or the sum of a product's backward, that an operator is; None: another one."""
        if id(func) in PRODUCTS:
            return self._product(func, args, kwargs)
        return self._sum(args, kwargs) if func is SUM else None

    def _product(self, func: Any, args: Any, kwargs: Any) -> ProductPass | None:
        adds, in_place = PRODUCTS[id(func)]
        addend, (a, b) = (args[0], args[1:3]) if adds else (None, args[:2])
        written = args[0] if in_place else kwargs.get("out")
        kinds = {one.dtype for one in (a, b, addend, written) if one is not None}
        # Integers and float64 are no operands of the cube; torch refuses several types.
        if a.dtype not in FORMATS or len(kinds) > 1 or not all(map(_is_plain, (a, b))):
            return None
        if in_place and written.shape != (*a.shape[:-1], b.shape[-1]):
            return None  # torch refuses it
        batch = a.shape[0] if a.dim() == 3 else 1
        flags = _is_turned(a), _is_turned(b)
        problem = _product_problem(a.shape[-2], a.shape[-1], b.shape[-1], batch, *flags)
        name, direction, result = self._named(problem, a, b)
        layer = LayerPass(name, direction, problem, (type_name(a), type_name(b)), (result,))
        alpha, beta = kwargs.get("alpha", 1), kwargs.get("beta", 1)
        return ProductPass(layer, a, b, addend, alpha, beta, written, partial(func, *args, **kwargs))

    def _named(self, p: MatmulProblem, a: torch.Tensor, b: torch.Tensor) -> tuple[str, str, str]:
        """Return a product's layer, direction and result, and remember its node."""
        places = a.data_ptr(), b.data_ptr()
        seen, inside = self._running()
        result = OUTPUT[0] if seen is None else seen.result_of((p.m, p.k, p.n), places)
        if seen is not None and result not in OUTPUT:
            name, direction = seen.name, "backward"
        elif inside and not self._names.in_module:
            # In the backward of a function of one's own, or of torch.func; a checkpoint is in a module.
            name, direction = UNNAMED, "backward"
        else:
            name, direction = self._names.forward(b), "forward"
        if torch.is_grad_enabled():
            made = (p.batch, p.m, p.n) if a.dim() == 3 else (p.m, p.n)
            number = torch._C._autograd._get_sequence_nr() - 1
            self._seen.setdefault(number, _Seen(name, (p.m, p.k, p.n), places, made))
            if len(self._seen) > _MOST_SEEN:
                self._seen.popitem(last=False)
        return name, direction, result

    def _running(self) -> tuple[_Seen | None, bool]:
        """Return the product whose backward is running, if one is, and whether any backward is."""
        node = torch._C._current_autograd_node()
        return (None if node is None else self._seen.get(node._sequence_nr())), node is not None

    def _sum(self, args: Any, kwargs: Any) -> SumPass | None:
        terms, axes, *_ = (*args, ()) if len(args) < 2 else args
        seen, _ = self._running()
        rows = tuple(range(terms.dim() - 1))
        own = seen is not None and seen.made == tuple(terms.shape) and terms.dtype in FORMATS
        asked = tuple(sorted(axis % terms.dim() for axis in axes)) if axes else ()
        if seen is None or not own or asked != rows or not _is_plain(terms) or kwargs:
            return None
        count, columns = prod(terms.shape[:-1]), terms.shape[-1]
        problem = _sum_problem((count, 1, 1), (columns, 1, 1))
        layer = LayerPass(seen.name, "backward", problem, (type_name(terms),) * 3, ("grad_bias",))
        kept = len(args) > 2 and args[2]
        shape = (*(1,) * (terms.dim() - 1), columns) if kept else (columns,)
        return SumPass(layer, terms.reshape(count, columns, 1), shape, partial(SUM, *args))


def _is_plain(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has values that lie in memory one by one."""
    return has_values(tensor) and tensor.layout is torch.strided
