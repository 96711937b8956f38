"""Questions of precision: models and formats against each other, and against a device.

Math               an operand format, an accumulation model and an output format
spread             gradients under several of them: how far from float64, and from each other
attribute          the error of one: how much of it operands, accumulation and output make
identify           the accumulation models that agree with what a device answered (`ascendsim probe`)
rank_by_public_figures   the models of float32 by what is public about 910B and 910_93
error_metrics      all measures of one tensor against float64
reduction_tree     the order of a reduction's additions; `as_text` and `as_dot` print it
format_of, quantise      formats of studies: free ones, shared scales, stochastic rounding
GPUS               tensor cores of other vendors by name and operand format, to be named as `accumulation`
"""

from __future__ import annotations

from pathlib import Path

from ascendsim.errors import refusal
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.numerics.metrics import ErrorMetrics, error_metrics
from ascendsim.studies.arithmetic.formats import format_of, quantise
from ascendsim.studies.arithmetic.math import (
    GPUS,
    Attribution,
    Judged,
    Math,
    as_dot,
    as_text,
    attribute,
    reduction_tree,
    spread,
)
from ascendsim.studies.identify.folder import rank_by_public_figures, read_outputs
from ascendsim.studies.identify.judge import identify_outputs
from ascendsim.studies.identify.records import Identification

__all__ = [
    "GPUS",
    "Attribution",
    "ErrorMetrics",
    "Identification",
    "Judged",
    "Math",
    "as_dot",
    "as_text",
    "attribute",
    "error_metrics",
    "format_of",
    "identify",
    "quantise",
    "rank_by_public_figures",
    "reduction_tree",
    "spread",
]


LONGEST_PATH = 4096


@default_arithmetic
def identify(folder: str | Path) -> tuple[Identification, ...]:
    """Return the findings of a folder of answers of `ascendsim probe`, format by format.

    Raises   ConfigError for a folder without a probe or without answers
    """
    # No system has longer paths.
    if not isinstance(folder, str | Path) or len(str(folder)) > LONGEST_PATH:
        raise refusal("identify: folder", folder, "the path of a folder that `ascendsim probe` wrote")
    return identify_outputs(read_outputs(Path(folder)))
