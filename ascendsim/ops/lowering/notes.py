"""What a reader of a result must know of single kernels, in sentences."""

from __future__ import annotations


def squeezed(gradient: str, through: str, asked: str) -> str:
    """Say that a gradient passes through a narrower format on its way out; nothing where it loses nothing."""
    # float32 is what sums are held in, so a cast from it is the one rounding that the asked format needs.
    if through in ("float32", asked):
        return ""
    return (
        f"{gradient} passes through {through} on its way to {asked}, as in the shipped operator: what "
        f"{through} does not hold is lost. The rule set hardware converts it once."
    )
