"""Many estimates at once, over all cores of the computer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from ascendsim.errors import AscendSimError, ConfigError, shown
from ascendsim.frozen import FrozenMap
from ascendsim.ops.convolution_backward import estimate
from ascendsim.ops.options.call import CallOptions, Options, Product, require_known
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.results import Estimate
from ascendsim.parallel import in_order, progress, worker_count
from ascendsim.profile import Profile, load_profile
from ascendsim.timing.compiled_phase import get_ready

if TYPE_CHECKING:
    from ascendsim.ops.options.asked import Format, Mask


class ItemOptions(CallOptions, total=False):
    """Keywords of `estimate`."""

    output_mask: Mask
    strides: Mapping[str, Sequence[int]] | None


@dataclass(frozen=True, init=False)
class Item:
    """One call for `estimate_many`: what `estimate` takes, under the same names.

    Raises   TypeError for a keyword that `estimate` does not take
    """

    problem: ConvProblem
    dtype: Format | Sequence[Format]
    cube_math_type: int
    options: Mapping[str, Any]

    def __init__(
        self,
        problem: ConvProblem,
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
            found = estimate(item.problem, item.dtype, item.cube_math_type, **options)
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
    shape = item.problem.input if isinstance(item.problem, ConvProblem) else item.problem
    return f"{shown(shape)} on {shown(product)}"
