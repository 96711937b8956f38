"""Find and read rule sets and the names of products; the only reader of configs/rules."""

from __future__ import annotations

import tomllib
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from ascendsim.errors import ConfigError
from ascendsim.rules.build import build
from ascendsim.rules.model import ProductName, RuleSet

PRODUCTS = "products"
# What a rule set with `from_cube` does not list itself.
CUBE_TABLES = ("dtypes", "dtypes_transposed", "cube_math")


def rule_set_names() -> tuple[str, ...]:
    """List the shipped rule sets, the default first."""
    found = sorted(path.stem for path in rules_directory().glob("*.toml") if path.stem != PRODUCTS)
    # Documented first, since its promises are what a user can rely on.
    return tuple(sorted(found, key=lambda name: name != "documented"))


def rules_directory() -> Path:
    """Return the directory of the rule sets: inside the installed package, else beside it."""
    package = Path(__file__).resolve().parent.parent
    inside = package / "configs"
    return (inside if inside.is_dir() else package.parent / "configs") / "rules"


@cache
def load_rules(name: str | Path = "documented") -> RuleSet:
    """Load a rule set by its name, or the path of a .toml file of one's own, which may have a `base`.

    Raises   ConfigError naming the file, the key, what was got and what is expected
    """
    # Cached by name: a file of one's own that changes needs a new process, as a module would.
    path = _path(name)
    tree = _tree(path, ())
    rules = build(RuleSet, {"name": path.stem, **tree}, path.name)
    # A product without its row would only be found out in the middle of a check.
    for part, where in ((rules.convolution, "convolution"), (rules.tbc, "tbc")):
        for table in ("dtypes", "output_dtypes", "cube_math"):
            lacking = set(part.products) - set(getattr(part, table))
            if lacking:
                raise ConfigError(f"{path.name}: {where}.{table} has no {', '.join(sorted(lacking))}")
    return rules


@cache
def product_names() -> tuple[ProductName, ...]:
    """Return the products that the rules know, in the order in which names are looked up."""
    path = rules_directory() / f"{PRODUCTS}.toml"
    return tuple(
        build(ProductName, {"name": name, **table}, f"{path.name}: {name}")
        for name, table in _read(path).items()
    )


def _path(name: str | Path) -> Path:
    if isinstance(name, Path) or (isinstance(name, str) and name.endswith(".toml")):
        return Path(name)
    names = rule_set_names()
    if name in names:
        return rules_directory() / f"{name}.toml"
    near = get_close_matches(str(name), names, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there is {', '.join(names)},"
    raise ConfigError(f"unknown rule set {name!r}; {hint} or the path of a .toml file of your own")


def _tree(path: Path, above: tuple[Path, ...]) -> dict[str, Any]:
    """Read a file over its bases."""
    if path in above:
        raise ConfigError(f"{path}: its `base` leads back to itself")
    tree = _read(path)
    base = tree.pop("base", None)
    if base is None:
        return tree
    if not isinstance(base, str):
        raise ConfigError(f"{path}: base: got {base!r}, expected the name of a rule set or a .toml file")
    # A base that is a file lies beside this one, wherever the command runs.
    below = path.parent / base if base.endswith(".toml") else _path(base)
    merged = _merged(_tree(below, (*above, path)), tree)
    _check_from_cube(path, tree, merged)
    return merged


def _check_from_cube(path: Path, own: dict[str, Any], merged: dict[str, Any]) -> None:
    """Refuse tables that nobody would read, since the cube says what stands there."""
    for part in ("convolution", "tbc") if merged.get("from_cube") else ():
        for table in CUBE_TABLES:
            if table in own.get(part, {}):
                raise ConfigError(
                    f"{path}: {part}.{table}: not read where from_cube is true, since it follows from "
                    "cube.rates of the product; leave the table out, or set from_cube = false"
                )


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}; expected a rule set") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not text in UTF-8; expected a rule set in TOML") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: is not valid TOML: {error}") from None


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Lay tables over tables; anything else replaces what is below."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        both = isinstance(old, dict) and isinstance(value, dict)
        merged[key] = _merged(old, value) if both else value  # type: ignore[arg-type]
    return merged
