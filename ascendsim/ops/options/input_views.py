"""Where the inputs of an estimate lie, which has no tensors: the views that strides by name make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ascendsim.arguments import items, shown
from ascendsim.errors import ConfigError
from ascendsim.ops.lowering.call import INPUTS
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.views import View


def input_views(problem: ConvProblem, strides: Mapping[str, Sequence[int]] | None) -> dict[str, View]:
    """Return where the elements of the inputs lie; whether strides fit is for the rules to say.

    Raises   ConfigError for anything but some inputs' strides by name
    """
    given = {} if strides is None else strides
    own = {name: items(steps) for name, steps in given.items()} if isinstance(given, Mapping) else None
    if own is None or None in own.values():
        raise ConfigError(
            f"estimate: strides is {shown(strides)}; it must be like {{'input': (512, 16, 4, 1)}}"
        )
    unknown = own.keys() - set(INPUTS)
    if unknown:
        raise ConfigError(
            f"estimate: strides has keys {sorted(map(shown, unknown))}; it takes {', '.join(INPUTS)}"
        )
    shapes = dict(zip(INPUTS, (problem.grad_output, problem.input, problem.weight), strict=True))
    return {
        name: View(shape, own.get(name, View.row_major(shape).strides) or ())
        for name, shape in shapes.items()
    }
