"""Changes of a product's figures as users state them: factors and values, in words or in a TOML file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ascendsim.arguments import shown
from ascendsim.errors import ConfigError
from ascendsim.frozen import FrozenMap
from ascendsim.native.default_arithmetic import default_floats
from ascendsim.profile.change_values import value_on
from ascendsim.profile.check import problem_lines
from ascendsim.profile.consistency import vector_cores_beside
from ascendsim.profile.files import load_profile
from ascendsim.profile.records import Profile

FORM = "PATH=VALUE, PATH=xFACTOR, several values between commas, several figures joined by +"
FILE_FORM = '[[change]] tables with a name and figures = { "dotted.path" = value or "x2" }'


class Change(NamedTuple):
    """One change: a name, and what each figure becomes.

    figures  dotted path -> a value, or a text "x2" by which the figure of the product is multiplied
    """

    name: str
    figures: Mapping[str, Any]

    @default_floats
    def on(self, profile: Profile) -> FrozenMap[str, Any]:
        """Return the values on a product: dotted path -> value, whole where the product's is whole.

        Where cube cores change and nothing is said of the vector cores beside them, these follow.
        Raises   ConfigError for a path that is no figure, a factor of what is no number, or a value that the
                 figure cannot have
        """
        values = {path: value_on(path, said, profile) for path, said in self.figures.items()}
        return FrozenMap(values | _following(values, profile))


def _following(values: Mapping[str, Any], profile: Profile) -> dict[str, Any]:
    """Return what `load_profile` lets follow these values."""
    if "cores.cube" not in values or "cores.vector" in values:
        return {}
    cores = {"cube": {"value": profile.cores.cube}, "vector": {"value": profile.cores.vector}}
    tree = {"core_structure": {"value": profile.core_structure}, "cores": cores}
    beside = vector_cores_beside(values["cores.cube"], tree)
    return {} if beside in (None, profile.cores.vector) else {"cores.vector": beside}


@default_floats
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
        words = {
            path: str(said).lower() if isinstance(said, bool) else said for path, said in figures.items()
        }
        name = "+".join(f"{path}={word}" for path, word in words.items())
        found.append(Change(name, FrozenMap(figures)))
    return tuple(found)


def _column(part: str, text: str) -> tuple[str, list[Any]]:
    path, equals, values = part.partition("=")
    said = [_said(value.strip()) for value in values.split(",")]
    if not path.strip() or not equals or "" in said:
        raise ConfigError(f"--change {text!r}: expected {FORM}")
    # No value has an equals sign: a comma between two figures was meant as one between two changes.
    if "=" in values:
        raise ConfigError(
            f"--change {text!r}: commas stand between values of one figure; join those that change together "
            "by +, and give each change of its own by another --change"
        )
    return path.strip(), said


def _said(value: str) -> Any:
    """Read a value: a whole number, a number, true or false, or a text as it is."""
    if value in ("true", "false"):
        return value == "true"
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value


@default_floats
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


def contradiction(product: str | Path, values: Mapping[str, Any]) -> str:
    """Return why no product can have these figures beside its others; "" where one can."""
    try:
        load_profile(product, overrides=values)
    except ConfigError as error:
        told = [line.removeprefix("overrides: ") for line in problem_lines(str(error))]
        return "; ".join(told) or str(error)
    return ""
