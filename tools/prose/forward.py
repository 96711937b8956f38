"""Convolutions, forward, whose source publishes the tiling, as columns."""

from typing import Any

from prose.gradients import geometry
from prose.products import compute_dtype_of, extents, l2_start_of
from prose.raw import Raw, SkipError

FORWARD = ("pto-conv2d",)
# The source cuts the product into a grid of 4 x 6 cores, its pixels along the batch, and brings three slices
# of the reduction into L1 at a time.
PARTS, COLUMNS, STEP = 4, 6, 3
# The shares of the task in which the source says that each pipe was busy.
SHARES = {"TMATMUL_pct": "m_us", "TEXTRACT_pct": "mte1_us", "TLOAD_pct": "mte2_us", "TSTORE_pct": "fix_us"}

Cells = dict[str, Any]


def forward_cells(raw: Raw) -> Cells:
    """Return the columns of a convolution with the tiling that ran."""
    if raw.us is None:
        raise SkipError("gives no time")
    base_m, base_k, base_n = extents(raw, "base", 3)
    shares = {name: raw.counters.get(share) for share, name in SHARES.items()}
    return {
        "measured_us": raw.us,
        "compute_dtype": compute_dtype_of(raw),
        "l2_start": l2_start_of(raw),
        "group": "published tilings, forward",
        **{name: raw.us * share / 100 for name, share in shares.items() if share is not None},
        **geometry(raw),
        "base_m": base_m,
        "base_n": base_n,
        "base_k": base_k,
        "step_ka": STEP,
        "step_kb": STEP,
        "batch_dim": PARTS,
        "n_dim": COLUMNS,
        "used_cores": PARTS * COLUMNS,
    }
