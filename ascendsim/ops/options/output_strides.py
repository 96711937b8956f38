"""Where gradients are to lie: the strides that a caller asks for, and the views they make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ascendsim.arguments import items, refusal, shown
from ascendsim.errors import ConfigError, ShapeError
from ascendsim.ops.lowering.call import GRADIENTS
from ascendsim.ops.problems.views import View


def strides_of(given: Any) -> dict[str, tuple[int, ...]]:
    """Return the strides of those gradients that are given some, in elements.

    Raises   ConfigError for anything but some gradients' strides by name
    """
    if given is None:
        return {}
    wrong = refusal("output_strides", given, 'strides by name, such as {"grad_input": (512, 16, 4, 1)}')
    if not isinstance(given, Mapping):
        raise wrong
    strides = {name: found for name, steps in given.items() if (found := items(steps)) is not None}
    if len(strides) < len(given):
        raise wrong
    if unknown := [shown(name) for name in strides if name not in GRADIENTS]:
        raise ConfigError(f"output_strides has {', '.join(unknown)}; it takes {', '.join(GRADIENTS)}")
    return strides


def strides_in_order(strides: Mapping[str, Sequence[int]]) -> tuple[Sequence[int] | None, ...]:
    """Return the strides of the three gradients in their order; None where there are none."""
    return tuple(strides.get(name) for name in GRADIENTS)


def output_views(
    strides: Mapping[str, tuple[int, ...]], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, View]:
    """Return where the elements of those gradients lie that have strides, one for each axis.

    Raises   ShapeError where two elements would lie in one place
    """
    views = {name: View(shapes[name], steps) for name, steps in strides.items()}
    for name, view in views.items():
        if view.shares_places:
            raise ShapeError(
                f"output_strides: {name} of shape {view.shape} and strides {view.strides} has elements in "
                "the same place; each needs one of its own"
            )
    return views
