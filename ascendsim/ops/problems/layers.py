"""Layers of a network by their kind: besides convolutions, matrix products and conv_tbc.

A product's gradients are products: with y = a b, grad_a is grad_y b^T and grad_b is a^T grad_y.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import prod
from typing import Any, NamedTuple

from ascendsim.errors import ShapeError, did_you_mean, items, shown, truth, whole
from ascendsim.frozen import cached_property
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.matmul import MatmulProblem

KINDS = ("conv", "linear", "matmul", "conv_tbc")


class ProductGradient(NamedTuple):
    """A gradient that is one matrix product, of these tensors of the call."""

    left: str
    right: str
    problem: MatmulProblem


@dataclass(frozen=True)
class ProductLayer:
    """A layer y = a b, whose operands go by the names of a convolution's: a is `input`, b is `weight`.

    input, weight   linear: (..., k) and (n, k), which is stored transposed and the same for all rows;
                    else two activations (..., m, k) and (..., k, n) of equal first axes

    Raises          ShapeError for shapes that do not fit
    """

    input: tuple[int, ...]
    weight: tuple[int, ...]
    linear: bool

    def __post_init__(self) -> None:
        """Refuse shapes that make no product."""
        linear = truth(self.linear)
        if linear is None:
            raise ShapeError(f"a layer of a product: linear is {shown(self.linear)}; say True or False")
        object.__setattr__(self, "linear", linear)
        for name in ("input", "weight"):
            object.__setattr__(self, name, _sizes(self.kind, name, getattr(self, name)))
        a, b = self.input, self.weight
        fits = len(b) == 2 <= len(a) if self.linear else len(a) == len(b) >= 3 and a[:-2] == b[:-2]
        if not fits or a[-1] != b[-1 if self.linear else -2]:
            rule = "(..., k) and (n, k)" if self.linear else "(..., m, k) and (..., k, n), alike before"
            raise ShapeError(f"{self.kind}: input is {a} and weight {b}; they must be {rule}")

    @property
    def kind(self) -> str:
        """The word for it, one of `KINDS`."""
        return "linear" if self.linear else "matmul"

    @property
    def grad_output(self) -> tuple[int, ...]:
        """Shape of the result, and of its gradient."""
        return (*self.input[:-1], self.weight[0 if self.linear else -1])

    @property
    def macs(self) -> int:
        """Multiply-adds forward, and of each of the two gradients."""
        return prod(self.grad_output) * self.input[-1]

    @cached_property
    def gradients(self) -> Mapping[str, ProductGradient]:
        """The two gradients that multiply, in the order of their kernels."""
        k, n = self.input[-1], self.grad_output[-1]
        if self.linear:
            rows = prod(self.input[:-1])
            of_input = MatmulProblem(rows, n, k)
            of_weight = ProductGradient("grad_output", "input", MatmulProblem(n, rows, k, transpose_a=True))
        else:
            m, batch = self.input[-2], prod(self.input[:-2])
            of_input = MatmulProblem(m, n, k, batch, transpose_b=True)
            of_weight = ProductGradient(
                "input", "grad_output", MatmulProblem(k, m, n, batch, transpose_a=True)
            )
        return {"grad_input": ProductGradient("grad_output", "weight", of_input), "grad_weight": of_weight}


@dataclass(frozen=True)
class TbcLayer:
    """A conv_tbc: input (T, B, Cin), weight (K, Cin, Cout), zeros on both sides of T.

    Raises   ShapeError for shapes that do not fit
    """

    input: tuple[int, ...]
    weight: tuple[int, ...]
    padding: int = 0

    def __post_init__(self) -> None:
        """Refuse what is no conv_tbc."""
        for name in ("input", "weight"):
            object.__setattr__(self, name, _sizes("conv_tbc", name, getattr(self, name)))
        if not len(self.input) == len(self.weight) == 3 or self.input[2] != self.weight[1]:
            raise ShapeError(
                f"conv_tbc: input is {self.input} and weight {self.weight}; they must be (T, B, Cin) and "
                "(K, Cin, Cout)"
            )
        assert self.conv.macs  # made here, so that padding and taps are checked

    @property
    def kind(self) -> str:
        """The word for it, one of `KINDS`."""
        return "conv_tbc"

    @cached_property
    def conv(self) -> ConvProblem:
        """The same convolution with batch and channels first."""
        (time, batch, channels), (taps, _, made) = self.input, self.weight
        return ConvProblem((batch, channels, time), (made, channels, taps), 1, self.padding)

    @property
    def grad_output(self) -> tuple[int, ...]:
        """Shape of the result, and of its gradient."""
        batch, made, time = self.conv.grad_output
        return time, batch, made

    @property
    def macs(self) -> int:
        """Multiply-adds forward, and of each of the two gradients."""
        return self.conv.macs


LayerProblem = ConvProblem | ProductLayer | TbcLayer


def layer_problem(*, kind: str = "conv", input: Any, weight: Any, **options: Any) -> LayerProblem:
    """Return the layer of a kind; `options` are the keywords of `ConvProblem`, of which conv_tbc has padding.

    Raises   ShapeError for shapes that do not fit, an unknown kind, or an option that the kind has not
    """
    if not isinstance(kind, str) or kind not in KINDS:
        raise ShapeError(f"the kind of a layer is {shown(kind)}; {did_you_mean(shown(kind), KINDS)}")
    known = {"conv": {field.name for field in fields(ConvProblem)}, "conv_tbc": {"padding"}}
    surplus = sorted(options.keys() - known.get(kind, set()))
    if surplus:
        raise ShapeError(f"{kind}: has no {' and no '.join(surplus)}; leave it out")
    if kind == "conv":
        return ConvProblem(input=input, weight=weight, **options)
    if kind == "conv_tbc":
        return TbcLayer(input, weight, **options)
    return ProductLayer(input, weight, kind == "linear")


def kind_of(problem: LayerProblem) -> str:
    """Return the kind of a layer, one of `KINDS`."""
    return "conv" if isinstance(problem, ConvProblem) else problem.kind


def _sizes(kind: str, name: str, given: Any) -> tuple[int, ...]:
    sizes = [whole(size) for size in items(given) or ()]
    if not sizes or not all(size is not None and size > 0 for size in sizes):
        raise ShapeError(f"{kind}: {name} is {shown(given)}; it must be positive whole numbers")
    return tuple(size for size in sizes if size is not None)
