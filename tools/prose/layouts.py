"""Changes of layout as columns."""

from collections.abc import Sequence
from typing import Any

from prose.raw import Raw, SkipError, is_number

# What sources call row after row.
PLAIN = ("DefaultFormat", "NCHW")
PACKED = ("NC1HWC0", "FRACTAL_Z")
COUNTERS = {"v_us": "aiv_vec_time(us)", "mte2_us": "aiv_mte2_time(us)", "mte3_us": "aiv_mte3_time(us)"}
FORMATS = {"float": "float32"}
GENERATIONS = {"first-generation 910": "first generation", "910B": "A2 generation"}

Cells = dict[str, Any]


def is_layout(raw: Raw) -> bool:
    """Tell whether a line measured a change between row after row and one of the cube's layouts."""
    return raw.op == "TransData" and _change(raw.layout) is not None


def layout_cells(raw: Raw) -> Cells:
    """Return the columns of a change of layout."""
    if raw.us is None:
        raise SkipError("gives no time")
    before, after = _change(raw.layout) or ("", "")
    packs = before == "NCHW"
    plain, packed = (_sizes(raw.sizes[end]) for end in (("in", "out") if packs else ("out", "in")))
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
        **{column: told for column, told in counted.items() if is_number(told)},
    }


def _change(layout: str) -> tuple[str, str] | None:
    """Return the layouts before and after, None if neither or both are row after row."""
    # ":1" behind a layout is a number of groups.
    before, _, after = layout.replace(":1", "").partition("->")
    if before in PLAIN and after in PACKED:
        return "NCHW", after
    if before in PACKED and after in PLAIN:
        return before, "NCHW"
    return None


def _sizes(told: Any) -> Sequence[int]:
    return [int(size) for size in told.split(",")] if isinstance(told, str) else told
