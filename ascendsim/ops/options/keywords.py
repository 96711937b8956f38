"""The keywords that operators take, and what each of them may be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from ascendsim.arguments import refusal, whole
from ascendsim.errors import did_you_mean
from ascendsim.numerics.accumulation.models import AccumulationModel
from ascendsim.ops.plan import Plan, Tiling
from ascendsim.ops.tiling.partial import PartialPlan
from ascendsim.profile import Profile

Product = str | Path | Profile
OnePlan = Tiling | Plan | PartialPlan | str | Path
# A mapping holds plans by gradient, or fields of one partial plan.
Tilings = OnePlan | Mapping[str, OnePlan | Mapping[str, Any]] | Mapping[str, Any] | None
Schedules = str | type | Sequence[str | type] | Mapping[str, str | type] | None


class ProductOptions(TypedDict, total=False):
    """Keywords of every operator.

    product        name of a product or variant, path of a TOML file, or a loaded Profile
    accumulation   name of an accumulation model; None: the product's default for the compute dtype
    tiling         a Tiling (or a Plan of another call) for the one product computed on the cube, or
                   {"grad_input": ..., "grad_weight": ...}; None or "product": chosen as the product's
                   operators choose, where their rules are known; "search": by this simulator's search;
                   "tuned", on 910 and 310P: the fastest grid on a part of 32 cores.
                   In place of a tiling a dict of some of its fields, or of `block_dim`, the blocks that a
                   kernel is launched with: the rules choose the rest. Or a file of plans (`read_plans`)
    schedule       a loop nest by its name, or a class derived from ascendsim.Schedule; several of them in a
                   list, or {"grad_input": ...}; None: the usual ones
    l2_start       "warm" (L2 holds what a run of the same kernel leaves in it), "cold", "handed" (it holds
                   the first input of each kernel alone, so what a change of layout reads) or "chained"
                   (empty as the call begins; each later kernel finds what those before it have left)
    engine         "compiled" or "simpy", which find the same cycles; None: cycles from the first, which is
                   fast, and spans, where they are asked for, from the second, which is the definition
    """

    product: Product
    accumulation: str | AccumulationModel | None
    tiling: Tilings
    schedule: Schedules
    l2_start: str
    engine: str | None


class CallOptions(ProductOptions, total=False):
    """Keywords of the convolution operators, besides those of every operator.

    deterministic  add the parts of grad_weight in a fixed order; None: as the rule set says. Where the rule
                   set says that a product has one order, neither value changes it
    output_dtypes  formats of the three gradients; None: those of input, weight and grad_output (or bias)
    output_strides  {"grad_input": ...}: where the elements of gradients are to lie, in elements; None: row
                   after row. Others cost a ViewCopy each; the gradients of a result are contiguous anyway
    rules          rule set that says what is accepted and in which type it computes
    fixpipe        which of the vendor's pages says when Fixpipe saturates: "ctrl48" or "c-api-pages"
    """

    deterministic: bool | None
    output_dtypes: Sequence[str | None] | None
    output_strides: Mapping[str, Sequence[int]] | None
    rules: str | Path
    fixpipe: str


def require_known(function: str, given: Iterable[str], names: Sequence[str]) -> None:
    """Refuse keywords that a function does not take.

    Raises   TypeError, as Python does, with near misses
    """
    for name in given:
        if name not in names:
            hint = did_you_mean(name, names, f"it takes {', '.join(names)}")
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}; {hint}")


def order_given(order: Any) -> str | int:
    """Return an order of execution as its name or its seed, before anything is computed.

    Raises   ConfigError for one without a meaning
    """
    if isinstance(order, str) and order in ("program", "arrival"):
        return order
    seed = None if isinstance(order, str) else whole(order)
    if seed is None or seed < 0:
        raise refusal("order", order, '"program", "arrival" or a whole number of 0 or more, the seed')
    return seed
