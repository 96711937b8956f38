"""Transposed convolutions forwards, which the kernel of grad_input computes, as columns."""

from typing import Any

from prose.products import compute_dtype_of
from prose.raw import Raw, SkipError

OPERATOR = "ConvTranspose"
GROUP = "transposed convolutions"
# Channels of the result, which is the grad_input, and of what comes in, which is the grad_output.
RESULT, GIVEN = "Cin_of_fwd_conv(=Cout of transposed)", "Cout_of_fwd_conv(=Cin of transposed)"

Cells = dict[str, Any]


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
        "group": f"{GROUP}, 910B2",
        "input_shape": (sizes["N"], sizes[RESULT], *result),
        "weight_shape": (sizes[GIVEN], sizes[RESULT] // groups, *kernel),
        "stride": stride,
        "padding": pad,
        "dilation": dilation,
        "groups": groups,
    }
