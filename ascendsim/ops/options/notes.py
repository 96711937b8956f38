"""The sentences about the options of a call that a reader of its result must know."""

from __future__ import annotations

from collections.abc import Mapping

from ascendsim.ops.plan import Plan

ROWS_NOTE = (
    "The cube's kernels read and write tensors row after row, as NCHW; what that adds to their writes is not "
    "part of the cycles."
)
CHOSEN_NOTES = {
    "product": "follow the rules of the product's operators as far as they are public; their tables of tuned "
    "shapes are not.",
    "tuned": "are the fastest of all grids on a part of 32 cores, as the operators' tuned entries for "
    "ResNet-50 seem to be: these are not public, and are told by measured block counts and times alone.",
    "search": "are this simulator's own; the product's operators choose their own.",
    "user, rest product": "are given in part, the rest by the rules of the product's operators.",
    "user, rest tuned": "are given in part, the rest by a search as that for the operators' tuned entries.",
    "user, rest search": "are given in part, the rest by this simulator's search.",
}
L2_NOTES = {
    "warm": "L2 is warm, as a run of the same kernel leaves it: a kernel whose tensors fit misses nothing.",
    "cold": "L2 is cold: every tensor is fetched from main memory when a kernel first reads it.",
    "handed": "L2 holds the first input of each kernel, as another kernel has written it, and no other.",
    "chained": "L2 is empty as the call begins; each kernel finds there what those before it have left.",
}
UNTIMED_NOTE = "The call was made without timing: there are gradients, and no kernels and no cycles."
STRIDED_NOTE = (
    "What a vector core needs to gather strided elements, or to write them, is published nowhere: Contiguous "
    "and Transpose kernels read in blocks of 32 bytes or whole lines, whichever is less; ViewCopy kernels "
    "write neighbours in one piece and others in blocks of 32 bytes."
)


def whose_tilings(plans: Mapping[str, Plan]) -> list[str]:
    """Return whose tilings they are; who gives one knows that."""
    found = []
    for strategy, note in CHOSEN_NOTES.items():
        names = [name for name, plan in plans.items() if plan.chosen_by == strategy]
        if names:
            # What is given in part may be the nest alone.
            what = "Tilings" if strategy in ("product", "tuned", "search") else "Plans"
            which = what if len(names) == len(plans) else f"{what} of {' and '.join(names)}"
            found.append(f"{which} {note}")
    # A reason begins with whose plan it is and of which gradient: "product's plan of grad_input on ...".
    reasons = dict.fromkeys(plan.instead for plan in plans.values() if plan.instead)
    return found + [f"Not taken: the {reason}." for reason in reasons]
