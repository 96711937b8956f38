"""Hold a table of measured cases against the model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from ascendsim.errors import AscendSimError
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.profile import Profile, load_profile
from ascendsim.validate.compare import Case, Estimate, bounds_of
from ascendsim.validate.coverage import NOTHING, Coverage, coverage
from ascendsim.validate.kinds.calls import bias_us, call_us, transdata_us
from ascendsim.validate.kinds.forward import forward_us
from ascendsim.validate.kinds.kernels import gradient_us, matmul_us
from ascendsim.validate.kinds.primitives import ISSUE, instruction_cycles
from ascendsim.validate.kinds.streams import copy_and_wait_us, stream_us
from ascendsim.validate.reading import Unusable
from ascendsim.validate.schema import CLASSES, Row

Overrides = tuple[tuple[str, Any], ...]

# What the model says of each kernel; instructions by themselves run under ISSUE.
RUNS: dict[str, Callable[[Row, Profile], Estimate]] = {
    **dict.fromkeys(("mmad", "vector", "move", "load"), instruction_cycles),
    "copy_and_wait": copy_and_wait_us,
    "stream": stream_us,
    "matmul": matmul_us,
    **dict.fromkeys(("grad_input", "grad_weight"), gradient_us),
    "forward": forward_us,
    "transdata": transdata_us,
    "grad_bias": bias_us,
    **dict.fromkeys(("grad_input_call", "grad_weight_call"), call_us),
}


@dataclass(frozen=True)
class Validation:
    """Everything that came of a table: comparisons, and what could not be compared with the reason.

    covered   what the whole table has of convolutions, whichever classes were asked for
    """

    cases: tuple[Case, ...]
    unusable: tuple[Unusable, ...]
    covered: Coverage = NOTHING


@default_arithmetic
def compare_rows(
    rows: Sequence[Row | Unusable],
    classes: Iterable[str] = CLASSES,
    progress: Callable[[str], None] = lambda _: None,
    overrides: Overrides = (),
    *,
    grid_from_row: bool = False,
) -> Validation:
    """Run every row of the asked classes; `progress` is told the name of each before it begins.

    A row that cannot be read is told of if it is of an asked class, or of none. `overrides` replace figures
    of every product, by dotted path. `grid_from_row` gives gradients as many blocks as their rows say.
    """
    # A row whose kernel is not known has no class: it is told of in every run, since it may be a slip.
    wanted = {"", *classes}
    cases: list[Case] = []
    unusable: list[Unusable] = []
    for row in rows:
        progress(row.id)
        if row.kind not in wanted:
            continue
        found = row if isinstance(row, Unusable) else compare(row, overrides, grid_from_row=grid_from_row)
        if isinstance(found, Case):
            cases.append(found)
        else:
            unusable.append(found)
    return Validation(tuple(cases), tuple(unusable), coverage(rows))


@default_arithmetic
def compare(row: Row, overrides: Overrides = (), *, grid_from_row: bool = False) -> Case | Unusable:
    """Return the measurement of a row beside its estimate, or why there is none."""
    run = RUNS[row.kernel]
    if grid_from_row and run is gradient_us:
        run = partial(gradient_us, grid_from_row=True)
    figures = (ISSUE, *overrides) if run is instruction_cycles else overrides
    try:
        estimate = run(row, _profile(row.variant, figures))
    # One row that does not fit its chip says nothing about the others.
    except AscendSimError as error:
        return Unusable(row.id, str(error), row.kind)
    counters = row.counters
    return Case(
        row.id,
        row.kind,
        row.group,
        row.variant,
        row.unit,
        row.measured,
        estimate.value,
        row.source,
        row.role,
        row.quote,
        bounds_of(counters, estimate.busy),
        {pipe: (counters[pipe], estimate.busy[pipe]) for pipe in counters if pipe in estimate.busy},
        "; ".join(filter(None, (estimate.note, row.inferred))),
        row,
    )


# Loading takes longer than running one instruction, and the caches of plans and kernels go by the profile.
@lru_cache(maxsize=64)
def _profile(variant: str, overrides: Overrides) -> Profile:
    return load_profile(variant, overrides=dict(overrides))
