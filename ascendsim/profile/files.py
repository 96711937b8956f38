"""Find, read and check product files; the only reader of them."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ascendsim.errors import ConfigError
from ascendsim.profile.build import build_profile
from ascendsim.profile.check import Layer, check, hint, merge, problems_text
from ascendsim.profile.records import Figure, Profile
from ascendsim.profile.schema import is_figure

_TEXTS = ("product", "variant", "base", "default_variant", "evidence")
_TABLES = ("variants", "sources")


@dataclass(frozen=True)
class Product:
    """What one shipped file offers: the product, its variants, and the one its plain name means."""

    name: str
    default_variant: str
    variants: tuple[str, ...]


@dataclass(frozen=True)
class _File:
    """A product file as read: texts and tables about it, and its tree of figures."""

    label: str
    texts: Mapping[str, str]
    variants: Mapping[str, Any]
    sources: Mapping[str, str]
    tree: Mapping[str, Any]


@dataclass(frozen=True)
class _Choice:
    """Everything a name stands for: layers of figures, lowest first, and what to call the result."""

    layers: list[Layer]
    sources: dict[str, str]
    names: dict[str, str]


def load_profile(name: str | Path, overrides: Mapping[str, Any] | None = None) -> Profile:
    """Load a product by its name, a variant's, a vendor's, or the path of a file of one's own.

    `overrides` maps dotted paths to values that replace the product's figures, as `{"cores.cube": 30}`.

    Raises   ConfigError naming the file, the dotted path, what was got and what is expected
    """
    choice = _choose(str(name))
    if overrides:
        choice.layers.append(_override_layer(merge(choice.layers), overrides))
    return _finish(choice, overrides or {})


def profile_from_tree(tree: Mapping[str, Any], product: str) -> Profile:
    """Make a Profile of figures given in code, under the same rules as those of a file."""
    names = {"product": product, "variant": product, "evidence": "figures given in code"}
    return _finish(_Choice([Layer(product, "", tree)], {}, names), {})


def list_products() -> tuple[Product, ...]:
    """List what is shipped, by name."""
    files = [_read(path) for path in _shipped()]
    return tuple(Product(f.texts["product"], f.texts["default_variant"], tuple(f.variants)) for f in files)


def configs_directory() -> Path:
    """Return the directory of the product files: inside the installed package, else beside it."""
    package = Path(__file__).resolve().parent.parent
    inside = package / "configs"
    return inside if inside.is_dir() else package.parent / "configs"


def _finish(choice: _Choice, overrides: Mapping[str, Any]) -> Profile:
    tree = check(choice.layers)
    profile = build_profile(choice.names, tree, choice.sources)
    if not overrides:
        return profile
    below = merge(choice.layers[:-1])
    figures = dict(profile.figures)
    for path in overrides:
        old = _figure(below, path)
        source = f"given by the caller; {profile.variant} has {old['value']} ({old['source']})"
        figures[path] = Figure(figures[path].value, source, "override")
    return replace(profile, figures=MappingProxyType(figures))


def _override_layer(tree: Mapping[str, Any], overrides: Mapping[str, Any]) -> Layer:
    known = tuple(_paths(tree, ""))
    unknown = [path for path in overrides if path not in known]
    if unknown:
        lines = [f"overrides: {path}: no such figure{_path_hint(path, known)}" for path in unknown]
        raise ConfigError(problems_text("overrides", lines))
    layer: dict[str, Any] = {}
    for path, value in overrides.items():
        *groups, last = path.split(".")
        below = layer
        for group in groups:
            below = below.setdefault(group, {})
        below[last] = {"value": value, "source": "given by the caller", "confidence": "derived"}
    return Layer("overrides", "", layer)


def _path_hint(path: str, known: tuple[str, ...]) -> str:
    near = hint(path, known)
    return near if "did you mean" in near else "; `ascendsim profiles` lists the figures of a product"


def _paths(tree: Mapping[str, Any], prefix: str) -> list[str]:
    found = []
    for key, entry in tree.items():
        if is_figure(entry):
            found.append(prefix + key)
        elif isinstance(entry, Mapping):
            found += _paths(entry, f"{prefix}{key}.")
    return found


def _figure(tree: Mapping[str, Any], path: str) -> Any:
    below: Any = tree
    for part in path.split("."):
        below = below[part]
    return below


def _choose(name: str, above: tuple[str, ...] = ()) -> _Choice:
    """Resolve a name to its layers; `above` holds the files that refer to it through `base`."""
    path, variant = _locate(name)
    if str(path) in above:
        raise ConfigError(f"{path}: its `base` leads back to itself; a chain of bases must end in a product")
    file = _read(path)
    chosen = variant or file.texts.get("default_variant", "")
    base = file.texts.get("base")
    below = _choose(base, (*above, str(path))) if base else _Choice([], {}, {})
    layers = [*below.layers, Layer(file.label, "", file.tree)]
    if file.variants:
        if chosen not in file.variants:
            raise ConfigError(f"{file.label}: unknown variant {chosen!r}{hint(chosen, tuple(file.variants))}")
        layers.append(Layer(file.label, f"variants.{chosen}.", file.variants[chosen]))
    names = {
        "product": file.texts.get("product", below.names.get("product", path.stem)),
        "variant": chosen or file.texts.get("variant", path.stem),
        "evidence": file.texts.get("evidence", below.names.get("evidence", "")),
    }
    return _Choice(layers, {**below.sources, **file.sources}, names)


def _locate(name: str) -> tuple[Path, str]:
    """Find the file of a name and, where the name is a variant's, which one."""
    if name.endswith(".toml") or "/" in name or "\\" in name:
        return Path(name), ""
    plain = name.removeprefix("Ascend").removeprefix("ascend").lower()
    shipped = _shipped()
    for path in shipped:
        if path.stem.lower() == plain:
            return path, ""
    # A variant usually starts like its product: look there first, since reading a file costs milliseconds.
    known: list[str] = []
    for path in sorted(shipped, key=lambda path: -_common_prefix(path.stem.lower(), plain)):
        for variant in _read(path).variants:
            if variant.lower() == plain:
                return path, variant
            known.append(variant)
    known = [path.stem for path in shipped] + sorted(known)
    raise ConfigError(
        f"unknown product {name!r}{hint(name, tuple(known))}; a path to a .toml file works as well"
    )


def _common_prefix(one: str, two: str) -> int:
    return next(
        (i for i, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two))
    )


def _shipped() -> list[Path]:
    return sorted(configs_directory().glob("*.toml"))


def _read(path: Path) -> _File:
    """Read one file and part what it says about itself from its figures."""
    label = path.name if path.parent == configs_directory() else str(path)
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}; expected a product file") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not text in UTF-8; expected a product file in TOML") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: is not valid TOML: {error}") from None
    problems = [
        f"{label}: {key}: got {content[key]!r}, expected a text" for key in _TEXTS if _not(str, content, key)
    ]
    problems += [f"{label}: {key}: expected a table" for key in _TABLES if _not(dict, content, key)]
    if problems:
        raise ConfigError(problems_text(label, problems))
    texts = {key: content.pop(key) for key in _TEXTS if key in content}
    variants, sources = content.pop("variants", {}), content.pop("sources", {})
    return _File(label, texts, variants, sources, content)


def _not(kind: type, content: Mapping[str, Any], key: str) -> bool:
    return key in content and not isinstance(content[key], kind)
