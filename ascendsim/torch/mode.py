"""The mode under which the convolutions of an unmodified script run on the simulator."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

from ascendsim.errors import AscendSimError, ConfigError
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.ops.options.call import Options
from ascendsim.ops.options.keywords import Product
from ascendsim.torch.dispatch import ByTorch, ConvolutionMode
from ascendsim.torch.judging import judged_backward, judged_forward
from ascendsim.torch.layers import Filter, Layer, PerLayer, checked_filter, wanted
from ascendsim.torch.ledger import Entry, Ledger
from ascendsim.torch.passes import run_backward, run_forward
from ascendsim.torch.records import Record, table
from ascendsim.torch.setting import Setting
from ascendsim.torch.tensors import array_of, gradients_of, output_of

ERRORS = ("first", "every", "never")
REFUSED = ("raise", "torch")


class Simulation(ConvolutionMode):
    """Runs every convolution inside `with Simulation(...):` on the simulator, forward and backward.

    Keywords   those of `Setting`: product, cube_math_type, operands, accumulation, rules, ...
    layers     which layers: patterns of their names, or a function of a `Layer`; None: all. torch computes
               the others
    per_layer  pattern of names -> keywords that differ there; the first pattern that fits counts
    passes     "forward" and "backward", or one of them
    errors     "first": the first call of each layer is judged against float64; "every" one, or "never"
    refused    "raise" what the interface answers to a call that it does not take; "torch" computes it
               instead, and the record says why
    Raises     ConfigError, UnsupportedError and TypeError as `Setting`
    """

    def __init__(
        self,
        product: Product = Options.product,
        cube_math_type: int = 0,
        *,
        layers: Filter = None,
        per_layer: PerLayer | None = None,
        passes: str | Sequence[str] = ("forward", "backward"),
        errors: str = "first",
        refused: str = "raise",
        **keywords: Any,
    ) -> None:
        super().__init__()
        self._setting = Setting(product, cube_math_type, **keywords)
        self._layers = checked_filter(layers)
        given = (per_layer or {}).items()
        self._own_settings = [(pattern, self._setting.but(**other)) for pattern, other in given]
        asked = (passes,) if isinstance(passes, str) else passes
        self._passes = tuple(_one_of("passes", one, ("forward", "backward")) for one in asked)
        self._errors = _one_of("errors", errors, ERRORS)
        self._refused = _one_of("refused", refused, REFUSED)
        self._ledger = Ledger()
        # Of every layer that came by, also of those that are left to torch; in the order of their first call.
        self._met: dict[str, None] = {}

    @property
    def records(self) -> tuple[Record, ...]:
        """What has run so far, in the order in which the layers first ran; estimated when it is asked for."""
        return self._ledger.records()

    @default_arithmetic
    def table(self) -> str:
        """Return the records as lines of text, and which patterns fit no layer that ran."""
        return "\n".join([table(self.records), *self._unfitting()])

    def _unfitting(self) -> list[str]:
        """Say of each pattern that fits no layer so far: a slip of the pen would pass for a result."""
        given = [("layers", pattern) for pattern in self._layers or ()] if not callable(self._layers) else []
        given += [("per_layer", pattern) for pattern, _ in self._own_settings]
        ran = f"they are {', '.join(self._met)}" if self._met else "none has run"
        return [
            f"{keyword}: {pattern!r} fits none of the layers; {ran}"
            for keyword, pattern in given
            if not any(fnmatchcase(name, pattern) for name in self._met)
        ]

    def take(self, layer: Layer, tensors: tuple[Any, ...], by_torch: ByTorch) -> Any:
        """Return what the simulator makes of a layer, or torch where a filter or the interface says so."""
        self._met[layer.name] = None
        if layer.direction not in self._passes or not wanted(layer, self._layers):
            return by_torch()
        run = self._forward_of if layer.direction == "forward" else self._backward_of
        fitting = (own for pattern, own in self._own_settings if fnmatchcase(layer.name, pattern))
        entry = self._ledger.entry(layer, next(fitting, self._setting))
        try:
            made = run(entry, *tensors)
        except AscendSimError as error:
            if self._refused == "raise":
                error.add_note(
                    f"{layer.direction} of layer {layer.name}, {layer.problem}; `layers` of the Simulation "
                    'leaves layers to torch, refused="torch" those that the interface does not take'
                )
                raise
            entry.refused = str(error)
            made = by_torch()
        entry.calls += 1
        return made

    def _forward_of(self, entry: Entry, input: Any, weight: Any, bias: Any) -> Any:
        problem = entry.layer.problem
        x, w, b = array_of(input), array_of(weight), None if bias is None else array_of(bias)
        result = run_forward(problem, x, w, b, entry.setting)
        if self._judges(entry):
            entry.judged.append(judged_forward(problem, x, w, b, result))
        return output_of(result, input, weight)

    def _backward_of(self, entry: Entry, *tensors: Any) -> Any:
        problem, mask = entry.layer.problem, entry.layer.mask
        y, x, w = (array_of(tensor) for tensor in tensors)
        result = run_backward(problem, y, x, w, mask, entry.setting)
        if self._judges(entry):
            entry.judged.append(judged_backward(problem, (y, x, w), mask, result))
        return gradients_of(result, *tensors)

    def _judges(self, entry: Entry) -> bool:
        return self._errors == "every" or (self._errors == "first" and not entry.judged)


def _one_of(name: str, given: str, choices: tuple[str, ...]) -> str:
    if given not in choices:
        raise ConfigError(f"Simulation: {name} has {given!r}; it takes {', '.join(choices)}")
    return given
