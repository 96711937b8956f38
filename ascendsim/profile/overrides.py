"""Replace figures of a product by values of the caller's, and say so in their provenance."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ascendsim.errors import ConfigError
from ascendsim.frozen import FrozenMap
from ascendsim.profile.build import DERIVED
from ascendsim.profile.check import Layer, hint, problems_text
from ascendsim.profile.records import Figure, Profile
from ascendsim.profile.schema import leaves

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
    """Return what was measured, and of which product where figures of it are changed.

    Nobody has measured the changed one. Whether what was measured holds of it too depends on what is changed,
    which is therefore named.
    """
    if not evidence or not changed:
        return evidence
    named = [*changed[:NAMED], f"{len(changed) - NAMED} more"] if len(changed) > NAMED else list(changed)
    *first, last = named
    figures = f"{', '.join(first)} and {last}" if first else last
    return f"of {variant} as it is, without the change of {figures}: {evidence}"


def override_layer(tree: Mapping[str, Any], overrides: Mapping[str, Any]) -> Layer:
    """Return the layer of the overrides; ConfigError names every path that is no figure of the product."""
    known = tuple(path for path, _ in leaves(tree))
    # Told here, because the schema knows figures that this product has not, such as a path of another.
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
    return Layer("overrides", "", layer)


def _path_hint(path: str, known: tuple[str, ...]) -> str:
    last = path.rpartition(".")[2]
    # Derived figures are not in the files: an override would be silently recomputed.
    if last in DERIVED:
        return f"; it follows from {DERIVED[last]} beside it, which can be overridden"
    near = hint(path, known)
    return near if "did you mean" in near else "; `ascendsim profiles` lists the figures of a product"
