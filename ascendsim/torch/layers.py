"""Which layer a convolution belongs to: hooks on all modules know which one is running."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from ascendsim.errors import ConfigError
from ascendsim.ops.lowering.call import GRADIENTS, Mask

if TYPE_CHECKING:
    import torch

    from ascendsim.ops.problems.convolution import ConvProblem

UNNAMED = "(no module)"
OUTPUT = ("output",)


@dataclass(frozen=True)
class Layer:
    """One pass of one layer, as a filter sees it.

    name       path of the module in the outermost one that was called, such as "features.0"; the second and
               later convolutions that one module calls itself have "#1", "#2" behind it
    direction  "forward" or "backward"
    problem    shapes and attributes of the convolution
    dtypes     formats of input and weight, of a backward of grad_output before them
    results    what is asked for: "output", or some of "grad_input", "grad_weight", "grad_bias"
    """

    name: str
    direction: str
    problem: ConvProblem
    dtypes: tuple[str, ...]
    results: tuple[str, ...]

    @property
    def mask(self) -> Mask:
        """Which of the three gradients are asked for."""
        grad_input, grad_weight, grad_bias = (name in self.results for name in GRADIENTS)
        return grad_input, grad_weight, grad_bias


Filter = str | Sequence[str] | Callable[[Layer], bool] | None
PerLayer = Mapping[str, Mapping[str, Any]]


def checked_filter(chosen: Filter) -> Filter:
    """Return a filter as patterns, a function, or None.

    Raises   ConfigError for anything else
    """
    if chosen is None or callable(chosen):
        return chosen
    patterns = (chosen,) if isinstance(chosen, str) else chosen
    if not isinstance(patterns, Sequence) or not all(isinstance(pattern, str) for pattern in patterns):
        raise ConfigError(
            f"Simulation: layers is {chosen!r}; it must be a pattern of names, such as 'features.*', several "
            "of them, or a function of a Layer"
        )
    return tuple(patterns)


def wanted(layer: Layer, chosen: Filter) -> bool:
    """Tell whether a checked filter takes a layer; patterns are those of file names."""
    if chosen is None:
        return True
    if callable(chosen):
        return bool(chosen(layer))
    return any(fnmatchcase(layer.name, pattern) for pattern in chosen)


class LayerNames:
    """Follows which module runs, and remembers whose weight is whose, for the backward pass."""

    def __init__(self) -> None:
        self._running: list[_Running] = []
        self._paths: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
        self._of_weights: dict[Any, str] = {}
        self._hooks: list[Any] = []

    def watch(self) -> None:
        """Begin to follow modules."""
        self._hooks.append(register_module_forward_pre_hook(self._begins))
        # Also where a module fails: a script may catch that and go on.
        self._hooks.append(register_module_forward_hook(self._ends, always_call=True))

    def stop(self) -> None:
        """Stop following modules."""
        while self._hooks:
            self._hooks.pop().remove()
        self._running.clear()

    def forward(self, weight: torch.Tensor) -> str:
        """Name the convolution with this weight that is running."""
        name = self._running[-1].next_name() if self._running else UNNAMED
        self._of_weights[_key(weight)] = name
        return name

    def backward(self, weight: torch.Tensor) -> str:
        """Name the convolution with this weight, as its forward was named."""
        # The tensor itself is another object by now, and under autocast never was the parameter.
        return self._of_weights.get(_key(weight), UNNAMED)

    def _begins(self, module: Any, _arguments: Any) -> None:
        if not self._running:
            self._name_all(module)
        self._running.append(_Running(self._paths.get(module, type(module).__name__)))

    def _ends(self, _module: Any, _arguments: Any, _output: Any) -> None:
        if self._running:
            self._running.pop()

    def _name_all(self, root: Any) -> None:
        """Give each module under a root the name that it has there, unless it has one."""
        taken = set(self._paths.values())
        for path, module in root.named_modules():
            if module in self._paths:
                continue
            name = first = path or type(root).__name__
            number = 1
            while name in taken:
                number += 1
                name = f"{first} ({number})"
            self._paths[module] = name
            taken.add(name)


class _Running:
    """A module in its forward, and how many convolutions it has called itself."""

    def __init__(self, name: str) -> None:
        self._name, self._count = name, 0

    def next_name(self) -> str:
        self._count += 1
        return self._name if self._count == 1 else f"{self._name}#{self._count - 1}"


def _key(weight: torch.Tensor) -> Any:
    return weight.data_ptr(), tuple(weight.shape), weight.dtype
