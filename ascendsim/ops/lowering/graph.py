"""The kernels of a call, over named tensors in global memory.

The host puts values in at one end and takes them out at the other, row after row both times. In between every
change is a node: Contiguous, Transpose, Cast, the products, sums, and TransData between layouts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ascendsim.program.kernel import Kernel
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
