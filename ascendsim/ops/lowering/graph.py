"""The kernels of a call, over named tensors in global memory.

The host puts values in at one end and takes them out at the other, row after row both times. In between every
change is a node: Contiguous, Transpose, Cast, the products, sums, and TransData between layouts. Those that
vector cores run are appended here, the products in `ops/lowering/kernels.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from ascendsim.numerics.accumulation import Accumulation, MathSettings
from ascendsim.ops.lowering.formats import vector_overflow
from ascendsim.ops.lowering.notes import squeezed
from ascendsim.ops.problems.views import View
from ascendsim.ops.schedules.vector.boxes import transdata
from ascendsim.ops.schedules.vector.dilation import DilationTensors, dilation
from ascendsim.ops.schedules.vector.elementwise import cast, flat, ordered_sum, piece_elements, zero_fill
from ascendsim.ops.schedules.vector.regroup import Regroup, regroup
from ascendsim.ops.schedules.vector.relayout import Relayout
from ascendsim.profile import Profile
from ascendsim.program.kernel import Kernel, Phase
from ascendsim.program.places import GmTensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Convert = Callable[[NDArray[Any]], NDArray[Any]]


class TransData(NamedTuple):
    """A change of layout that a kernel of the cube makes as it reads or writes.

    Those that the device runs a kernel for are kernels here too; this one has a meaning, and no cycles.
    """

    source: GmTensor
    target: GmTensor
    convert: Convert


class Graph(NamedTuple):
    """The kernels that the device runs for one call, in order.

    inputs, outputs   the call's name of a tensor -> the tensor that holds it, row after row
    """

    nodes: tuple[Kernel | TransData, ...]
    inputs: Mapping[str, GmTensor]
    outputs: Mapping[str, GmTensor]

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The kernels, without changes of layout."""
        return tuple(node for node in self.nodes if isinstance(node, Kernel))


def touched(node: Kernel | TransData) -> set[str]:
    """Return the names of the tensors in GM that a node needs or makes."""
    return set(node.tensors) if isinstance(node, Kernel) else {node.source.name, node.target.name}


class GraphBuilder:
    """Appends nodes, and knows which tensor in GM holds each tensor of the call by now."""

    def __init__(self, inputs: Mapping[str, GmTensor]) -> None:
        self._inputs = dict(inputs)
        self._nodes: list[Kernel | TransData] = []
        self._names = {tensor.name for tensor in inputs.values()}
        self._now = dict(inputs)

    def now(self, name: str) -> GmTensor:
        """Return the tensor that holds a tensor of the call, row after row."""
        return self._now[name]

    def make(self, name: str, shape: tuple[int, ...], dtype: str, text: str = "") -> GmTensor:
        """Return a tensor for the next state of a tensor of the call, under a name that no other one has."""
        label, number = text or name, 1
        while label in self._names:
            number += 1
            label = f"{text or name} {number}"
        return GmTensor.of(label, shape, dtype, "output")

    def fresh(self, kernel: str) -> str:
        """Return a name for a kernel that no other one has."""
        taken, name, number = {node.name for node in self._nodes if isinstance(node, Kernel)}, kernel, 1
        while name in taken:
            number += 1
            name = f"{kernel}_{number}"
        return name

    def maker_of(self, tensor: GmTensor) -> Kernel | None:
        """Return the last kernel so far that makes a tensor."""
        for node in reversed(self._nodes):
            if isinstance(node, Kernel):
                made = node.tensors.get(tensor.name)
                if made is not None and made.role == "output":
                    return node
        return None

    def add(self, kernel: Kernel) -> None:
        """Append a kernel."""
        self._nodes.append(kernel)
        self._names.update(kernel.tensors)

    def holds(self, name: str, tensor: GmTensor, shape: tuple[int, ...]) -> None:
        """Note that a tensor of the call, of this shape, is in another tensor of GM from now on."""
        # Whatever made it, for the next kernel it is an input; how its axes once lay is the maker's affair.
        self._now[name] = replace(tensor, shape=shape, role="input", permuted=None)

    def packed(self, name: str, target: GmTensor, convert: Convert) -> None:
        """Bring a tensor of the call into a layout of the cube, unless it is there for another kernel."""
        # Both gradients read grad_output, in one layout; a second change would cost its traffic again.
        if target.name not in self._names:
            self._nodes.append(TransData(self._now[name], target, convert))
            self._names.add(target.name)

    def unpacked(self, name: str, source: GmTensor, shape: tuple[int, ...], convert: Convert) -> None:
        """Bring what a kernel made back from a layout of the cube."""
        target = self.make(name, shape, source.dtype)
        self._nodes.append(TransData(source, target, convert))
        self._names.add(target.name)
        self.holds(name, target, shape)

    def build(self, outputs: tuple[str, ...]) -> Graph:
        """Return the graph that makes these tensors of the call, as far as it makes them."""
        made = {name: self._now[name] for name in outputs if name in self._now}
        return Graph(tuple(self._nodes), self._inputs, made)


class VectorKernels(NamedTuple):
    """Appends kernels of the vector cores to a graph.

    The accumulation model is only carried along for the reports.
    """

    graph: GraphBuilder
    profile: Profile
    accumulation: Accumulation

    def contiguous(self, name: str, view: View) -> None:
        """Append the kernel that copies a strided tensor into row-major order.

        The host has put its elements into GM in their order; where they lie counts only for the bytes read.
        """
        self._gather(f"contiguous_{name}", name, flat(self.graph.now(name)), view, "Contiguous")

    def transpose(self, name: str, axes: tuple[int, ...]) -> None:
        """Append the kernel that permutes the axes of a contiguous tensor."""
        given = self.graph.now(name)
        before = replace(flat(given), permuted=(given.shape, axes))
        kernel = self.graph.fresh(f"transpose_{name}")
        self._gather(kernel, name, before, View.row_major(given.shape).permuted(axes), "Transpose")

    def _gather(self, kernel: str, name: str, before: GmTensor, view: View, op_type: str) -> None:
        from ascendsim.ops.schedules.vector.dilation import gather

        after = self.graph.make(name, (view.size,), before.dtype, f"{name} in order")
        phase = gather(self.profile, before, view, after)
        facts: dict[str, object] = {"shape": view.shape, "strides": view.strides}
        self._add(
            kernel, (phase,), (before, after), "float32", facts, op_type=op_type, recipe=("gather", view)
        )
        self.graph.holds(name, after, view.shape)

    def view_copy(self, name: str, view: View) -> None:
        """Append the kernel that puts a gradient into memory where its elements lie in places of their own.

        The host takes them out of GM in their order; where they lie counts only for the bytes written.
        """
        from ascendsim.ops.schedules.vector.dilation import scatter

        given = self.graph.now(name)
        before = flat(given)
        after = self.graph.make(name, before.shape, before.dtype, f"{name} in its places")
        phase = scatter(self.profile, before, view, after)
        facts: dict[str, object] = {"shape": view.shape, "strides": view.strides}
        tensors, recipe = (before, after), ("scatter", view)
        self._add(f"viewcopy_{name}", (phase,), tensors, "float32", facts, op_type="ViewCopy", recipe=recipe)
        self.graph.holds(name, after, view.shape)

    def transdata(self, kernel: str, change: Relayout) -> None:
        """Append the kernel that changes the layout of a tensor."""
        tensors = change.source, change.target
        again = self.graph.maker_of(change.target)
        # The same work is planned and timed once for all kernels that do it.
        phases = again.phases if again else (transdata(self.profile, change),)
        # As bits, which nothing rounds: Inf stays Inf where conversions saturate.
        name = self.graph.fresh(kernel)
        self._add(name, phases, tensors, "float32", op_type="TransData", recipe=change.recipe)

    def regroup(self, name: str, change: Regroup) -> None:
        """Append the MemSet of a weight in the cube's layout, and the kernel that regroups into its zeros."""
        self.clear(f"regrouped_{name}", change.target)
        tensors, phases = (change.source, change.target), (regroup(self.profile, change),)
        self._add(f"regroup_{name}", phases, tensors, "float32", op_type="TransData", recipe=change.recipe)

    def dilate(self, name: str, spreading: DilationTensors) -> None:
        """Append the kernel that spreads the pixels of a tensor in the cube's layout over zeros."""
        tensors, how = (spreading.source, spreading.target), (spreading.step, spreading.first)
        # As bits, like a change of layout.
        phases = (dilation(self.profile, spreading),)
        recipe = "dilation", *how
        self._add(f"dilation_{name}", phases, tensors, "float32", op_type="Dilation", recipe=recipe)

    def convert(self, name: str, target: str, kernel: str = "", note: str = "") -> None:
        """Append the kernel that converts one whole tensor.

        kernel   its name if it is no plain cast
        note     what a reader of the result must know about it
        """
        given = self.graph.now(name)
        before, size = flat(given), (prod(given.shape),)
        after = self.graph.make(name, size, target, f"{name} in {target}")
        phase = cast(self.profile, before, after)
        label, tensors = kernel or f"cast_{name}", (before, after)
        # Of what converts a piece the budget asks before it is written.
        pieces = size[0] // piece_elements(self.profile, max(before.itemsize, after.itemsize))
        facts: dict[str, object] = {"pieces": pieces}
        self._add(label, (phase,), tensors, target, facts, note=note, op_type="Cast", recipe="cast")
        self.graph.holds(name, after, given.shape)

    def grad_bias(self, asked: str, made: str) -> None:
        """Append the kernel that sums grad_output over batch and space, and the cast of its result.

        Shapes   grad_output (N, C, spatial...) -> (C,)
        Types    sums are in float32 and leave in the format `made`; grad_bias has the one `asked` for
        """
        # Imported here, as those of strided tensors are: most calls ask for neither.
        from ascendsim.ops.schedules.vector.channel_sums import bias_parts, lane_sums

        given = self.graph.now("grad_output")
        batch, channels = given.shape[:2]
        source = replace(given, shape=(batch, channels, prod(given.shape[2:])))
        parts = bias_parts(self.profile, batch, channels)
        target = self.graph.make("grad_bias", (1, channels) if parts == 1 else (channels,), made)
        sums = target
        # Parts stay in float32 until they are added; one part is converted as it is written.
        if parts > 1:
            sums = GmTensor.of("partial sums", (parts, channels), "float32", "workspace")
        phases = [lane_sums(self.profile, source, sums)]
        if parts > 1:
            phases.append(ordered_sum(self.profile, sums, target))
        tensors = source, sums, target
        self._add("grad_bias", tuple(phases), tensors, made, op_type="ReduceSum", recipe="channel sums")
        self.graph.holds("grad_bias", target, (channels,))
        if asked != made:
            self.convert("grad_bias", asked, note=squeezed("grad_bias", made, asked))

    def fill(self, name: str, shape: tuple[int, ...], dtype: str, value: float = 0.0) -> None:
        """Append the kernel that sets every element of a gradient to one value; without elements, none."""
        if not prod(shape):
            return
        made = self.graph.make(name, (prod(shape),), dtype)
        phase = zero_fill(self.profile, made, value)
        self._add(f"fill_{name}", (phase,), (made,), dtype, op_type="Fill", recipe="fill")
        self.graph.holds(name, made, shape)

    def clear(self, name: str, tensor: GmTensor) -> None:
        """Append the kernel (MemSet) that writes zeros where the next one adds; `name` is what it makes."""
        made = flat(tensor)
        phase = zero_fill(self.profile, made)
        self._add(f"memset_{name}", (phase,), (made,), tensor.dtype, op_type="MemSet", recipe="fill")

    def _add(
        self,
        name: str,
        phases: tuple[Phase, ...],
        tensors: tuple[GmTensor, ...],
        target: str,
        facts: dict[str, object] | None = None,
        note: str = "",
        op_type: str = "",
        *,
        recipe: Hashable,
    ) -> None:
        """Append a kernel whose results have format `target`; `recipe` says how it is made of its tensors."""
        math = MathSettings(self.accumulation, overflow=vector_overflow(self.profile, target))
        named = {tensor.name: tensor for tensor in tensors}
        facts = facts or {}
        made = Kernel(name, phases, named, math, note=note, facts=facts, op_type=op_type, recipe=recipe)
        self.graph.add(made)
