"""Read product files: their texts and tables, and what is wrong with those; the only reader of them."""

import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from ascendsim.arguments import shown
from ascendsim.errors import ConfigError
from ascendsim.native.default_arithmetic import default_floats
from ascendsim.profile.check import problems_text
from ascendsim.profile.schema import ABOUT_TABLES, ABOUT_TEXTS


# Equal only to itself: the same content is parsed once, and identity costs nothing to compare.
@dataclass(frozen=True, eq=False)
class ProductFile:
    """A product file as read: texts and tables about it, and its tree of figures.

    problems   what is wrong with the texts and tables, which are left out; figures are not checked yet
    """

    label: str
    texts: Mapping[str, str]
    variants: Mapping[str, Any]
    sources: Mapping[str, str]
    tree: Mapping[str, Any]
    problems: tuple[str, ...] = ()


@cache
def configs_directory() -> Path:
    """Return the directory of the product files: inside the installed package, else beside it."""
    package = Path(__file__).resolve().parent.parent
    # The wheel puts the folder into the package; in a checkout it lies beside it.
    inside = package / "configs"
    return inside if inside.is_dir() else package.parent / "configs"


def toml_files(folder: Path) -> tuple[Path, ...]:
    """Return the .toml files in a folder, by name."""
    with os.scandir(folder) as entries:
        return _paths(folder, tuple(entry.name for entry in entries))


# To make paths of all names takes longer than to list them.
@lru_cache(maxsize=8)
def _paths(folder: Path, names: tuple[str, ...]) -> tuple[Path, ...]:
    return tuple(sorted(folder / name for name in names if name.endswith(".toml")))


def read_product(path: Path, table: str = "") -> ProductFile:
    """Read one file, whose figures stand in a table of the tree if it has a name.

    It is parsed again only if its text has changed. Reading is cheap; parsing takes milliseconds.
    """
    try:
        written = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}; expected a product file") from None
    except ValueError as error:  # a NUL in it
        raise ConfigError(f"{shown(str(path))}: cannot be read: {error}; expected a product file") from None
    try:
        return _parsed(path, written, table)
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not text in UTF-8; expected a product file in TOML") from None


@lru_cache(maxsize=32)
@default_floats
def _parsed(path: Path, written: bytes, table: str) -> ProductFile:
    """Parse one file and part what it says about itself from its figures; nobody may change the result."""
    # Messages about shipped files stay short; a file of one's own is told with the path it was given by.
    label = path.name if path.parent == configs_directory() else str(path)
    try:
        content = tomllib.loads(written.decode("utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: is not valid TOML: {error}") from None
    wrong = dict(_about_problems(content))
    problems = tuple(f"{label}: {problem}" for problem in wrong.values())
    # Which figures lie below is not known without it.
    if "base" in wrong:
        raise ConfigError(problems_text(label, list(problems)))
    # What is left are figures: the schema knows nothing else.
    about = {key: content.pop(key) for key in (*ABOUT_TEXTS, *ABOUT_TABLES) if key in content}
    texts = {key: about[key] for key in ABOUT_TEXTS if key in about and key not in wrong}
    variants, sources = ({} if key in wrong else about.get(key, {}) for key in ABOUT_TABLES)
    variants = {name: tree for name, tree in variants.items() if f"variants.{name}" not in wrong}
    tree = {table: content} if table else content
    return ProductFile(label, texts, variants, sources, tree, problems)


def _about_problems(content: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the path of each text or table that is wrong, and what to say of it."""
    for key in ABOUT_TEXTS:
        if not isinstance(content.get(key, ""), str):
            yield key, f"{key}: got {content[key]!r}, expected a text"
    variant = content.get("variant", "-")
    if isinstance(variant, str) and not _names_files(variant):
        yield "variant", f"variant: got {variant!r}, expected {_A_NAME}"
    for key in ABOUT_TABLES:
        if not isinstance(content.get(key, {}), dict):
            yield key, f"{key}: got {content[key]!r}, expected a table"
    variants = content.get("variants", {})
    for name, variant in variants.items() if isinstance(variants, dict) else ():
        if not _names_files(name):
            yield f"variants.{name}", f"variants: got {name!r}, expected {_A_NAME}"
        elif not isinstance(variant, dict):
            yield f"variants.{name}", f"variants.{name}: got {variant!r}, expected a table of figures"


_A_NAME = "a name without / and \\, since files of reports are called after it"


def _names_files(name: str) -> bool:
    """Tell whether a variant's name can be part of the name of a file."""
    return name.isprintable() and bool(name) and not set(name) & set("/\\")
