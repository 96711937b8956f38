"""Which orders of additions can be followed without instructions; all others are for the executor."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from ascendsim.numerics.accumulation.models import AccumulationModel
from ascendsim.numerics.compiled.gathered.cuts import is_known
from ascendsim.ops.schedules.base import DgradOrder, MatmulOrder, WgradOrder, WinogradOrder

if TYPE_CHECKING:
    from ascendsim.ops.lowering.call import Call
    from ascendsim.ops.schedules.base import Schedule

# What `images`, `filters`, `products` and `winograd` read.
_KNOWN: dict[type[Any], set[str]] = {
    DgradOrder: {"c0", "slices", "parts", "axes", "phases", "phase_parts", "tap_loop", "tiles"},
    MatmulOrder: {"base_k"},
    WgradOrder: {"ranges", "base_k", "k_split", "tree", "arrivals", "grid", "stream", "strip_w"},
    WinogradOrder: {"clusters", "parts", "streamed"},
}


def can_follow(call: Call, gradient: str, schedule: Schedule, order: str | int) -> bool:
    """Tell whether the bits of a gradient follow from the order of its schedule.

    order   of execution: "program", "arrival" or a seed, which matters to parts that are added atomically
    """
    model = call.accumulation
    if not isinstance(model, AccumulationModel) or not is_known(model):
        return False
    wanted: tuple[type[Any], ...] = (DgradOrder,) if gradient == "grad_input" else (WgradOrder, WinogradOrder)
    if call.as_product(gradient):
        wanted = (MatmulOrder,)
    found: Any = schedule.order()
    if type(found) not in wanted or says_more(found, _KNOWN[type(found)]):
        return False
    if not adds_atomically(schedule, found):
        return True
    return order == "program" and found.arrivals is None and _parts_come_in_order(schedule)


def says_more(order: Any, known: Collection[str]) -> bool:
    """Tell whether an order says anything in other fields: whether one does not stand at its default.

    A field that comes later has a default under which orders are what they were without it.
    """
    return any(
        getattr(order, field.name) != field.default for field in fields(order) if field.name not in known
    )


def adds_atomically(schedule: Schedule, order: Any) -> bool:
    """Tell whether parts of the reduction are added as they arrive; those of stream-K never are."""
    if getattr(order, "stream", None) is not None:
        return False
    return schedule.sums == "atomic" and getattr(order, "k_split", 1) > 1


def _parts_come_in_order(schedule: Schedule) -> bool:
    """Tell whether core after core every element gets part 0 first, then part 1, and so on."""
    # A schedule whose tasks say nothing of parts may add them in any order.
    parts = [getattr(task, "part", None) for tasks in schedule.dealt() for task in tasks]
    return None not in parts and parts == sorted(parts)  # type: ignore[type-var]
