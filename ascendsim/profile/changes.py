"""Changes of a product's figures as users state them: factors and values, in words or in a TOML file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from ascendsim.errors import ConfigError, shown
from ascendsim.files import parse_toml, read_text
from ascendsim.frozen import FrozenMap
from ascendsim.native.default_arithmetic import default_floats
from ascendsim.profile.check import hint, problem_lines, vector_cores_beside
from ascendsim.profile.files import load_profile
from ascendsim.profile.records import DERIVED, Figure, Profile
from ascendsim.profile.schema import Kind, node_at

# A number with something before or after it: a factor or a unit that is spelled otherwise than here.
_NUMBER = re.compile(
    r"(?P<before>[x*×+]*)\s*(?P<number>-?\d+(\.\d+)?(e-?\d+)?)\s*(?P<after>\D*)", re.IGNORECASE
)
_TIMES = ("x", "*", "×")


def value_on(path: str, said: Any, profile: Profile) -> Any:
    """Return the new value of a figure on a product.

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
    """Return the value that was probably meant by one that does not fit; "" where nothing is near."""
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

        A figure "cube" is the whole one, as `Cube.reshaped` reads it. Where cube cores change and nothing is
        said of the vector cores beside them, these follow.
        Raises   ConfigError for a path that is no figure, a factor on a value that is no number, or a value
                 that the figure cannot have
        """
        figures = dict(self.figures)
        if "cube" in figures:
            figures = profile.cube.reshaped(figures.pop("cube")) | figures
        values = {path: value_on(path, said, profile) for path, said in figures.items()}
        return FrozenMap(values | _following(values, profile))


def _following(values: Mapping[str, Any], profile: Profile) -> dict[str, Any]:
    """Return the figures that `load_profile` derives from these values."""
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
        read = parse_toml(read_text(path))
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
