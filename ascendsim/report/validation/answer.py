"""How far the model is from what was measured, in one sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ascendsim.validate.compare import summarise

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ascendsim.validate.compare import Case

WORDS = {
    "primitives": "single instructions and streams",
    "matmul": "matrix products",
    "convolution": "kernels of convolution gradients",
    "layouts": "changes of layout",
    "calls": "whole calls and sums",
}


def answer_line(cases: Sequence[Case]) -> str:
    """Say the median error of each class that was compared, the largest first; "" where nothing was."""
    found = {kind: [case for case in cases if case.kind == kind] for kind in WORDS}
    medians = {kind: summarise(own).median for kind, own in found.items() if own}
    parts = [
        f"{medians[kind]:.1%} for {WORDS[kind]} ({len(found[kind])})"
        for kind in sorted(medians, key=lambda kind: -medians[kind])
    ]
    if not parts:
        return ""
    return f"Half of the estimates are within so much of what was measured: {', '.join(parts)}."
