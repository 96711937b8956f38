"""Merge the layers of a product, check the result, and report every mistake in one error."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ascendsim.errors import ConfigError, close_matches
from ascendsim.profile.schema import (
    ABOUT_TABLES,
    ABOUT_TEXTS,
    CONFIDENCES,
    CUBE_BYTES,
    FRACTAL_ROW_BYTES,
    INTEGER_DTYPES,
    MOST_CORES,
    TREE,
    ByClock,
    Kind,
    child,
    children,
    node_at,
)

Tree = Mapping[str, Any]


def contradictions(tree: Tree, broken: set[str]) -> Iterator[str]:
    """Yield the contradictions between figures of a tree.

    broken   tables in which something is wrong by itself: of these nothing is asked, as nobody knows yet what
             they are to say
    """
    for reads, rule in _RULES:
        if not broken & reads:
            yield from rule(tree)


def vector_cores_beside(cubes: int, tree: Tree) -> int | None:
    """Return the number of vector cores beside `cubes` cube cores, at the ratio of the tree.

    An AI core of split products is a cube core and its vector cores: who asks for more AI cores and speaks
    of cube cores alone means whole ones.
    None where the product is not split, or its own numbers have no whole ratio.
    """
    if _value(tree, "core_structure") != "split":
        return None
    had, vectors = (_value(tree.get("cores"), kind) for kind in ("cube", "vector"))
    if not all(type(count) is int and count > 0 for count in (had, vectors, cubes)) or vectors % had:
        return None
    beside = cubes * (vectors // had)
    return beside if beside <= MOST_CORES else None


def _value(table: Any, key: str) -> Any:
    """Return the value of a figure; None where a tree that is not checked yet has none."""
    figure = table.get(key) if isinstance(table, Mapping) else None
    return figure.get("value") if isinstance(figure, Mapping) else None


def _of_paths(tree: Tree) -> Iterator[str]:
    paths, buffers = tree["paths"], tree["buffers"]
    queues = {pipe for table in tree["queues"].values() for pipe in table}
    for name, path in paths.items():
        # GM is no buffer of the core.
        missing = [end for end in name.split("_") if end != "GM" and end not in buffers]
        if missing:
            yield f"paths.{name}: goes through {missing[0]}, but there is no buffers.{missing[0]}"
        # Its instructions would be issued into a queue that does not exist.
        if path["pipe"]["value"] not in queues:
            yield f"paths.{name}.pipe: {path['pipe']['value']} has no queue depth in queues"
        spread, latency = (path.get(key, {}).get("value", 0) for key in ("spread_cycles", "latency_cycles"))
        # The nearest part of L2 would answer before it is asked.
        if spread > latency:
            yield f"paths.{name}.spread_cycles: got {spread}, expected at most the latency_cycles, {latency}"
    if "L0C_GM" not in paths and "L0C_UB" not in paths:
        yield "paths: results cannot leave the cube; expected L0C_GM or L0C_UB"


def _of_rates(tree: Tree) -> Iterator[str]:
    rates = tree["cube"]["rates"]
    for dtype in rates:
        # Sums of int8 products are exact in int32: there is no model to choose.
        if dtype not in INTEGER_DTYPES and dtype not in tree["accumulation"]:
            yield f"accumulation.{dtype}: missing, though cube.rates.{dtype} exists; expected a model's text"
    # A load brings elements of a size to L0 and knows no more of them: a fractal has one shape for all.
    first: dict[int, str] = {}
    least, most = FRACTAL_ROW_BYTES
    for dtype, rate in rates.items():
        size, k0 = CUBE_BYTES[dtype], rate["k0"]["value"]
        like = first.setdefault(size, dtype)
        if not least <= k0 * size <= most:
            yield (
                f"cube.rates.{dtype}.k0: got {k0}, a row of {k0 * size} bytes in a fractal; expected "
                f"{max(1, least // size)} to {most // size}, rows of {least} to {most} bytes"
            )
        elif k0 != rates[like]["k0"]["value"]:
            yield (
                f"cube.rates.{dtype}.k0: got {k0}, but {like}, as wide, has {rates[like]['k0']['value']}; "
                f"change both, or the whole cube, such as cube={tree['cube']['m0']['value']}x"
                f"{tree['cube']['n0']['value']}x{rates['float16']['k0']['value']}"
            )
    # It differs by product, 11 or 10, so that no default would be right.
    if "hf32" in rates and "hf32_mantissa_bits" not in tree["cube"]:
        yield "cube.hf32_mantissa_bits: missing, though cube.rates.hf32 exists"


def _of_cores(tree: Tree) -> Iterator[str]:
    if tree["core_structure"]["value"] != "split":
        return
    cubes, vectors = (tree["cores"][kind]["value"] for kind in ("cube", "vector"))
    # Casts, sums and the bias gradient run there.
    if not vectors:
        yield "cores.vector: got 0, expected at least 1 where core_structure is split"
    # A cube core hands its results to the vector cores beside it, and each has as many.
    elif vectors % cubes:
        nearest = sorted({max(1, vectors // cubes) * cubes, (vectors // cubes + 1) * cubes})
        yield (
            f"cores.vector: got {vectors} for {cubes} cube cores, expected equally many for each where "
            f"core_structure is split, such as {' or '.join(map(str, nearest))}: "
            "change it with cores.cube"
        )
    if "vector" not in tree["queues"]:
        yield "queues.vector: missing; a split core has queues of its own on the vector side"


def _of_energy(tree: Tree) -> Iterator[str]:
    energy = tree.get("energy", {})
    clocks, nominal = sorted(map(int, energy.get("voltage_v", ()))), _value(energy, "nominal_mhz")
    if energy.get("nominal_mhz", {}).get("range"):
        yield (
            "energy.nominal_mhz: has a range; expected one clock, at which the figures of [energy] hold: "
            'confidence "design" has no range'
        )
    # Nobody would know at which voltage the picojoules hold.
    if clocks and (nominal is None or not clocks[0] <= nominal <= clocks[-1]):
        got = "missing" if nominal is None else f"got {nominal}"
        yield (
            f"energy.nominal_mhz: {got}; expected the clock at which the figures of [energy] hold, one for "
            f"which energy.voltage_v has a voltage: {clocks[0]} to {clocks[-1]} MHz"
        )


# Each rule with the tables that it reads.
_RULES: tuple[tuple[frozenset[str], Callable[[Tree], Iterator[str]]], ...] = (
    (frozenset({"paths", "buffers", "queues"}), _of_paths),
    (frozenset({"cube", "accumulation"}), _of_rates),
    (frozenset({"core_structure", "cores", "queues"}), _of_cores),
    (frozenset({"energy"}), _of_energy),
)


class Problem(NamedTuple):
    """One thing that is wrong.

    place   keys that lead there; the number of an item of a list
    fault   "missing", "unknown" (a key), "wrong" (a value), or "figure": its parts do not fit each other
    got     the value, if it is wrong
    rule    what a figure must be, if its parts do not fit each other
    """

    place: tuple[str, ...]
    fault: str
    got: Any = None
    rule: str = ""


FIELDS = ("value", "source", "confidence", "range", "note", "fitted_on", "without")
_REQUIRED = ("value", "source", "confidence")

_Finder = Callable[[Any, tuple[str, ...]], Iterator[Problem]]


def problems_of(node: Any, given: Any, place: tuple[str, ...] = ()) -> Iterator[Problem]:
    """Yield the problems of a table of figures, in the order of the schema, then unknown keys."""
    if isinstance(node, Kind):
        yield from _of_figure(node, given, place)
    elif not isinstance(given, dict):
        yield Problem(place, "wrong", given)
    else:
        wanted = children(node, given)
        for key, (entry, required) in wanted.items():
            if key in given:
                yield from problems_of(entry, given[key], (*place, key))
            elif required:
                yield Problem((*place, key), "missing")
        yield from _unknown(given, wanted, place)


def _of_figure(kind: Kind, given: Any, place: tuple[str, ...]) -> Iterator[Problem]:
    if not isinstance(given, dict):
        yield Problem(place, "wrong", given)
        return
    found: list[Problem] = []
    for key in FIELDS:
        if key in given:
            found += _of_field(kind, key, given[key], (*place, key))
        elif key in _REQUIRED:
            found.append(Problem((*place, key), "missing"))
    found += _unknown(given, FIELDS, place)
    yield from found
    # Whether the parts fit each other can be asked of right ones alone.
    rule = "" if found else _broken_rule(given)
    if rule:
        yield Problem(place, "figure", rule=rule)


def _of_field(kind: Kind, key: str, given: Any, place: tuple[str, ...]) -> Iterator[Problem]:
    if key in ("value", "without"):
        yield from _of_value(kind, given, place)
    elif key == "range":
        yield from _of_list(given, place, lambda item, where: _of_value(kind, item, where))
    elif key == "fitted_on":
        yield from _of_list(given, place, _of_text)
    elif key == "confidence":
        if not isinstance(given, str) or given not in CONFIDENCES:
            yield Problem(place, "wrong", given)
    else:
        yield from _of_text(given, place)


def _of_value(kind: Kind, given: Any, place: tuple[str, ...]) -> Iterator[Problem]:
    if not kind.listed:
        if not kind.fits(given):
            yield Problem(place, "wrong", given)
    elif not isinstance(given, list):
        yield Problem(place, "wrong", given)
    else:
        for number, item in enumerate(given):
            if not kind.fits(item):
                yield Problem((*place, str(number)), "wrong", item)


def _of_text(given: Any, place: tuple[str, ...]) -> Iterator[Problem]:
    if not isinstance(given, str) or not given.strip():
        yield Problem(place, "wrong", given)


def _of_list(given: Any, place: tuple[str, ...], of_item: _Finder) -> Iterator[Problem]:
    if not isinstance(given, list) or not given:
        yield Problem(place, "wrong", given)
        return
    for number, item in enumerate(given):
        yield from of_item(item, (*place, str(number)))


def _unknown(given: dict[Any, Any], known: Any, place: tuple[str, ...]) -> Iterator[Problem]:
    return (Problem((*place, str(key)), "unknown") for key in given if key not in known)


def _broken_rule(figure: dict[str, Any]) -> str:
    """Return the rule that the parts of a figure break together, if any."""
    bounds, value = figure.get("range"), figure["value"]
    if figure["confidence"] == "design" and bounds is not None:
        return "a figure of a design is decided and has no range; what may lie in one is assumed"
    if bounds is None:
        # A guess without a range looks like a fact: reports could not show how much hangs on it.
        if figure["confidence"] == "assumed":
            return "an assumed figure must carry a range, for example [low, high]"
    # Texts have no order: their range lists the alternatives.
    elif isinstance(value, str | bool | list):
        if value not in bounds:
            return "the range must list the alternatives, the value among them"
    elif len(bounds) != 2 or not bounds[0] <= value <= bounds[1]:
        return "the range must be [low, high] with the value inside"
    if "fitted_on" in figure or "without" in figure:
        # The ablation needs both: which rows to run again, and with what in the figure's place.
        marks = "fitted_on" in figure and "without" in figure
        if not marks or figure["confidence"] != "measured" or figure["without"] == value:
            return "a fitted figure must be measured and carry fitted_on and another value, without"
    return ""


class FigureLayer(NamedTuple):
    """One source of figures: a file, a variant in it, a caller's overrides. Later layers win."""

    file: str
    prefix: str
    tree: Mapping[str, Any]


def merge(layers: list[FigureLayer]) -> dict[str, Any]:
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


def check(layers: list[FigureLayer], about: Sequence[str] = ()) -> dict[str, Any]:
    """Merge the layers and return the tree of figures, or raise one ConfigError with every problem.

    about   problems of the files' entries that are no figures, reported with those of the figures
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
    """Return the problems that an error message lists, without the frame around them."""
    return [line.strip() for line in message.splitlines() if line.startswith("  ")]


def _tell(layers: list[FigureLayer], problem: Problem) -> str:
    """Word one problem: file, dotted path, the value, the expected values, a near-miss hint."""
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


def _where(layers: list[FigureLayer], location: tuple[str, ...]) -> str:
    """Name the file and the dotted path, in the last layer that says anything about it."""
    path = ".".join(location)
    # A figure that is missing belongs into the layer that has the table around it.
    for place in (location, location[:-1]) if len(location) > 1 else (location,):
        for layer in reversed(layers):
            if _speaks_of(layer.tree, place):
                return f"{layer.file}: {layer.prefix}{path}"
    return f"{layers[-1].file}: {path}"


def _speaks_of(tree: Any, location: tuple[str, ...]) -> bool:
    """Return whether a layer holds the location, or the figure around it."""
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
    if isinstance(node, ByClock):
        return ("whole MHz from 1 to 999999",)
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
    """Return `; did you mean ...?` for a part of a path or a near miss, or the list of known names."""
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
