"""The plans of `ascendsim run`: read from a file, and written to one."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ascendsim.cli.request import GRADIENTS, Network
from ascendsim.errors import CapacityError, ConfigError, DataError, did_you_mean
from ascendsim.files import write_text

if TYPE_CHECKING:
    from ascendsim.cli.request import Single
    from ascendsim.ops.tiling.plan_files import PlanFile
    from ascendsim.report.tables import Entry


def read_tiling(arguments: Any, request: Single | Network) -> None:
    """Turn the words of --tiling into what calls take, and refuse a --write-tiling that cannot be.

    Raises   ConfigError for an unknown strategy, a file of another network, or files that cannot be written;
             DataError for a file that cannot be read
    """
    from ascendsim.files import require_file
    from ascendsim.ops.plan import form_of
    from ascendsim.ops.tiling.choose import STRATEGIES
    from ascendsim.ops.tiling.plan_files import read_plans
    from ascendsim.ops.tiling.request import is_plan_file

    if arguments.write_tiling is not None:
        form_of(arguments.write_tiling)
        require_file(arguments.write_tiling)
        if len(set(arguments.product)) > 1:
            raise ConfigError(
                "--write-tiling is of one product, as plans are; name one, or see the files of --out"
            )
    elif arguments.tiling_names != "ours":
        raise ConfigError("--tiling-names goes with --write-tiling")
    given = arguments.tiling
    if given is None or given in STRATEGIES:
        return
    if not is_plan_file(given):
        known = ", ".join(STRATEGIES)
        raise ConfigError(f"--tiling is {given!r}; it must be {known}, or a file .toml or .json")
    arguments.plan_file = read_plans(given)
    _require_layers(arguments.plan_file, request)
    _require_entries(arguments.plan_file, request)
    idle = list(_unused(arguments.plan_file, request, arguments.layer))
    if idle:
        print(f"{given}: not used, as this run makes none of them: {', '.join(idle)}", file=sys.stderr)


def _unused(file: PlanFile, request: Single | Network, layer: str | None) -> Iterator[str]:
    """Yield the tables of a file that are for gradients or layers that are not run."""
    if isinstance(request, Network):
        masks = {each.name: request.mask_of(each) for each in request.layers}
    else:
        masks = {layer or "": request.mask}
    made = {
        name: {each for each, wanted in zip(GRADIENTS, mask, strict=True) if wanted}
        for name, mask in masks.items()
    }
    yield from (
        each for each in file.plans if each in GRADIENTS and not any(each in one for one in made.values())
    )
    for name, plans in file.layers.items():
        yield from (f"{name}.{each}" for each in plans if each not in made.get(name, ()))


def tiling_of(arguments: Any, layer: str | None = None) -> Any:
    """Return the `tiling` argument of a call: plans of a file, a layer's own if any, or a strategy."""
    file: PlanFile | None = getattr(arguments, "plan_file", None)
    return arguments.tiling if file is None else file.of_layer(layer)


@contextmanager
def naming_plan_file(arguments: Any) -> Iterator[None]:
    """Name the file of a plan that does not fit, before the gradient: both say where it stands.

    Raises   CapacityError, ConfigError with the file's path before its words
    """
    try:
        yield
    except (CapacityError, ConfigError) as error:
        file: PlanFile | None = getattr(arguments, "plan_file", None)
        if file is None or not str(error).startswith("tiling of "):
            raise
        more = (error.buffer,) if isinstance(error, CapacityError) else ()
        raise type(error)(f"{file.path}: {error}", *more) from None


def write_tiling(document: Entry, arguments: Any) -> None:
    """Write the plans of a run to a file, and say for what the vendor has no names.

    Raises   ConfigError if no kernel has a plan, DataError if the file cannot be written
    """
    from ascendsim.ops.plan import Plan, form_of, plan_fields, plans_text
    from ascendsim.ops.tiling.plan_files import named_fields
    from ascendsim.ops.tiling.vendor.names import unnamed
    from ascendsim.report.folder import plan_comment, plan_tables

    file, names, [product] = arguments.write_tiling, arguments.tiling_names, document["products"]
    tables = plan_tables(product)
    if not tables:
        raise ConfigError(
            "--write-tiling: no kernel of this run has a plan; ask for grad_input or grad_weight"
        )
    if names == "vendor":
        plans = {
            layer: {made: Plan.from_dict(plan_fields(values)) for made, values in each.items()}
            for layer, each in tables.items()
        }
        ours = sorted({name for each in plans.values() for item in each.items() for name in unnamed(*item)})
        tables = {
            layer: {made: named_fields(made, plan, names) for made, plan in each.items()}
            for layer, each in plans.items()
        }
        words = f"{file}: the vendor's entries have no names for {', '.join(ours)}: they stand there in ours"
        print(words, file=sys.stderr)
    write_text(file, plans_text(tables, form_of(file), plan_comment(document, product)))


def _require_entries(file: PlanFile, request: Single | Network) -> None:
    """Refuse entries (runtime_kb) that belong to no layer of this run: they would be ignored."""
    from ascendsim.ops.problems.convolution import ConvProblem
    from ascendsim.ops.problems.layers import layer_problem
    from ascendsim.ops.tiling.entries import LayerEntries

    entries = [plan for plan in file.plans.values() if isinstance(plan, LayerEntries)]
    if not entries:
        return
    problems = [layer_problem(**options) for options in request.each_options]
    convolutions = [problem for problem in problems if isinstance(problem, ConvProblem)]
    if not any(one.has_layer(problem) for one in entries for problem in convolutions):
        count = sum(len(one.entries) for one in entries)
        raise ConfigError(
            f"{file.path}: none of its {count} entries is for what is run; entries name their layer, batch "
            "included, and the bytes of an element"
        )


def _require_layers(file: PlanFile, request: Single | Network) -> None:
    """Refuse plans of layers that the network has not: they would be ignored."""
    names: Sequence[str] = request.layer_names
    for name in file.layers:
        if name not in names:
            hint = did_you_mean(name, names, f"there is {', '.join(names) or 'no layer by name'}")
            raise ConfigError(f"{file.path}: has plans of {name}, which is no layer of what is run; {hint}")


def schedules_of(words: list[str] | None) -> list[str | type] | None:
    """Return the schedules of the words after --schedule: names unchanged, files as their classes.

    Raises   DataError for a file that cannot be read, ConfigError for one that fails or lacks the class
    """
    # Words travel between processes, classes of a file do not: so they are looked up where they are used.
    return None if words is None else [_schedule(word) for word in words]


def _schedule(word: str) -> str | type:
    file, _, name = word.rpartition(":")
    if not file.endswith(".py"):
        return word
    from ascendsim.ops.schedules import Schedule

    module = _module(Path(file).resolve(), file)
    found: dict[str, type] = {
        key: value
        for key, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Schedule) and value.__module__ == module.__name__
    }
    if name in found:
        return found[name]
    hint = did_you_mean(name, found, f"there is {', '.join(found) or 'none'}")
    raise ConfigError(f"{file}: has no schedule {name!r}, a class derived from ascendsim.Schedule; {hint}")


# A file is run once, however many layers and products follow its class.
@lru_cache(maxsize=8)
def _module(path: Path, shown: str) -> ModuleType:
    """Return a file as a module."""
    if not path.is_file():
        raise DataError(f"{shown}: is no file; --schedule takes a name, or FILE.py:CLASS")
    name = f"own_schedule_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None, path
    assert spec.loader is not None, path
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ConfigError(f"{shown}: cannot be run: {type(error).__name__}: {error}") from error
    return module
