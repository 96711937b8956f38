"""Find figures that do not fit each other though each is well formed, and keep cores beside each other."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ascendsim.profile.schema import INTEGER_DTYPES, MOST_CORES

Tree = Mapping[str, Any]


def contradictions(tree: Tree, broken: set[str]) -> Iterator[str]:
    """Yield what does not fit each other in a tree of figures.

    broken   tables in which something is wrong by itself: of these nothing is asked, as nobody knows yet what
             they are to say
    """
    for reads, rule in _RULES:
        if not broken & reads:
            yield from rule(tree)


def vector_cores_beside(cubes: int, tree: Tree) -> int | None:
    """Return how many vector cores stand beside so many cube cores, as many for each as in the tree.

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
            f"core_structure is split, such as {' or '.join(map(str, nearest))}"
        )
    if "vector" not in tree["queues"]:
        yield "queues.vector: missing; a split core has queues of its own on the vector side"


# Each rule with the tables that it reads.
_RULES: tuple[tuple[frozenset[str], Callable[[Tree], Iterator[str]]], ...] = (
    (frozenset({"paths", "buffers", "queues"}), _of_paths),
    (frozenset({"cube", "accumulation"}), _of_rates),
    (frozenset({"core_structure", "cores", "queues"}), _of_cores),
)
