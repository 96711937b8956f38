"""Sums of bias gradients as columns."""

from typing import Any

from prose.raw import Raw, SkipError, is_number

MARK = "(db)"
FORMATS = {"float;int64": "float32", "float16/32": "float16"}
COUNTERS = {"v_us": "aiv_vec_time(us)", "mte2_us": "aiv_mte2_time(us)", "mte3_us": "aiv_mte3_time(us)"}
FRACTAL = [16, 16]

Cells = dict[str, Any]


def is_sum(raw: Raw) -> bool:
    """Tell whether a line measured the sum of a bias gradient."""
    return raw.op.endswith(MARK)


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
        "compute_dtype": FORMATS.get(raw.dtype, raw.dtype),
        "inferred": "float16, as the rest of its network" if "/" in raw.dtype else None,
        # A kernel of a training step: what it sums was written just before.
        "l2_start": "handed",
        "group": "sums of bias gradients",
        "input_shape": shape,
        **{column: us for column, us in counted.items() if is_number(us)},
    }
