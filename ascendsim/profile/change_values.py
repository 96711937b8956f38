"""What a changed figure becomes on a product: its value, checked against the rule of the figure."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

from ascendsim.arguments import shown
from ascendsim.errors import ConfigError
from ascendsim.profile.build import DERIVED
from ascendsim.profile.check import hint
from ascendsim.profile.kinds import Kind
from ascendsim.profile.records import Figure, Profile
from ascendsim.profile.schema import node_at

# A number with something before or after it: a factor or a unit that is spelled otherwise than here.
_NUMBER = re.compile(
    r"(?P<before>[x*×+]*)\s*(?P<number>-?\d+(\.\d+)?(e-?\d+)?)\s*(?P<after>\D*)", re.IGNORECASE
)
_TIMES = ("x", "*", "×")


def value_on(path: str, said: Any, profile: Profile) -> Any:
    """Return what a figure becomes on a product.

    said     the value, or a text "x2": the product's value times so much
    Raises   ConfigError for a path that is no figure, a factor of what is no number, and a value that the
             figure cannot have
    """
    figure = profile.figures.get(path)
    if figure is None:
        raise ConfigError(f"change of {path}: no such figure of {profile.variant}{_near(path, profile)}")
    kind = node_at(tuple(path.split(".")))
    if not isinstance(kind, Kind):
        from_what = DERIVED[path.rpartition(".")[2]]
        raise ConfigError(f"change of {path}: it follows from {from_what} beside it; change that instead")
    factor = factor_of(said)
    value = said if factor is None else _times(path, said, factor, figure, profile)
    _require(kind, path, said, value, figure)
    return value


def factor_of(said: Any) -> Fraction | None:
    """Return the factor that a text such as "x2" or "x1/3" means; None where it means none."""
    if not isinstance(said, str) or not said.startswith("x"):
        return None
    try:
        return Fraction(said[1:])
    except (ValueError, ZeroDivisionError):
        return None


def _times(path: str, said: str, factor: Fraction, figure: Figure, profile: Profile) -> Any:
    if isinstance(figure.value, bool | str) or not isinstance(figure.value, int | float | Fraction):
        raise ConfigError(
            f"change of {path}: {said} multiplies a number, but {profile.variant} has {shown(figure.value)}; "
            "give the value itself"
        )
    # Through text, since the float 0.1 is no tenth.
    product = Fraction(str(figure.value)) * factor
    if not isinstance(figure.value, int):
        return float(product)
    if product != figure.value == round(product):
        raise ConfigError(
            f"change of {path}: {said} of {figure.value} is {figure.value} in whole numbers, which "
            "changes nothing; take another factor, or give the value itself"
        )
    return round(product)


def _require(kind: Kind, path: str, said: Any, value: Any, figure: Figure) -> None:
    """Refuse a value that the figure cannot have.

    Raises   ConfigError with the rule, what the product has, and how it was probably meant
    """
    items = value if kind.listed and isinstance(value, list) else [value]
    if kind.listed == isinstance(value, list) and all(kind.fits(item) for item in items):
        return
    number = not isinstance(figure.value, bool | str | list)
    got = shown(value) if value is said else f"{said} of {figure.value}, which is {shown(value)}"
    factors = ", or a factor such as x2" if number else ""
    raise ConfigError(
        f"change of {path}: got {got}; expected {kind.expected}{factors} "
        f"(the product has {_as_written(figure.value)}){_meant(value, kind) if number else ''}"
    )


def _as_written(value: Any) -> str:
    """Return a value as a product file has it."""
    return str(value).lower() if isinstance(value, bool) else shown(value)


def _meant(value: Any, kind: Kind) -> str:
    """Return what was probably meant by a value that does not fit; "" where nothing is near."""
    if isinstance(value, float) and value.is_integer() and kind.fits(int(value)):
        return f"; did you mean {int(value)}?"
    read = _NUMBER.fullmatch(value.strip()) if isinstance(value, str) else None
    if read is None:
        return ""
    number, after = read["number"], read["after"].strip().lower()
    if after == "%":
        return f"; did you mean x{float(number) / 100:g}?"
    if after in _TIMES or (not after and read["before"]):
        return f"; did you mean x{number}?"
    return "; give the number alone, in the unit that the figure's name ends with" if after else ""


def _near(path: str, profile: Profile) -> str:
    near = hint(path, tuple(profile.figures))
    return near if "did you mean" in near else f"; `ascendsim profiles {profile.variant}` lists them"
