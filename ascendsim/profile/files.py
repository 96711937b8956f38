"""Find and check product files: what a name means, and the profile of it."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from ascendsim.errors import ConfigError, shown
from ascendsim.files import LONGEST_CHAIN, parse_toml, read_bytes
from ascendsim.frozen import FrozenMap
from ascendsim.native.default_arithmetic import default_floats
from ascendsim.profile.check import FigureLayer, check, hint, merge, nearest, problems_text
from ascendsim.profile.records import DERIVED, Figure, Profile, build_profile
from ascendsim.profile.schema import ABOUT_TABLES, ABOUT_TEXTS, leaves

# So many changed figures are named in a line.
NAMED = 4


def mark_overridden(profile: Profile, below: Mapping[str, Any], overrides: Mapping[str, Any]) -> Profile:
    """Give the overridden figures the confidence "override" and the value they replace as source."""
    figures, replaced = dict(profile.figures), dict(leaves(below))
    for path in overrides:
        old = replaced[path]
        # The replaced value stays readable in every report of the run.
        source = f"given by the caller; {profile.variant} has {old['value']} ({old['source']})"
        figures[path] = Figure(figures[path].value, source, "override")
    return replace(profile, figures=FrozenMap(figures))


def evidence_of(variant: str, evidence: str, changed: Sequence[str]) -> str:
    """Return the evidence, with the product's name where its figures are changed.

    Nobody has measured the changed one. Whether what was measured holds of it too depends on what is changed,
    which is therefore named.
    """
    if not evidence or not changed:
        return evidence
    named = [*changed[:NAMED], f"{len(changed) - NAMED} more"] if len(changed) > NAMED else list(changed)
    *first, last = named
    figures = f"{', '.join(first)} and {last}" if first else last
    return f"of {variant} as it is, without the change of {figures}: {evidence}"


def override_layer(tree: Mapping[str, Any], overrides: Mapping[str, Any]) -> FigureLayer:
    """Return the layer of the overrides; ConfigError names every path that is no figure of the product."""
    known = tuple(path for path, _ in leaves(tree))
    # Refused here, because the schema also knows figures of other products, such as a path of another one.
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
        # "derived" only to pass the checks, which let an assumed figure have no value without a range;
        # `mark_overridden` puts "override" there.
        # A list that names something, as those of points do, is a tuple.
        value = list(value) if isinstance(value, tuple) else value
        below[last] = {"value": value, "source": "given by the caller", "confidence": "derived"}
    return FigureLayer("overrides", "", layer)


def _path_hint(path: str, known: tuple[str, ...]) -> str:
    last = path.rpartition(".")[2]
    # Derived figures are not in the files: an override would be silently recomputed.
    if last in DERIVED:
        return f"; it follows from {DERIVED[last]} beside it, which can be overridden"
    near = hint(path, known)
    return near if "did you mean" in near else "; `ascendsim profiles` lists the figures of a product"


# Equal only to itself: the same content is parsed once, and identity costs nothing to compare.
@dataclass(frozen=True, eq=False)
class ProductFile:
    """A product file as read: texts and tables about it, and its tree of figures.

    problems   those of the texts and tables, which are left out; figures are not checked yet
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
        written = read_bytes(path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}; expected a product file") from None
    except ValueError as error:  # a NUL in it
        raise ConfigError(f"{shown(str(path))}: cannot be read: {error}; expected a product file") from None
    return _parsed(path, written, table)


@lru_cache(maxsize=32)
@default_floats
def _parsed(path: Path, written: bytes, table: str) -> ProductFile:
    """Parse one file and part what it says about itself from its figures; nobody may change the result."""
    # Messages about shipped files stay short; a user's file is named by the path it was given by.
    label = path.name if path.parent == configs_directory() else str(path)
    try:
        content = parse_toml(written.decode("utf-8"))
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not text in UTF-8; expected a product file in TOML") from None
    except ValueError as error:
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
    """Return whether a variant's name can be part of the name of a file."""
    return name.isprintable() and bool(name) and not set(name) & set("/\\")


LONGEST_NAME = 4096  # no system has longer paths; a message should stay short


class ShippedProduct(NamedTuple):
    """One shipped file: its product, the variants in it, and the one that the plain name means."""

    name: str
    default_variant: str
    variants: tuple[str, ...]
    base: str


class _Measured(NamedTuple):
    """The subject of the evidence: a variant, and the number of the lowest files that make it."""

    variant: str
    files: int


class _Choice(NamedTuple):
    """Meaning of a name: files, each with the variant chosen in it, lowest first; what to call the result."""

    files: tuple[tuple[ProductFile, str], ...]
    names: tuple[tuple[str, str], ...]
    measured: _Measured | None = None

    @property
    def layers(self) -> list[FigureLayer]:
        """Figures of the files, later layers win: base, file, variant of the file."""
        found = []
        for file, variant in self.files:
            found.append(FigureLayer(file.label, "", file.tree))
            if variant:
                found.append(FigureLayer(file.label, f"variants.{variant}.", file.variants[variant]))
        return found

    @property
    def sources(self) -> dict[str, str]:
        """What the tags of all files' sources mean."""
        return {key: text for file, _ in self.files for key, text in file.sources.items()}

    @property
    def problems(self) -> list[str]:
        """Problems of the files' entries that are no figures."""
        return [problem for file, _ in self.files for problem in file.problems]

    def profile(self, tree: Mapping[str, Any], *, overridden: bool = False) -> Profile:
        """Return the profile of a checked tree of figures; `overridden` if the caller changed some."""
        names = dict(self.names) | {"evidence": self._evidence(tree, overridden)}
        return build_profile(names, tree, self.sources)

    def _evidence(self, tree: Mapping[str, Any], overridden: bool) -> str:
        """Return the evidence, with the product's name where its figures are changed.

        By files above its own, or by overrides.
        """
        text = dict(self.names).get("evidence", "")
        if self.measured is None or (self.measured.files == len(self.files) and not overridden):
            return text
        below = dict(leaves(merge(_Choice(self.files[: self.measured.files], ()).layers)))
        changed = [
            path for path, figure in leaves(tree) if figure["value"] != below.get(path, {}).get("value")
        ]
        return evidence_of(self.measured.variant, text, changed)


@default_floats
def load_profile(name: str | Path, overrides: Mapping[str, Any] | None = None) -> Profile:
    """Load a product by its name, a variant's, a vendor's, or the path of a file of one's own.

    `overrides` maps dotted paths to values that replace the product's figures, as `{"cores.cube": 30}`; of
    the whole cube, `{"cube": "32x16x16"}`.
    Without them, as long as the files hold the same text, every call returns the same frozen profile.

    Raises   ConfigError naming the file, the dotted path, the value and the expected values
    """
    if not isinstance(name, str | Path) or len(str(name)) > LONGEST_NAME:
        raise ConfigError(f"product is {shown(name)}; it must be a name, or the path of a .toml file")
    if overrides is not None and (
        not isinstance(overrides, Mapping) or not all(isinstance(path, str) for path in overrides)
    ):
        raise ConfigError(f'overrides is {shown(overrides)}; it must be like {{"cores.cube": 30}}, or None')
    if overrides and "cube" in overrides:
        overrides = {**overrides, **load_profile(name).cube.reshaped(overrides["cube"])}
        del overrides["cube"]
    # Overrides are another layer on top, checked like a file.
    choice = _on_generation(_choose(str(name)), overrides or {})
    if not overrides:
        return _built(choice)
    below = merge(choice.layers)
    tree = check([*choice.layers, override_layer(below, overrides)], choice.problems)
    return mark_overridden(choice.profile(tree, overridden=True), below, overrides)


# An estimate of a small layer takes little longer than to check and build its product. Bounded, because a
# process that edits a file has a new profile for each edit.
@lru_cache(maxsize=32)
def _built(choice: _Choice) -> Profile:
    return choice.profile(check(choice.layers, choice.problems))


@default_floats
def load_tree(name: str) -> tuple[str, dict[str, Any], dict[str, str]]:
    """Return a product's variant, its figures as files have them, and what their sources mean."""
    choice = _on_generation(_choose(name), {})
    return dict(choice.names)["variant"], check(choice.layers, choice.problems), choice.sources


@default_floats
def profile_from_tree(tree: Mapping[str, Any], product: str) -> Profile:
    """Make a Profile of figures given in code, under the same rules as those of a file."""
    names = (("product", product), ("variant", product), ("evidence", "figures given in code"))
    choice = _on_generation(_Choice(((ProductFile(product, {}, {}, {}, tree), ""),), names), {})
    return choice.profile(check(choice.layers))


def list_products() -> tuple[ShippedProduct, ...]:
    """List the shipped products, by name."""
    return tuple(_product(path, read_product(path).texts, read_product(path).variants) for path in _shipped())


def _product(path: Path, texts: Mapping[str, str], variants: Mapping[str, Any]) -> ShippedProduct:
    # A file without variants is one variant, under the name that its profile has.
    default = texts.get("default_variant") or texts.get("variant", path.stem)
    return ShippedProduct(texts.get("product", path.stem), default, tuple(variants), texts.get("base", ""))


def _choose(name: str, above: tuple[str, ...] = ()) -> _Choice:
    """Resolve a name to its layers; `above` holds the files that refer to it through `base`."""
    path, variant = _locate(name)
    # Without this a circle of files would end in a RecursionError.
    if str(path) in above:
        raise ConfigError(f"{path}: its `base` leads back to itself; a chain of bases must end in a product")
    if len(above) > LONGEST_CHAIN:
        raise ConfigError(
            f"{above[0]}: more than {LONGEST_CHAIN} files build on each other; join some of them"
        )
    file = read_product(path)
    chosen = variant or file.texts.get("default_variant", "")
    base = file.texts.get("base")
    below = _base(path, file, base, above) if base else _Choice((), ())
    if file.variants and chosen not in file.variants:
        unknown = f"{file.label}: unknown variant {shown(chosen)}{hint(chosen, tuple(file.variants))}"
        # Perhaps it is one of those that cannot be read.
        raise ConfigError(problems_text(file.label, [*file.problems, unknown]) if file.problems else unknown)
    inherited, shipped = dict(below.names), path.parent == configs_directory()
    # A file of one's own keeps the product of its base; one that is shipped is a product itself.
    product = path.stem if shipped else inherited.get("product", path.stem)
    names = {
        "product": file.texts.get("product", product),
        # Reports print the variant: a file of one's own goes by its own name, not by that of its base.
        "variant": chosen or file.texts.get("variant", path.stem),
        "evidence": file.texts.get("evidence", inherited.get("evidence", "")),
    }
    files = (*below.files, (file, chosen if file.variants else ""))
    # Nobody has measured what a file of one's own only says.
    says = shipped or "evidence" in file.texts
    measured = _Measured(names["variant"], len(files)) if says else below.measured
    return _Choice(files, tuple(names.items()), measured)


def _on_generation(choice: _Choice, overrides: Mapping[str, Any]) -> _Choice:
    """Lay a product over the figures of its generation of the core; see `Generation`."""
    given = [layer.tree["npu_arch"] for layer in choice.layers if "npu_arch" in layer.tree]
    # Whatever else stands there, the checks will say so.
    arch = given[-1].get("value") if given and isinstance(given[-1], Mapping) else None
    files = {path.stem: path for path in toml_files(configs_directory() / "generations")}
    file = read_product(files.get(str(overrides.get("npu_arch", arch)), files["other"]), "generation")
    measured = choice.measured and choice.measured._replace(files=choice.measured.files + 1)
    return _Choice(((file, ""), *choice.files), choice.names, measured)


def _base(path: Path, file: ProductFile, base: str, above: tuple[str, ...]) -> _Choice:
    """Resolve what a file builds on; a base that is a file lies beside it, wherever the command runs."""
    name = str(path.parent / base) if is_file_name(base) else base
    try:
        return _choose(name, (*above, str(path)))
    except ConfigError as error:
        raise ConfigError(f"{file.label}: base: {error}") from None


def _locate(name: str) -> tuple[Path, str]:
    """Find the file of a name and, where the name is a variant's, which one."""
    if is_file_name(name):
        return Path(name), ""
    # Vendors' tools write Ascend910B3 for what the platform files call 910B3.
    plain = name.lower().removeprefix("ascend")
    shipped = _shipped()
    for path in shipped:
        if path.stem.lower() == plain:
            return path, ""
    # A variant usually starts like its product: look there first, since reading a file costs milliseconds.
    known: list[str] = []
    for path in _likely(shipped, plain):
        file = read_product(path)
        # Pages speak of an Atlas A2, and rules do: it is a 910B. A 910_95 is sold as a 950.
        if plain in file.texts.get("series", "").lower().split():
            return path, ""
        for variant in file.variants:
            if variant.lower() == plain:
                return path, variant
            known.append(variant)
    products = [path.stem for path in shipped]
    near = nearest(plain, [*products, *known], 3)
    # A family's name is the beginning of its variants' names: 950 of 950PR_9589.
    family = [variant for variant in known if plain and variant.lower().startswith(plain)]
    guess = f"did you mean {' or '.join(near)}? " if near else ""
    if family:
        guess = f"{len(family)} variants begin so, such as {family[-1]}. "
    # After a guess a sentence of its own, else the rest of the one that says what is unknown.
    what = f"{guess}{'Products' if guess else 'products'} are {', '.join(products)};"
    what += " `ascendsim profiles` lists their variants."
    raise ConfigError(f"unknown product {shown(name)}; {what} The path of a .toml file works as well")


def is_file_name(name: str) -> bool:
    """Return whether a name is the path of a product file, and not the name of a product."""
    # A product's name has neither, so errors call a mistyped path a path.
    return name.endswith(".toml") or "/" in name or "\\" in name


@lru_cache(maxsize=32)
def _likely(shipped: tuple[Path, ...], plain: str) -> tuple[Path, ...]:
    """Return files with those first whose names begin most like a name."""
    return tuple(sorted(shipped, key=lambda path: -_common_prefix(path.stem.lower(), plain)))


def _common_prefix(one: str, two: str) -> int:
    pairs = zip(one, two, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(two)))


def _shipped() -> tuple[Path, ...]:
    # Listed at each call, since a file may come.
    return toml_files(configs_directory())
