"""Changes of a product's figures as users state them: factors and values, in words or in a TOML file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from ascendsim.arguments import shown
from ascendsim.errors import ConfigError
from ascendsim.frozen import FrozenMap
from ascendsim.profile.check import hint
from ascendsim.profile.records import Profile

FORM = "PATH=VALUE, PATH=xFACTOR, several values between commas, several figures joined by +"
FILE_FORM = '[[change]] tables with a name and figures = { "dotted.path" = value or "x2" }'


@dataclass(frozen=True, slots=True)
class Change:
    """One change: a name, and what each figure becomes.

    figures  dotted path -> a value, or a text "x2" by which the figure of the product is multiplied
    """

    name: str
    figures: Mapping[str, Any]

    def on(self, profile: Profile) -> FrozenMap[str, Any]:
        """Return the values on a product: dotted path -> value, whole where the product's is whole.

        Raises   ConfigError for a path that is no figure, or a factor of what is no number
        """
        return FrozenMap({path: _value(path, said, profile) for path, said in self.figures.items()})


def parse_changes(text: str) -> tuple[Change, ...]:
    """Read the changes of one option: "buffers.L0C.capacity_bytes=x2", "cores.cube=20,24,28", "a=x2+b=x2".

    A list makes a change of each of its values; joined figures change together, each with one value or all
    with equally many.
    Raises   ConfigError for anything else
    """
    columns = [_column(part, text) for part in text.split("+")]
    counts = {len(values) for _, values in columns} - {1}
    if len(counts) > 1:
        raise ConfigError(f"--change {text!r}: figures that change together have equally many values, or one")
    if len({path for path, _ in columns}) < len(columns):
        raise ConfigError(f"--change {text!r}: one figure stands there twice; give each once")
    found = []
    for at in range(max(counts, default=1)):
        figures = {path: values[at if len(values) > 1 else 0] for path, values in columns}
        found.append(Change("+".join(f"{path}={said}" for path, said in figures.items()), FrozenMap(figures)))
    return tuple(found)


def _column(part: str, text: str) -> tuple[str, list[Any]]:
    path, equals, values = part.partition("=")
    said = [_said(value.strip()) for value in values.split(",")]
    if not path.strip() or not equals or "" in said:
        raise ConfigError(f"--change {text!r}: expected {FORM}")
    return path.strip(), said


def _said(value: str) -> Any:
    """Read a value: a whole number, a number, or a text as it is."""
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value


def read_changes(path: Path) -> tuple[Change, ...]:
    """Read the changes of a TOML file, one table each.

    Raises   ConfigError naming the file, the place in it and the form
    """
    try:
        read = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); name a file of changes") from None
    except ValueError as error:  # TOMLDecodeError and UnicodeDecodeError
        raise ConfigError(f"{path}: is not valid TOML ({error})") from None
    rows = read.get("change")
    if set(read) != {"change"} or not isinstance(rows, list) or not rows:
        raise ConfigError(f"{path}: expected {FILE_FORM} and nothing else")
    found = tuple(_row(row, f"{path}: change[{at}]") for at, row in enumerate(rows))
    _require_different([change.name for change in found], str(path))
    return found


def _row(row: Any, where: str) -> Change:
    if not isinstance(row, dict) or set(row) - {"name", "figures"} or not isinstance(row.get("name"), str):
        raise ConfigError(f"{where}: got {shown(row)}, expected {FILE_FORM}")
    figures = row.get("figures")
    if not isinstance(figures, dict) or not figures:
        raise ConfigError(f"{where} ({row['name']}): figures is {shown(figures)}; expected {FILE_FORM}")
    nested = [path for path, value in figures.items() if isinstance(value, dict)]
    if nested:
        raise ConfigError(
            f"{where} ({row['name']}): {nested[0]} is a table; a dotted path stands in quotes, "
            f'as "{nested[0]}....". Expected {FILE_FORM}'
        )
    return Change(row["name"], FrozenMap(figures))


def _require_different(names: Sequence[str], where: str) -> None:
    repeated = {name for name in names if names.count(name) > 1}
    if repeated:
        raise ConfigError(f"{where}: {', '.join(sorted(repeated))} is there twice; name each change once")


def _value(path: str, said: Any, profile: Profile) -> Any:
    """Return what a figure becomes on a product."""
    figure = profile.figures.get(path)
    if figure is None:
        raise ConfigError(f"change of {path}: no such figure of {profile.variant}{_near(path, profile)}")
    factor = _factor(said)
    if factor is None:
        return said
    if isinstance(figure.value, bool | str) or not isinstance(figure.value, int | float | Fraction):
        raise ConfigError(
            f"change of {path}: {said} multiplies a number, but {profile.variant} has {shown(figure.value)}; "
            "give the value itself"
        )
    # Through text, since the float 0.1 is no tenth.
    product = Fraction(str(figure.value)) * factor
    if isinstance(figure.value, int):
        if product != figure.value == round(product):
            raise ConfigError(
                f"change of {path}: {said} of {figure.value} is {figure.value} in whole numbers, which "
                "changes nothing; take another factor, or give the value itself"
            )
        return round(product)
    return float(product)


def _factor(said: Any) -> Fraction | None:
    if not isinstance(said, str) or not said.startswith("x"):
        return None
    try:
        return Fraction(said[1:])
    except (ValueError, ZeroDivisionError):
        return None


def _near(path: str, profile: Profile) -> str:
    near = hint(path, tuple(profile.figures))
    return near if "did you mean" in near else f"; `ascendsim profiles {profile.variant}` lists them"
