"""Kernels of the vector cores as columns: changes of layout, and sums of bias gradients."""

import re
from collections.abc import Sequence
from typing import Any

from prose.raw import Raw, SkipError, is_number

# What sources call row after row.
PLAIN = {"DefaultFormat": "NCHW", "NCHW": "NCHW", "NCDHW": "NCDHW"}
PACKED = ("NC1HWC0", "FRACTAL_Z", "NDC1HWC0", "FRACTAL_Z_3D")
DEPTHWISE = "one channel a group, as of the weights that become FRACTAL_Z in the same profile; 5 x 5 taps"
# Of the depthwise weights that were regrouped: a side of their windows, and the rows of a fractal.
TAPS, ROWS = 5, 16
COUNTERS = {"v_us": "aiv_vec_time(us)", "mte2_us": "aiv_mte2_time(us)", "mte3_us": "aiv_mte3_time(us)"}
FORMATS = {"float": "float32"}
GENERATIONS = {"first-generation 910": "first generation", "910B": "A2 generation"}
# Of sums of bias gradients.
SUM = "(db)"
SUM_FORMATS = {"float;int64": "float32", "float16/32": "float16"}
FRACTAL = [16, 16]

Cells = dict[str, Any]


def is_layout(raw: Raw) -> bool:
    """Tell whether a line measured a change between row after row and one of the cube's layouts."""
    return raw.op == "TransData" and _change(raw.layout) is not None


def layout_cells(raw: Raw) -> Cells:
    """Return the columns of a change of layout."""
    if raw.us is None:
        raise SkipError("gives no time")
    before, after = _change(raw.layout) or ("", "")
    packs = before in PLAIN
    plain, packed = (_sizes(raw.sizes[end]) for end in (("in", "out") if packs else ("out", "in")))
    told: Cells = {}
    if before == after:
        # Two layouts of the cube: the numbers of groups tell the weight, if each group has one channel.
        groups, taps = int(raw.layout.rpartition(":")[2]), packed[0]
        if taps != TAPS * TAPS or plain[0] * plain[3] != groups * taps or packed[1] * ROWS != groups:
            raise SkipError("weights of several groups whose channels are not told")
        plain, told = (groups, 1, TAPS, TAPS), {"groups": groups, "inferred": DEPTHWISE}
    counted = {column: raw.counters.get(name) for column, name in COUNTERS.items()}
    return {
        "measured_us": raw.us,
        "compute_dtype": FORMATS.get(raw.dtype, raw.dtype),
        # A kernel of a training step: what it changes was written just before.
        "l2_start": "handed",
        "group": next(f"TransData, {name}" for start, name in GENERATIONS.items() if start in raw.chip),
        "input_shape": plain,
        "change": f"{before}->{after}",
        "c0": packed[-1],
        **told,
        **{column: told for column, told in counted.items() if is_number(told)},
    }


def _change(layout: str) -> tuple[str, str] | None:
    """Return the layouts before and after, None if no kernel of these brings one to the other."""
    # A number behind a layout is one of groups.
    before, _, after = re.sub(":[0-9]+", "", layout.replace(" ", "")).partition("->")
    if before in PLAIN and after in PACKED:
        return PLAIN[before], after
    if before in PACKED and after in PLAIN:
        return before, PLAIN[after]
    regroups = re.fullmatch("FRACTAL_Z(:1)? *-> *FRACTAL_Z:[0-9]+", layout)
    return ("FRACTAL_Z", "FRACTAL_Z") if regroups else None


def _sizes(told: Any) -> Sequence[int]:
    return [int(size) for size in told.split(",")] if isinstance(told, str) else told


def is_sum(raw: Raw) -> bool:
    """Tell whether a line measured the sum of a bias gradient."""
    return raw.op.endswith(SUM)


def sum_cells(raw: Raw) -> Cells:
    """Return the columns of a sum.

    Raises   SkipError where it is not one over the pixels of a convolution
    """
    if raw.us is None:
        raise SkipError("gives no time")
    if "SHAPES NOT IN THE TRACE" in raw.notes:
        raise SkipError("its sizes are inferred, not measured")
    told = raw.sizes["in"]
    shape = [int(size) for size in told.split(";")[0].split(",")] if isinstance(told, str) else told
    if len(shape) < 3 or shape[-2:] == FRACTAL:
        raise SkipError("sums the rows of a matrix, as no convolution does")
    counted = {column: raw.counters.get(name) for column, name in COUNTERS.items()}
    return {
        "measured_us": raw.us,
        "compute_dtype": SUM_FORMATS.get(raw.dtype, raw.dtype),
        "inferred": "float16, as the rest of its network" if "/" in raw.dtype else None,
        # A kernel of a training step: what it sums was written just before.
        "l2_start": "handed",
        "group": "sums of bias gradients",
        "input_shape": shape,
        **{column: us for column, us in counted.items() if is_number(us)},
    }
