"""Find and read rule sets and the names of products; the only reader of configs/rules."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from ascendsim.errors import ConfigError, did_you_mean, shown
from ascendsim.files import LONGEST_CHAIN, parse_toml, read_bytes
from ascendsim.frozen import FrozenMap
from ascendsim.rules.model import ConvolutionRules, OneOf, ProductName, RuleSet, TbcRules

if TYPE_CHECKING:
    from ascendsim.profile import Profile


Record = TypeVar("Record", bound=tuple[Any, ...])


def build(kind: type[Record], table: Any, where: str, products: tuple[str, ...] = ()) -> Record:
    """Make a record of a table whose keys are the record's fields; `products` are those that it may name.

    Raises   ConfigError naming the place, what was got and what is expected
    """
    if not isinstance(table, dict):
        raise ConfigError(f"{where}: got {shown(table)}, expected a table")
    # The annotations are the schema: a key that is added to a record is read and checked at once.
    # Type checkers do not know of any tuple that it is a named one.
    record: Any = kind
    hints = _hints(kind)
    for key in table:
        if key not in hints:
            # A misspelt key would otherwise leave the rule of the base in force without a word.
            raise ConfigError(f"{where}: unknown key {shown(key)}; {did_you_mean(key, hints)}")
    values = {}
    for name, hint in hints.items():
        if name in table:
            values[name] = _value(hint, table[name], f"{where}.{name}", products)
        # Few rules have a default: one that is left out must come from a base.
        elif name not in record._field_defaults:
            raise ConfigError(f"{where}: {name} is missing")
    made: Record = record(**values)
    return made


# The same few kinds of record come again and again in a file.
@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _value(hint: Any, value: Any, where: str, products: tuple[str, ...]) -> Any:
    """Return a value of the hinted type."""
    origin = get_origin(hint)
    if hasattr(hint, "_fields"):
        return build(hint, value, where, products)
    if origin is Annotated:
        kind, one_of = get_args(hint)
        return _known(_value(kind, value, where, products), one_of, where, products)
    if origin is tuple:
        if not isinstance(value, list):
            raise ConfigError(f"{where}: got {shown(value)}, expected a list")
        # Tuples, because rule sets are cached and shared: nobody may change one.
        item = get_args(hint)[0]
        return tuple(_value(item, one, f"{where}[{i}]", products) for i, one in enumerate(value))
    if origin is Mapping:
        key_hint, value_hint = get_args(hint)
        return _mapping(key_hint, value_hint, value, where, products)
    if origin is Literal:
        if value not in get_args(hint):
            raise ConfigError(
                f"{where}: got {shown(value)}, expected one of {', '.join(map(repr, get_args(hint)))}"
            )
        return value
    # TOML has no null: what may be None is left out, and never written.
    kinds = tuple(kind for kind in get_args(hint) if kind is not NoneType) if origin is UnionType else (hint,)
    # bool is an int for Python, not for a reader of rules.
    if not isinstance(value, kinds) or isinstance(value, bool) != (bool in kinds):
        raise ConfigError(
            f"{where}: got {shown(value)}, expected {' or '.join(kind.__name__ for kind in kinds)}"
        )
    return value


def _known(value: Any, one_of: OneOf, where: str, products: tuple[str, ...]) -> Any:
    """Return a name or number that is one of those that are known."""
    known = one_of.known or products
    if value in known:
        return value
    hint = did_you_mean(str(value), [*map(str, known)])
    raise ConfigError(f"{where}: unknown {one_of.what} {shown(value)}; {hint}")


def _mapping(
    key_hint: Any, value_hint: Any, table: Any, where: str, products: tuple[str, ...]
) -> FrozenMap[Any, Any]:
    if not isinstance(table, dict):
        raise ConfigError(f"{where}: got {shown(table)}, expected a table")
    kind, one_of = get_args(key_hint)
    made = {}
    for key, value in table.items():
        # TOML has no keys but texts; formats are listed by rank.
        if kind is int and not key.isdecimal():
            raise ConfigError(f"{where}: got the key {shown(key)}, expected a number")
        name = _known(int(key) if kind is int else key, one_of, where, products)
        made[name] = _value(value_hint, value, f"{where}.{key}", products)
    return FrozenMap(made)


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
    """Return a digest of all shipped rule sets: equal digests mean equal answers."""
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
    for number, limit in enumerate(part.limits):
        if limit.max is None and not limit.at_most:
            raise ConfigError(
                f"{where}.limits[{number}], of {limit.of}: it has neither max nor at_most, so that it limits "
                "nothing; give it one of them, or leave it out"
            )
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
        if len(above) > LONGEST_CHAIN:
            raise ConfigError(
                f"{above[0]}: more than {LONGEST_CHAIN} files build on each other; join some of them"
            )
        written = _read(path)
        yield path, written
        base = _parsed(path, written).get(BASE)
        if base is None:
            return
        if not isinstance(base, str):
            raise ConfigError(
                f"{path}: base: got {shown(base)}, expected the name of a rule set or a .toml file"
            )
        # A base that is a file lies beside this one, wherever the command runs.
        path = path.parent / base if base.endswith(".toml") else _path(base)


def _check_from_cube(path: Path, own: Mapping[str, Any], merged: Mapping[str, Any]) -> None:
    """Refuse tables that nobody would read, since the cube says what stands there."""
    for part in ("convolution", "tbc") if merged.get("from_cube") else ():
        written = own.get(part)
        # An entry that is no table is refused when the rules are built.
        for table in CUBE_TABLES:
            if isinstance(written, dict) and table in written:
                raise ConfigError(
                    f"{path}: {part}.{table}: not read where from_cube is true, since it follows from "
                    "cube.rates of the product; leave the table out, or set from_cube = false"
                )


def _read(path: Path) -> bytes:
    try:
        return read_bytes(path)
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
        return parse_toml(written.decode("utf-8"))
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not text in UTF-8; expected a rule set in TOML") from None
    except ValueError as error:
        raise ConfigError(f"{path}: is not valid TOML: {error}") from None


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Lay tables over tables; any other value replaces the one below."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        both = isinstance(old, dict) and isinstance(value, dict)
        merged[key] = _merged(old, value) if both else value  # type: ignore[arg-type]
    return merged


def rule_product(product: str | Profile) -> str:
    """Return the family that a product, variant or soc belongs to for the rules.

    The architecture decides for a profile of one's own whose name the rules do not know.
    Raises   ConfigError with near misses
    """
    if isinstance(product, str):
        found = _by_name(product)
    else:
        # A user's file usually keeps the product of its base; with a new name its architecture decides.
        found = _by_name(product.product) or _by_arch(product.npu_arch)
    if found:
        return found
    name = product if isinstance(product, str) else product.product
    known = [entry.name for entry in product_names()]
    hint = did_you_mean(str(name), known)
    own = ""
    if not isinstance(product, str):
        own = f"; npu_arch {product.npu_arch!r} is new, so the file says above its tables whose rules "
        own += 'it follows, such as product = "910B"'
    raise ConfigError(f"rules: unknown product {shown(name)}; {hint}{own}")


def known_product(product: str | Profile) -> str | Profile:
    """Return the profile for a name that only a product file knows; any other product unchanged."""
    if not isinstance(product, str) or _by_name(product):
        return product
    # Here, since a name that the rules know needs no product file.
    from ascendsim.profile import load_profile

    try:
        return load_profile(product)
    except ConfigError:
        return product  # `rule_product` says what the rules know


def _by_name(text: str) -> str:
    # Tools write Ascend910B3, ascend910b3 or 910B3 for the same chip.
    plain = text.strip().lower().removeprefix("ascend")
    for entry in product_names():
        # Exact names first: 910B_old_1001 begins like a 910B, and is a 910.
        if plain in (entry.name.lower(), *entry.names):
            return entry.name
    for entry in product_names():
        if entry.prefixes and plain.startswith(entry.prefixes):
            return entry.name
    return ""


def _by_arch(arch: str) -> str:
    return next((entry.name for entry in product_names() if entry.arch and entry.arch == arch), "")
