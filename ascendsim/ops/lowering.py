"""From a call to the kernels that the device runs, one after another.

Each step has its kernel, and knows which of the call's tensors it reads and makes. Relayout between the
user's NCHW and the cube's NC1HWC0 happens between the steps, on the host side of the simulator: its kernels
(TransData) are not part of the call's cycles yet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

from ascendsim.numerics.dtypes import DType, dtype
from ascendsim.numerics.models import AccumulationModel
from ascendsim.numerics.settings import MathSettings
from ascendsim.ops.conv_problem import ConvProblem
from ascendsim.ops.filter_gemm import FilterGemm, FilterGemmSchedule
from ascendsim.ops.image_gemm import ImageGemm, ImageGemmSchedule
from ascendsim.ops.layouts import (
    groups_of,
    pack_activation,
    pack_weight,
    unpack_activation,
    unpack_weight,
)
from ascendsim.ops.sliding import Sliding
from ascendsim.ops.tiling.filter import filter_tiling
from ascendsim.ops.tiling.image import image_tiling
from ascendsim.ops.tiling.plan import Tiling
from ascendsim.ops.vector_kernels import bias_parts, cast, lane_sums, ordered_sum, zero_fill
from ascendsim.program import GmTensor, Kernel, Phase

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ascendsim.profile import Profile

    Tensors = dict[str, NDArray[np.float32]]

C0_BYTES = 32


@dataclass(frozen=True)
class Call:
    """All that fixes the kernels of a call, besides the values in its tensors.

    compute_dtype   what the cube multiplies: float16, bfloat16, float32 or hf32
    dtypes          storage format of grad_output, input, weight, grad_input, grad_weight, grad_bias
    """

    problem: ConvProblem
    profile: Profile
    compute_dtype: str
    dtypes: dict[str, str]
    accumulation: AccumulationModel
    deterministic: bool
    tilings: dict[str, Tiling]

    @property
    def math(self) -> MathSettings:
        """Arithmetic of the convolution kernels."""
        return MathSettings(self.accumulation)

    @property
    def storage(self) -> DType:
        """Format in which GM and L1 hold the operands of the cube."""
        return dtype("float32" if self.compute_dtype == "hf32" else self.compute_dtype)

    @property
    def operand(self) -> DType:
        """Format whose grid the operands lie on inside the cube."""
        if self.compute_dtype != "hf32":
            return self.storage
        return dtype(f"hf32_{self.profile.cube.hf32_mantissa_bits}")

    @property
    def c0(self) -> int:
        """Channels in one group of 32 bytes."""
        return C0_BYTES // self.storage.itemsize


@dataclass(frozen=True)
class Step:
    """One kernel of the call.

    `bind(tensors)` returns the kernel's inputs in its own layout; `collect(gm)` returns, by name, what the
    kernel made, in the user's layout. Both work on float32 carriers.
    """

    kernel: Kernel
    bind: Callable[[Tensors], Tensors]
    collect: Callable[[Tensors], Tensors]


def lower(call: Call, output_mask: tuple[bool, bool, bool]) -> list[Step]:
    """Return the kernels of a call in the order in which the device runs them."""
    want_input, want_weight, want_bias = output_mask
    steps: list[Step] = []
    if want_bias:
        steps += _grad_bias(call)
    needed = {"grad_output": want_input or want_weight, "weight": want_input, "input": want_weight}
    for name, used in needed.items():
        if used and call.dtypes[name] != call.storage.name:
            steps.append(_cast(call, name, call.dtypes[name], call.storage.name))
    if want_input:
        steps.append(_grad_input(call))
        if call.dtypes["grad_input"] != call.storage.name:
            steps.append(_cast(call, "grad_input", call.storage.name, call.dtypes["grad_input"]))
    if want_weight:
        steps.append(_grad_weight(call))
        if call.dtypes["grad_weight"] != "float32":
            steps.append(_cast(call, "grad_weight", "float32", call.dtypes["grad_weight"]))
    return steps


def _tensor(name: str, shape: tuple[int, ...], dtype_name: str, role: str) -> GmTensor:
    return GmTensor(name, shape, dtype_name, dtype(dtype_name).itemsize, role)


def _shape_of(call: Call, name: str) -> tuple[int, ...]:
    problem = call.problem
    if name == "grad_output":
        return problem.grad_output
    if name == "grad_bias":
        return (problem.grad_output[1],)
    return problem.weight if "weight" in name else problem.input


def _cast(call: Call, name: str, source: str, target: str) -> Step:
    """Return the vector kernel that converts one whole tensor."""
    shape = _shape_of(call, name)
    before = _tensor(f"{name} in {source}", (prod(shape),), source, "input")
    after = _tensor(f"{name} in {target}", (prod(shape),), target, "output")
    kernel = Kernel(
        f"cast_{name}",
        (cast(call.profile, before, after),),
        {before.name: before, after.name: after},
        call.math,
    )
    return Step(
        kernel,
        lambda tensors: {before.name: tensors[name].reshape(-1)},
        lambda gm: {name: gm[after.name].reshape(shape)},
    )


def _grad_bias(call: Call) -> list[Step]:
    """Return the vector kernel that sums grad_output, uncast, over batch and space."""
    shape = call.problem.grad_output
    given = call.dtypes["grad_output"]
    source = _tensor("grad_output", (shape[0], shape[1], prod(shape[2:])), given, "input")
    parts = bias_parts(call.profile, shape[0], shape[1])
    if parts == 1:
        target = _tensor("grad_bias", (1, shape[1]), given, "output")
        phases: tuple[Phase, ...] = (lane_sums(call.profile, source, target),)
        tensors = {"grad_output": source, "grad_bias": target}
    else:
        partial_sums = _tensor("partial sums", (parts, shape[1]), "float32", "workspace")
        target = _tensor("grad_bias", (shape[1],), given, "output")
        phases = (
            lane_sums(call.profile, source, partial_sums),
            ordered_sum(call.profile, partial_sums, target),
        )
        tensors = {"grad_output": source, "partial sums": partial_sums, "grad_bias": target}
    kernel = Kernel("grad_bias", phases, tensors, call.math)
    steps = [
        Step(
            kernel,
            lambda given_tensors: {"grad_output": given_tensors["grad_output"].reshape(source.shape)},
            lambda gm: {"grad_bias": gm["grad_bias"].reshape(-1)},
        )
    ]
    if call.dtypes["grad_bias"] != given:
        steps.append(_cast(call, "grad_bias", given, call.dtypes["grad_bias"]))
    return steps


def image_gemm(call: Call) -> ImageGemm:
    """Describe grad_input: the backward direction, or the forward one when the convolution is transposed."""
    p, c0, storage = call.problem, call.c0, call.storage
    forward = p.transposed
    source_size, out_size = (p.big_size, p.small_size) if forward else (p.small_size, p.big_size)
    reduced, columns = (p.big_channels, p.small_channels) if forward else (p.small_channels, p.big_channels)
    c1 = groups_of(reduced, c0)
    n1 = groups_of(columns, c0)
    pads = [p.pads[axis][0] for axis in range(3)]
    if forward:
        stride, insert, pad = p.strides[1:], (1, 1), (pads[1], pads[2])
    else:
        # The first tap read by output row y is at y - pad + (kernel - 1) * dilation, walking taps backwards.
        stride, insert = (1, 1), p.strides[1:]
        pad = tuple((p.kernel[a] - 1) * p.dilations[a] - pads[a] for a in (1, 2))  # type: ignore[assignment]
    sliding = Sliding(
        out_size[1:],
        source_size[1:],
        p.kernel[1:],
        stride,
        p.dilations[1:],
        pad,
        insert,
        c0,
        storage.itemsize,
    )
    groups, batch = p.groups, p.batch
    return ImageGemm(
        _tensor("source", (groups, batch, source_size[0], c1, *source_size[1:], c0), storage.name, "input"),
        _tensor("weight", (groups, p.kernel[0], c1, *p.kernel[1:], c0, n1 * c0), storage.name, "input"),
        _tensor(
            "grad_input",
            (groups, batch, out_size[0], n1, out_size[1] * out_size[2], c0),
            storage.name,
            "output",
        ),
        sliding,
        tuple(_depth_pairs(p, depth, forward=forward) for depth in range(out_size[0])),
        not forward,
        call.compute_dtype,
        call.compute_dtype,
    )


def _depth_pairs(p: ConvProblem, out: int, *, forward: bool) -> tuple[tuple[int, int], ...]:
    """Return the (kernel depth, source depth) pairs that reach one output depth."""
    stride, dilation, pad = p.strides[0], p.dilations[0], p.pads[0][0]
    pairs = []
    for tap in range(p.kernel[0]):
        if forward:
            source, rest = out * stride + tap * dilation - pad, 0
            limit = p.big_size[0]
        else:
            source, rest = divmod(out + pad - tap * dilation, stride)
            limit = p.small_size[0]
        if rest == 0 and 0 <= source < limit:
            pairs.append((tap, source))
    return tuple(pairs)


def _grad_input(call: Call) -> Step:
    spec = image_gemm(call)
    plan = call.tilings.get("grad_input") or image_tiling(spec, call.profile)
    phases: list[Phase] = []
    if not all(spec.depths):
        flat = replace(spec.output, shape=(prod(spec.output.shape),))
        phases.append(zero_fill(call.profile, flat))
    phases.append(ImageGemmSchedule(spec, plan, call.profile).phase())
    kernel = Kernel(
        "grad_input",
        tuple(phases),
        {tensor.name: tensor for tensor in (spec.source, spec.weights, spec.output)},
        call.math,
        call.problem.macs,
        call.compute_dtype,
        facts={"tiling": plan},
    )
    p = call.problem

    def bind(tensors: Tensors) -> Tensors:
        size = p.big_size if p.transposed else p.small_size
        source = pack_activation(_operand(call, tensors["grad_output"]), p.groups, size, call.c0)
        weight = _operand(call, tensors["weight"])
        return {
            "source": source,
            "weight": pack_weight(weight, p, call.c0, reduce_small=not p.transposed),
        }

    def collect(gm: Tensors) -> Tensors:
        channels = p.small_channels if p.transposed else p.big_channels
        return {"grad_input": unpack_activation(gm["grad_input"], channels, p.input)}

    return Step(kernel, bind, collect)


def filter_gemm(call: Call) -> FilterGemm:
    """Describe grad_weight: the small side against the big side under the kernel."""
    p, c0, storage = call.problem, call.c0, call.storage
    small1, big1 = groups_of(p.small_channels, c0), groups_of(p.big_channels, c0)
    pad = (p.pads[1][0], p.pads[2][0])
    small, big = p.small_size, p.big_size
    sliding = Sliding(
        small[1:], big[1:], p.kernel[1:], p.strides[1:], p.dilations[1:], pad, (1, 1), c0, storage.itemsize
    )
    depths = tuple(
        tuple(
            (out, source)
            for out in range(small[0])
            if 0 <= (source := out * p.strides[0] + tap * p.dilations[0] - p.pads[0][0]) < big[0]
        )
        for tap in range(p.kernel[0])
    )
    columns = big1 * p.kernel[1] * p.kernel[2] * c0
    return FilterGemm(
        _tensor(
            "small", (p.groups, p.batch, small[0], small1, small[1] * small[2], c0), storage.name, "input"
        ),
        _tensor("big", (p.groups, p.batch, big[0], big1, *big[1:], c0), storage.name, "input"),
        _tensor("grad_weight", (p.groups, p.kernel[0], small1 * c0, columns), "float32", "output"),
        sliding,
        depths,
        call.compute_dtype,
    )


def _grad_weight(call: Call) -> Step:
    spec = filter_gemm(call)
    plan = call.tilings.get("grad_weight") or filter_tiling(spec, call.profile)
    flat = replace(spec.output, shape=(prod(spec.output.shape),))
    split = plan.k_split > 1
    kept_apart = split and call.deterministic
    tensors = {tensor.name: tensor for tensor in (spec.small, spec.big, spec.output)}
    target = spec.output
    if kept_apart:
        target = _tensor("parts", (plan.k_split, *spec.output.shape), "float32", "workspace")
        tensors["parts"] = target
    schedule = FilterGemmSchedule(spec, plan, call.profile, target, split and not kept_apart)
    phases = [schedule.phase()]
    if schedule.has_gaps or (split and not kept_apart):
        phases.insert(0, zero_fill(call.profile, replace(target, shape=(prod(target.shape),))))
    if kept_apart:
        parts = replace(target, shape=(plan.k_split, prod(spec.output.shape)))
        phases.append(ordered_sum(call.profile, parts, flat))
    kernel = Kernel(
        "grad_weight",
        tuple(phases),
        tensors,
        call.math,
        call.problem.macs,
        call.compute_dtype,
        facts={"tiling": plan},
    )
    p = call.problem

    def bind(given: Tensors) -> Tensors:
        small, big = ("input", "grad_output") if p.transposed else ("grad_output", "input")
        packed = pack_activation(_operand(call, given[small]), p.groups, p.small_size, call.c0)
        return {
            "small": packed.reshape(spec.small.shape),
            "big": pack_activation(_operand(call, given[big]), p.groups, p.big_size, call.c0),
        }

    def collect(gm: Tensors) -> Tensors:
        return {"grad_weight": unpack_weight(gm["grad_weight"], p, call.c0)}

    return Step(kernel, bind, collect)


def _operand(call: Call, values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the values that the cube multiplies; HF32 rounds each element on its way out of L0."""
    if call.compute_dtype != "hf32":
        return values
    from ascendsim.numerics.casts import hf32

    return hf32(values, call.profile.cube.hf32_mantissa_bits, call.math.hf32_ties)
