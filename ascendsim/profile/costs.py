"""What a product costs by a formula of the user's: figures by their paths, numbers, + - * / and ( )."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any

from ascendsim.errors import ConfigError
from ascendsim.native.default_arithmetic import default_floats
from ascendsim.profile.check import hint
from ascendsim.profile.records import Profile

OPERATIONS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
FORM = 'figures by their paths, numbers, + - * / and ( ), such as "cores.cube * 2 + l2.capacity_bytes / 1e6"'


@dataclass(frozen=True, slots=True)
class Cost:
    """A formula, in a unit that only the user knows.

    Raises   ConfigError for a text that is no formula
    """

    text: str

    def __post_init__(self) -> None:
        """Refuse what cannot be read."""
        self._tree()

    @default_floats
    def of(self, profile: Profile) -> float:
        """Return the cost of a product.

        Raises   ConfigError for a path that is no figure or no number, a division by 0, and a cost that is
                 no finite number
        """
        try:
            cost = float(self._value(self._tree(), profile))
        except ZeroDivisionError:
            raise ConfigError(f"cost {self.text!r}: divides by 0 on {profile.variant}") from None
        except OverflowError:
            cost = inf
        if not isfinite(cost):
            raise ConfigError(
                f"cost {self.text!r}: is {cost} on {profile.variant}; it must be a finite number"
            )
        return cost

    def _tree(self) -> ast.expr:
        try:
            return ast.parse(self.text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise ConfigError(f"cost {self.text!r}: expected {FORM}") from None

    def _value(self, node: ast.expr, profile: Profile) -> Any:
        # By hand and not by eval: a formula may come in a file of somebody else's.
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATIONS:
            sides = self._value(node.left, profile), self._value(node.right, profile)
            return OPERATIONS[type(node.op)](*sides)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -self._value(node.operand, profile)
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            return node.value
        if isinstance(node, ast.Attribute | ast.Name):
            return self._figure(ast.unparse(node), profile)
        raise ConfigError(f"cost {self.text!r}: {ast.unparse(node)!r} is not allowed; expected {FORM}")

    def _figure(self, path: str, profile: Profile) -> float:
        figure = profile.figures.get(path)
        if figure is None:
            near = hint(path, tuple(profile.figures))
            more = near if "did you mean" in near else f"; `ascendsim profiles {profile.variant}` lists them"
            raise ConfigError(f"cost {self.text!r}: no figure {path} of {profile.variant}{more}")
        if isinstance(figure.value, bool | str | list | tuple):
            raise ConfigError(
                f"cost {self.text!r}: {path} of {profile.variant} is {figure.value!r}, no number"
            )
        return float(figure.value)
