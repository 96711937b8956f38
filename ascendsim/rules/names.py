"""Names of formats that rule files and tensors share."""

from __future__ import annotations

# Formats of tensors that some product multiplies, in the order in which messages list them. No operator of
# the interface takes int8.
DTYPES = ("float32", "float16", "bfloat16", "hifloat8", "float8_e4m3fn", "float8_e5m2")

# Storage formats, in the vendor's spelling without its prefix.
FORMATS = (
    *("NCHW", "NHWC", "ND", "NC1HWC0", "FRACTAL_Z", "NC1HWC0_C04", "HWCN", "NDHWC", "FRACTAL_NZ", "NCDHW"),
    *("NDC1HWC0", "FRACTAL_Z_3D", "NC", "NCL"),
)
