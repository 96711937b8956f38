"""The steps of a call that vector cores run: reordering, casts, the bias gradient, zeros."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from ascendsim.numerics.accumulation.settings import MathSettings
from ascendsim.ops.lowering.call import Node, gm_tensor, vector_overflow
from ascendsim.ops.schedules.vector.channel_sums import bias_parts, lane_sums
from ascendsim.ops.schedules.vector.elementwise import cast, ordered_sum, zero_fill
from ascendsim.ops.schedules.vector.strided import View, gather
from ascendsim.program.kernel import Kernel, Phase

if TYPE_CHECKING:
    from ascendsim.numerics.accumulation.settings import Accumulation
    from ascendsim.profile import Profile


class Named(NamedTuple):
    """A tensor of a call: its name and the user's shape."""

    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Vectors:
    """The vector cores of a product; the accumulation model is only carried along for the reports."""

    profile: Profile
    accumulation: Accumulation

    def converting_to(self, target: str) -> MathSettings:
        """Return the arithmetic of a vector kernel whose results have format `target`."""
        return MathSettings(self.accumulation, overflow=vector_overflow(self.profile, target))


def contiguous(on: Vectors, name: str, dtype: str, view: View) -> Node:
    """Return the kernel that copies a strided tensor into row-major order."""
    return _gathered(on, f"contiguous_{name}", name, dtype, view, tuple(range(len(view.shape))))


def transpose(on: Vectors, name: str, dtype: str, shape: tuple[int, ...], axes: tuple[int, ...]) -> Node:
    """Return the kernel that permutes the axes of a contiguous tensor; `shape` is the one before."""
    return _gathered(on, f"transpose_{name}", name, dtype, View.row_major(shape).permuted(axes), axes)


def _gathered(
    on: Vectors, kernel_name: str, name: str, dtype: str, view: View, axes: tuple[int, ...]
) -> Node:
    before = gm_tensor(f"{name} as given", (view.size,), dtype, "input")
    after = gm_tensor(f"{name} in order", (view.size,), dtype, "output")
    kernel = Kernel(
        kernel_name,
        (gather(on.profile, before, view, after),),
        {before.name: before, after.name: after},
        on.converting_to("float32"),
        facts={"shape": view.shape, "strides": view.strides},
    )
    return Node(
        kernel,
        lambda tensors: {before.name: tensors[name].transpose(axes).reshape(-1)},
        lambda gm: {name: gm[after.name].reshape(view.shape)},
    )


def converted(on: Vectors, tensor: Named, source: str, target: str, kernel_name: str = "") -> Node:
    """Return the kernel that converts one whole tensor."""
    name, shape = tensor
    before = gm_tensor(f"{name} in {source}", (prod(shape),), source, "input")
    after = gm_tensor(f"{name} in {target}", (prod(shape),), target, "output")
    kernel = Kernel(
        kernel_name or f"cast_{name}",
        (cast(on.profile, before, after),),
        {before.name: before, after.name: after},
        on.converting_to(target),
    )
    return Node(
        kernel,
        lambda tensors: {before.name: tensors[name].reshape(-1)},
        lambda gm: {name: gm[after.name].reshape(shape)},
    )


def grad_bias(on: Vectors, shape: tuple[int, ...], given: str, asked: str) -> list[Node]:
    """Return the kernel that sums grad_output, uncast, over batch and space, and the cast of its result.

    Shapes   `shape` of grad_output (N, C, spatial...) -> (C,)
    Types    `given` is the format of grad_output and of the sum, `asked` that of grad_bias
    """
    source = gm_tensor("grad_output", (shape[0], shape[1], prod(shape[2:])), given, "input")
    parts = bias_parts(on.profile, shape[0], shape[1])
    if parts == 1:
        target = gm_tensor("grad_bias", (1, shape[1]), given, "output")
        phases: tuple[Phase, ...] = (lane_sums(on.profile, source, target),)
        tensors = {"grad_output": source, "grad_bias": target}
    else:
        partial_sums = gm_tensor("partial sums", (parts, shape[1]), "float32", "workspace")
        target = gm_tensor("grad_bias", (shape[1],), given, "output")
        phases = (
            lane_sums(on.profile, source, partial_sums),
            ordered_sum(on.profile, partial_sums, target),
        )
        tensors = {"grad_output": source, "partial sums": partial_sums, "grad_bias": target}
    kernel = Kernel("grad_bias", phases, tensors, on.converting_to(given))
    steps = [
        Node(
            kernel,
            lambda given_tensors: {"grad_output": given_tensors["grad_output"].reshape(source.shape)},
            lambda gm: {"grad_bias": gm["grad_bias"].reshape(-1)},
        )
    ]
    if asked != given:
        steps.append(converted(on, Named("grad_bias", (shape[1],)), given, asked))
    return steps


def filled(on: Vectors, tensor: Named, dtype: str, value: float = 0.0) -> Node:
    """Return the kernel that sets every element of a gradient to one value."""
    name, shape = tensor
    made = gm_tensor(name, (prod(shape),), dtype, "output")
    kernel = Kernel(
        f"fill_{name}", (zero_fill(on.profile, made, value),), {name: made}, on.converting_to(dtype)
    )
    return Node(kernel, lambda _: {}, lambda gm: {name: gm[name].reshape(shape)})
