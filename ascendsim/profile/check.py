"""Merge the layers a product is made of, check the result, and tell every mistake in one error."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ascendsim.errors import ConfigError, close_matches
from ascendsim.profile.consistency import contradictions, vector_cores_beside
from ascendsim.profile.kinds import Kind
from ascendsim.profile.problems import FIELDS, Problem, problems_of
from ascendsim.profile.schema import (
    ABOUT_TABLES,
    ABOUT_TEXTS,
    CONFIDENCES,
    TREE,
    child,
    children,
    node_at,
)


class Layer(NamedTuple):
    """One source of figures: a file, a variant in it, a caller's overrides. Later layers win."""

    file: str
    prefix: str
    tree: Mapping[str, Any]


def merge(layers: list[Layer]) -> dict[str, Any]:
    """Lay the layers over each other; a figure is replaced whole, so a new value names its own source."""
    merged: dict[str, Any] = {}
    for layer in layers:
        beside = _vector_cores(layer.tree.get("cores"), merged)
        _merge_into(merged, layer.tree, TREE)
        if beside is not None:
            merged["cores"]["vector"] = beside
    return merged


def _vector_cores(cores: Any, below: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the figure of the vector cores that follow a layer's cube cores; None where none follow."""
    if not isinstance(cores, Mapping) or "vector" in cores or not isinstance(cores.get("cube"), Mapping):
        return None
    cubes = cores["cube"].get("value")
    beside = vector_cores_beside(cubes, below)
    if beside is None or beside == below["cores"]["vector"]["value"]:
        return None
    source = f"{beside // cubes} beside each of cores.cube, as before that was changed"
    return {"value": beside, "source": source, "confidence": "derived"}


def _merge_into(target: dict[str, Any], tree: Mapping[str, Any], node: Any) -> None:
    for key, value in tree.items():
        below = child(node, key)
        # Tables merge, figures do not: half of a figure under the source of another would be a lie.
        if isinstance(value, Mapping) and not isinstance(below, Kind):
            old = target.get(key)
            target[key] = dict(old) if isinstance(old, Mapping) else {}
            _merge_into(target[key], value, below)
        else:
            target[key] = value


def check(layers: list[Layer], about: Sequence[str] = ()) -> dict[str, Any]:
    """Merge the layers and return the tree of figures, or raise one ConfigError with every problem.

    about   problems of what the files say beside their figures, which are told with those of the figures
    """
    tree = merge(layers)
    # Checked after merging, because only the whole must be complete; `_where` finds the layer to blame.
    found = list(problems_of(TREE, tree))
    problems = [*about, *(_tell(layers, problem) for problem in found)]
    broken = {problem.place[0] for problem in found}
    problems += [f"{layers[-1].file}: {text}" for text in contradictions(tree, broken)]
    if problems:
        text = problems_text(layers[-1].file, problems)
        # A base has every table: where a whole one is missing, none is named.
        if any(problem.fault == "missing" and len(problem.place) == 1 for problem in found):
            text += '; with a line such as base = "910B2" a file says only what differs'
        raise ConfigError(text)
    return tree


def problems_text(file: str, problems: list[str]) -> str:
    """Put all problems of one file in one message; `problem_lines` takes them out again."""
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    lines = "\n".join(f"  {problem}" for problem in problems)
    return f"{file}: {count} in this product description\n{lines}\ndocs/profiles.md says how one is written"


def problem_lines(message: str) -> list[str]:
    """Return the problems that such a message tells, without the frame around them."""
    return [line.strip() for line in message.splitlines() if line.startswith("  ")]


def _tell(layers: list[Layer], problem: Problem) -> str:
    """Say one problem: file, dotted path, what was got, what is expected, a near-miss hint."""
    location = problem.place
    where = _where(layers, location)
    node = node_at(location)
    if problem.fault == "missing":
        return f"{where}: missing; expected {_expected(location, node)}"
    if problem.fault == "unknown":
        # At the top a file may also speak about itself.
        known = _names(node_at(location[:-1])) + (() if len(location) > 1 else ABOUT_TEXTS + ABOUT_TABLES)
        return f"{where}: unknown key{hint(location[-1], known)}"
    if problem.fault == "figure":
        return f"{where}: {problem.rule}"
    return f"{where}: got {_short(problem.got)}, expected {_expected(location, node)}"


def _where(layers: list[Layer], location: tuple[str, ...]) -> str:
    """Name the file and the dotted path, in the last layer that says anything about it."""
    path = ".".join(location)
    # A figure that is missing belongs into the layer that has the table around it.
    for place in (location, location[:-1]) if len(location) > 1 else (location,):
        for layer in reversed(layers):
            if _speaks_of(layer.tree, place):
                return f"{layer.file}: {layer.prefix}{path}"
    return f"{layers[-1].file}: {path}"


def _speaks_of(tree: Any, location: tuple[str, ...]) -> bool:
    """Tell whether a layer holds the location, or the figure of which it is a part."""
    node: Any = TREE
    for part in location:
        if isinstance(node, Kind):
            return True
        if not isinstance(tree, Mapping) or part not in tree:
            return False
        tree, node = tree[part], child(node, part)
    return True


def _names(node: Any) -> tuple[str, ...]:
    if isinstance(node, Kind):
        return FIELDS
    return tuple(children(node)) if node is not None else ()


def _expected(location: tuple[str, ...], node: Any) -> str:
    field = location[-1]
    if field == "confidence":
        return "one of " + ", ".join(CONFIDENCES)
    if field in ("source", "note"):
        return "a text that says where the value comes from"
    if "fitted_on" in location:
        return "a list of texts, what the ids of the measured rows begin with"
    if isinstance(node, Kind):
        # A bare number in the place of a figure: the answer shows the form of one.
        inside = node_at(location[:-1]) is node
        return (
            node.expected if inside else "a figure { value, source, confidence }, its value " + node.expected
        )
    return "a table with " + ", ".join(_names(node))


def _short(value: object) -> str:
    text = repr(value)
    # A table in the wrong place would fill the screen.
    return text if len(text) <= 60 else text[:57] + "..."


def nearest(name: str, known: Iterable[str], count: int = 1) -> list[str]:
    """Return the known names that were probably meant, whatever their case, the nearest first."""
    # By lower case: ascend910b3 is near 910B3.
    folded = {entry.lower(): entry for entry in known}
    return [folded[near] for near in close_matches(name.lower(), folded, n=count, cutoff=0.6)]


def hint(name: str, known: tuple[str, ...]) -> str:
    """Return `; did you mean ...?` for a part of a path or a near miss, or the list of what there is."""
    near = _paths_with(name, known)[:3] or nearest(name, known)
    if near:
        return f"; did you mean {' or '.join(near)}?"
    return "; known are " + ", ".join(known) if known else ""


def _paths_with(part: str, known: tuple[str, ...]) -> list[str]:
    """Return the paths that begin or end with a part: L1.capacity_bytes is that of a buffer, not L2's."""
    part = part.lower()
    return [
        path for path in known if path.lower().endswith(f".{part}") or path.lower().startswith(f"{part}.")
    ]
