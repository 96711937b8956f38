"""Find and read rule sets and the names of products; the only reader of configs/rules."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from ascendsim.arguments import shown
from ascendsim.errors import ConfigError, did_you_mean
from ascendsim.rules.build import build
from ascendsim.rules.model import ConvolutionRules, ProductName, RuleSet, TbcRules

LONGEST_NAME = 4096  # no system has longer paths; a message should stay short
PRODUCTS, BASE = "products", "base"
# What a rule set with `from_cube` does not list itself.
CUBE_TABLES = ("dtypes", "dtypes_transposed", "cube_math")


def rule_set_names() -> tuple[str, ...]:
    """List the shipped rule sets, the default first."""
    with os.scandir(rules_directory()) as entries:
        return _named(tuple(entry.name for entry in entries))


# Asked for with every call.
@lru_cache(maxsize=8)
def _named(files: tuple[str, ...]) -> tuple[str, ...]:
    """Return the rule sets among the files of their directory, the default first."""
    names = [name.removesuffix(".toml") for name in files if name.endswith(".toml")]
    found = sorted(name for name in names if name != PRODUCTS)
    # Documented first, since its promises are what a user can rely on.
    return tuple(sorted(found, key=lambda name: name != "documented"))


# Asked for with every call, and to resolve a path takes the system a while.
@cache
def rules_directory() -> Path:
    """Return the directory of the rule sets: inside the installed package, else beside it."""
    package = Path(__file__).resolve().parent.parent
    inside = package / "configs"
    return (inside if inside.is_dir() else package.parent / "configs") / "rules"


def rules_digest() -> bytes:
    """Return a digest of all shipped rule sets: as long as it is the same, so are their answers."""
    # Imported here: it takes a while, and only answers that are kept on disk name the rules by it.
    from hashlib import sha256

    digest = sha256()
    for path in sorted(rules_directory().glob("*.toml")):
        digest.update(path.name.encode() + b"\0" + sha256(path.read_bytes()).digest())
    return digest.digest()


def load_rules(name: str | Path = "documented") -> RuleSet:
    """Load a rule set by its name, or the path of a .toml file of one's own, which may have a `base`.

    As long as the files hold the same text, every call returns the same rule set.

    Raises   ConfigError naming the file, the key, what was got and what is expected
    """
    if not isinstance(name, str | Path) or len(str(name)) > LONGEST_NAME:
        raise ConfigError(
            f"rules is {shown(name)}; it must be the name of a rule set, or the path of a .toml file"
        )
    path = _path(name)
    return _built(path, tuple(_chain(path)))


# Bounded, because a process that edits a file has a new rule set for each edit.
@lru_cache(maxsize=32)
def _built(path: Path, chain: tuple[tuple[Path, bytes], ...]) -> RuleSet:
    """Build a rule set of its files as they stand, its own first, each followed by its base."""
    trees = [_parsed(*file) for file in chain]
    tree: dict[str, Any] = {}
    for (where, _), own in reversed(list(zip(chain, trees, strict=True))):
        tree = _merged(tree, {key: value for key, value in own.items() if key != BASE})
        _check_from_cube(where, own, tree)
    names = tuple(product.name for product in product_names())
    rules = build(RuleSet, {"name": path.stem, **tree}, path.name, names)
    for part, where_in in ((rules.convolution, "convolution"), (rules.tbc, "tbc")):
        _check_complete(part, f"{path.name}: {where_in}")
    return rules


def _check_complete(part: ConvolutionRules | TbcRules, where: str) -> None:
    """Refuse tables with gaps that would only be found out in the middle of a check."""
    for table in ("dtypes", "output_dtypes", "cube_math", *(["bias_dtypes"] * hasattr(part, "bias_dtypes"))):
        lacking = set(part.products) - set(getattr(part, table))
        if lacking:
            raise ConfigError(f"{where}.{table} has no {', '.join(sorted(lacking))}")
    for product, rows in part.cube_math.items():
        for dtype, row in rows.items():
            if len(row) != 4:
                raise ConfigError(
                    f"{where}.cube_math.{product}.{dtype}: got {len(row)} entries, expected four, for "
                    "cubeMathType 0, 1, 2 and 3"
                )


@cache
def product_names() -> tuple[ProductName, ...]:
    """Return the products that the rules know, in the order in which names are looked up."""
    path = rules_directory() / f"{PRODUCTS}.toml"
    return tuple(
        build(ProductName, {"name": name, **table}, f"{path.name}: {name}")
        for name, table in _parsed(path, _read(path)).items()
    )


def _path(name: str | Path) -> Path:
    if isinstance(name, Path) or (isinstance(name, str) and name.endswith(".toml")):
        return Path(name)
    names = rule_set_names()
    if name in names:
        return rules_directory() / f"{name}.toml"
    hint = did_you_mean(str(name), names, f"there is {', '.join(names)},")
    raise ConfigError(f"unknown rule set {shown(name)}; {hint} or the path of a .toml file of your own")


def _chain(path: Path) -> Iterator[tuple[Path, bytes]]:
    """Yield a file with its bytes, then its base with its, and so on."""
    above: list[Path] = []
    while True:
        if path in above:
            raise ConfigError(f"{path}: its `base` leads back to itself")
        above.append(path)
        written = _read(path)
        yield path, written
        base = _parsed(path, written).get(BASE)
        if base is None:
            return
        if not isinstance(base, str):
            raise ConfigError(f"{path}: base: got {base!r}, expected the name of a rule set or a .toml file")
        # A base that is a file lies beside this one, wherever the command runs.
        path = path.parent / base if base.endswith(".toml") else _path(base)


def _check_from_cube(path: Path, own: Mapping[str, Any], merged: Mapping[str, Any]) -> None:
    """Refuse tables that nobody would read, since the cube says what stands there."""
    for part in ("convolution", "tbc") if merged.get("from_cube") else ():
        written = own.get(part)
        # What is no table is told when the rules are built.
        for table in CUBE_TABLES:
            if isinstance(written, dict) and table in written:
                raise ConfigError(
                    f"{path}: {part}.{table}: not read where from_cube is true, since it follows from "
                    "cube.rates of the product; leave the table out, or set from_cube = false"
                )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}; expected a rule set") from None
    except ValueError as error:  # a NUL in it
        raise ConfigError(
            f"{shown(str(path))}: cannot be read: {error}; expected the path of a rule set"
        ) from None


# Reading is cheap; parsing takes milliseconds.
@lru_cache(maxsize=32)
def _parsed(path: Path, written: bytes) -> Mapping[str, Any]:
    """Parse one file; nobody may change the result."""
    try:
        return tomllib.loads(written.decode("utf-8"))
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not text in UTF-8; expected a rule set in TOML") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: is not valid TOML: {error}") from None
    except RecursionError:
        raise ConfigError(f"{path}: is nested too deep; expected a rule set in TOML") from None


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Lay tables over tables; anything else replaces what is below."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        both = isinstance(old, dict) and isinstance(value, dict)
        merged[key] = _merged(old, value) if both else value  # type: ignore[arg-type]
    return merged
