"""Convolutions, forward, as columns: of published samples with their tiling, and of training steps.

Transposed ones, which the kernel of grad_input computes, have the columns of a call for a grad_input.
"""

import re
from typing import Any

from prose.gradients import geometry, gradient_cells
from prose.products import compute_dtype_of, extents, l2_start_of
from prose.raw import Raw, SkipError

PUBLISHED = ("pto-conv2d",)
# A convolution of a training step is its gradients' neighbour: the same source, the same columns.
STEP_OPERATOR, STEPS = "Conv2D", ("msi-alex-", "hpm-")
# The pixels, channels and reduction of a base block, its slices in L1 (image, weights) and copies there, as
# the counters of these kernels tell: M counts images x fractals x steps, MTE1 what they load. All deal whole
# images.
READ_OFF = {
    "msi-alex-conv1-fwd": (165, 64, 8, 121, 121, 2, 1),
    "msi-alex-conv2-fwd": (160, 192, 40, 40, 5, 1, 2),
    "msi-alex-conv4-fwd": (169, 128, 32, 108, 2, 1, 2),
}
PLAN = ("base_m", "base_n", "base_k", "step_ka", "step_kb", "al1_buffers", "bl1_buffers")
# The source cuts the product into a grid of 4 x 6 cores, its pixels along the batch, and brings three slices
# of the reduction into L1 at a time.
PARTS, COLUMNS, STEP = 4, 6, 3
# The shares of the task in which the source says that each pipe was busy.
SHARES = {"TMATMUL_pct": "m_us", "TEXTRACT_pct": "mte1_us", "TLOAD_pct": "mte2_us", "TSTORE_pct": "fix_us"}
# Transposed convolutions. Channels of the result, which is the grad_input, and of what comes in.
TRANSPOSED, TRANSPOSED_GROUP = "ConvTranspose", "transposed convolutions"
RESULT, GIVEN = "Cin_of_fwd_conv(=Cout of transposed)", "Cout_of_fwd_conv(=Cin of transposed)"

Cells = dict[str, Any]


def is_forward(raw: Raw) -> bool:
    """Tell whether a line is a convolution by itself, with all that the model needs to run it."""
    return raw.id.startswith(PUBLISHED) or (raw.op == STEP_OPERATOR and raw.id.startswith(STEPS))


def forward_cells(raw: Raw) -> Cells:
    """Return the columns of a convolution, with the tiling that ran as far as it is known."""
    return _published(raw) if raw.id.startswith(PUBLISHED) else _of_step(raw)


def _of_step(raw: Raw) -> Cells:
    """Return the columns of a training step's convolution; its plan where counters tell it."""
    cells = gradient_cells(raw)
    network = re.sub(r"^AlexNet, HF32$", "AlexNet in HF32", cells["group"])
    # Aims name groups by what they begin with: those of gradients begin with the network.
    cells["group"] = f"forward, {network}"
    plan = next((plan for name, plan in READ_OFF.items() if raw.id.startswith(name)), None)
    if plan is None:
        return cells
    told = "tiling read off its counters"
    grid = {"batch_dim": cells["blocks"], "used_cores": cells["blocks"], "inferred": told}
    return cells | dict(zip(PLAN, plan, strict=True)) | grid


def _published(raw: Raw) -> Cells:
    """Return the columns of a convolution whose source publishes the tiling."""
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


def transposed_cells(raw: Raw) -> Cells:
    """Return the columns of a call of a transposed convolution, as those of a call for a grad_input."""
    if raw.us is None:
        raise SkipError("gives no time")
    sizes, window = raw.sizes, raw.window
    given, kernel, groups = sizes["dy_spatial"], sizes["k"], window["groups"]
    stride, pad, dilation = window["stride"], window["pad"], window["dilation"]
    axes = zip(given, kernel, stride, pad, dilation, strict=True)
    # The last step of the stride leaves nothing over where no output padding is told.
    result = [(size - 1) * step - 2 * p + (k - 1) * d + 1 for size, k, step, p, d in axes]
    return {
        "measured_us": raw.us,
        "compute_dtype": compute_dtype_of(raw),
        "l2_start": "chained",
        "group": f"{TRANSPOSED_GROUP}, 910B2",
        "input_shape": (sizes["N"], sizes[RESULT], *result),
        "weight_shape": (sizes[GIVEN], sizes[RESULT] // groups, *kernel),
        "stride": stride,
        "padding": pad,
        "dilation": dilation,
        "groups": groups,
    }
