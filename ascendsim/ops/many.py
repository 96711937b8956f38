"""Many calls: estimates over all cores of the computer, or calls in a row as in a backward pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from ascendsim.errors import AscendSimError, ConfigError, shown
from ascendsim.frozen import FrozenMap
from ascendsim.ops.graph_times import left_by_graph
from ascendsim.ops.layers import estimate_layer, lowered_layer
from ascendsim.ops.options.call import Options, options_of, require_known
from ascendsim.ops.options.keywords import CallOptions
from ascendsim.ops.problems.layers import LayerProblem
from ascendsim.ops.results import Estimate
from ascendsim.ops.running import time_graph
from ascendsim.parallel import in_order, worker_count
from ascendsim.profile import Profile, load_profile
from ascendsim.progress import progress
from ascendsim.timing.compiled_phase import get_ready
from ascendsim.timing.l2 import CHAINED, L2_NOTES

if TYPE_CHECKING:
    from ascendsim.ops.options.asked import Format, Mask
    from ascendsim.ops.options.keywords import Product


class ItemOptions(CallOptions, total=False):
    """Keywords of `estimate`."""

    output_mask: Mask
    strides: Mapping[str, Sequence[int]] | None


@dataclass(frozen=True, init=False)
class Item:
    """One call for `estimate_many`: what `estimate_layer` takes, under the same names.

    Raises   TypeError for a keyword that `estimate` does not take
    """

    problem: LayerProblem
    dtype: Format | Sequence[Format]
    cube_math_type: int
    options: Mapping[str, Any]

    def __init__(
        self,
        problem: LayerProblem,
        dtype: Format | Sequence[Format] = "float16",
        cube_math_type: int = 0,
        **options: Unpack[ItemOptions],
    ) -> None:
        require_known("Item", options, list(ItemOptions.__annotations__))
        values = problem, dtype, cube_math_type, FrozenMap[str, Any](options)
        for name, value in zip(self.__dataclass_fields__, values, strict=True):
            object.__setattr__(self, name, value)

    @property
    def product(self) -> Product:
        """The product, as it was given."""
        product: Product = self.options.get("product", Options.product)
        return product


def estimate_many(
    items: Iterable[Item | Mapping[str, Any]], *, workers: int | None = None
) -> list[Estimate | AscendSimError]:
    """Estimate the cycles of many calls, over several processes.

    Items    `Item(problem, dtype, cube_math_type, product=..., **options of estimate)`, or mappings with
             these names
    Workers  processes; None: one for each core that this process may use; 1: none besides this one.
             Answers do not depend on it. A script calls this under `if __name__ == "__main__":`, since
             each worker imports the script, for the classes that it may define; it is a file, not
             standard input
    Returns  for each item, in their order, what `estimate` returns; where it raises an AscendSimError, that
             error, with the item's number in a note. Timelines are worked out again by whoever asks for one:
             those of many calls would fill the memory
    Shows    progress where standard error is a terminal
    Raises   ConfigError for what is no item, cannot be sent to another process, or is no number of workers;
             WorkerError if a process ends early; TypeError for a keyword that `estimate` does not take
    """
    try:
        numbered = enumerate(items)
    except Exception:  # whatever a foreign object does when it is asked
        raise ConfigError(
            f"estimate_many: items is {shown(items)}; it must be a list of Item(problem, ...)"
        ) from None
    calls = [_item(number, item) for number, item in numbered]
    count = worker_count(workers, len(calls))
    if count > 1:
        get_ready()
    with progress(len(calls)) as advance:
        return in_order(
            _Estimates(), list(enumerate(calls)), count, lambda number: advance(_words(calls[number]))
        )


class _Estimates:
    """Estimates items; every product is loaded once in a process."""

    def __init__(self) -> None:
        self._profiles: dict[str | Path, Profile] = {}

    def __call__(self, task: tuple[int, Item]) -> Estimate | AscendSimError:
        """Return the estimate of an item, or why there is none."""
        number, item = task
        try:
            options: Any = {**item.options, "product": self._product(item.product)}
            found = estimate_layer(item.problem, item.dtype, item.cube_math_type, **options)
        except AscendSimError as error:
            error.add_note(f"item {number} of estimate_many, counted from 0")
            # What a traceback holds on to is the whole call; out of another process none would come anyway.
            return error.with_traceback(None)
        return found.without_timelines()

    def _product(self, product: Product) -> Product:
        # Results of one product then share its figures, which are most of a result's bytes.
        if not isinstance(product, str | Path):
            return product
        if product not in self._profiles:
            try:
                self._profiles[product] = load_profile(product)
            except ConfigError:
                return product  # the rules may know it, and decide on the answer
        return self._profiles[product]


def _item(number: int, given: Any) -> Item:
    if isinstance(given, Item):
        return given
    if not isinstance(given, Mapping):
        raise ConfigError(
            f"estimate_many: item {number} (counted from 0) is {shown(given)}; it must be Item(problem, ...) "
            "or a mapping of these names"
        )
    try:
        return Item(**given)
    except TypeError as error:
        error.add_note(f"item {number} of estimate_many, counted from 0")
        raise


def _words(item: Item) -> str:
    """Name an item on a line of the terminal."""
    product = item.product.variant if isinstance(item.product, Profile) else item.product
    shape = item.problem.input if hasattr(item.problem, "input") else item.problem
    return f"{shown(shape)} on {shown(product)}"


SEQUENCE_NOTE = (
    "L2 holds what the calls before this one have left; each kernel finds there what came before it."
)


@dataclass(frozen=True, slots=True)
class L2Left:
    """Data that calls have left in L2.

    held   name of a tensor -> (its bytes there, how many of them are dirty), the one used longest ago first
    made   for each grad_input that was made, the latest first: its name in `held`, its elements, its format
    calls  how many calls there were
    """

    held: Mapping[str, tuple[int, ...]] = FrozenMap()
    made: tuple[tuple[str, int, str], ...] = ()
    calls: int = 0

    def found_by(self, problem: LayerProblem, dtype: str) -> Mapping[str, tuple[int, ...]]:
        """Return the data in L2 for a call: its grad_output is the latest grad_input of its size and format.

        What lies between two convolutions (an activation, a normalisation, an addition) makes the one of the
        other, of the same size; its own effect on L2 is not modelled.
        """
        asked = prod(problem.grad_output), dtype
        own = next((name for name, *said in self.made if tuple(said) == asked), None)
        return FrozenMap({"grad_output" if name == own else name: b for name, b in self.held.items()})


def left_by_call(
    left: L2Left,
    problem: LayerProblem,
    dtype: Format | Sequence[Format] = "float16",
    cube_math_type: int = 0,
    *,
    output_mask: Mask = (True, True, True),
    **keywords: Unpack[CallOptions],
) -> L2Left:
    """Return the content of L2 after a call that followed others.

    Raises   as `estimate`
    """
    options = options_of("left_by_call", keywords)
    lowered, dtypes, _ = lowered_layer(problem, options, dtype, cube_math_type, output_mask)
    graph = options.within(lowered)
    state = left_by_graph(graph, options.profile, left.found_by(problem, dtypes["grad_output"]))
    # The next call has tensors of the same names, which are others.
    names = {name: f"call {left.calls}: {name}" for name in state if name not in left.held}
    held = {names.get(name, name): bytes_ for name, bytes_ in state.items()}
    made = left.made
    if "grad_input" in graph.outputs:
        tensor = graph.outputs["grad_input"]
        name = names.get(tensor.name, "")
        made = ((name, prod(problem.input), dtypes["grad_input"]), *made)
    return L2Left(FrozenMap(held), tuple(one for one in made if one[0] in held), left.calls + 1)


def estimate_behind(
    left: L2Left,
    problem: LayerProblem,
    dtype: Format | Sequence[Format] = "float16",
    cube_math_type: int = 0,
    *,
    output_mask: Mask = (True, True, True),
    **keywords: Unpack[CallOptions],
) -> Estimate:
    """Estimate the cycles of a call that finds in L2 what others have left.

    Keywords as those of `estimate`, but l2_start
    Returns, Raises   as `estimate`
    """
    said: dict[str, Any] = {**keywords, "l2_start": CHAINED}
    options = options_of("estimate_behind", said)
    graph, dtypes, fields = lowered_layer(problem, options, dtype, cube_math_type, output_mask)
    found = left.found_by(problem, dtypes["grad_output"])
    made = Estimate(**fields(time_graph(options.within(graph), options.profile, found, options.engine)))
    notes = tuple(SEQUENCE_NOTE if note == L2_NOTES[CHAINED] else note for note in made.notes)
    return replace(made, notes=notes)
