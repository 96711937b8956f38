"""The account of L2: what it holds, decided in one pass over a kernel before that is timed.

Here stand the words for what it holds at first, of the result of a call and of the pages of studies.
"""

from __future__ import annotations

from collections.abc import Iterable

STEP, WARM, CHAINED, NETWORK = "step", "warm", "chained", "network"
# Of each kernel alike; the others are of a call.
L2_STARTS = (WARM, "cold", "handed")
L2_NOTES = {
    STEP: "L2 holds {first} alone as the call begins, as in a training step.",
    WARM: "L2 is warm, as a run of the same kernel leaves it: a kernel whose tensors fit misses nothing.",
    "cold": "L2 is cold: every tensor is fetched from main memory when a kernel first reads it.",
    "handed": "L2 holds the first input of each kernel, as another kernel has written it, and no other.",
    CHAINED: "L2 is empty as the call begins; each kernel finds there what those before it have left.",
}
_OPERANDS_NOTE = "L2 holds {} as the call begins, as far as there is room."
# Of a whole backward pass, which studies alone ask about.
_NETWORK_NOTE = (
    "L2 is empty as the backward pass begins, last layer first; each call finds what the layers behind it "
    "have left, much of it still to be written back, and its grad_output as the latest grad_input of its "
    "size. What lies between two convolutions is not modelled."
)


def l2_note(start: str, first: str = "grad_output") -> str:
    """Return the sentence for a reader of the result.

    start   a word of `L2_NOTES`, or names of operands with commas between
    first   the operand that was written last
    """
    named = _OPERANDS_NOTE.format(start.replace(",", ", "))
    return L2_NOTES.get(start, named).format(first=first)


def l2_meanings(starts: Iterable[str]) -> dict[str, str]:
    """Return the meaning of each start that a page compares, by name such as "L2 step"; also of `NETWORK`."""
    return {f"L2 {start}": _NETWORK_NOTE if start == NETWORK else l2_note(start) for start in starts}
