"""Names of the vendor's interface that rule files, tensors and errors share, with the vendor's numbers."""

from __future__ import annotations

# Formats of tensors that some product multiplies, in the order in which messages list them. No operator of
# the interface takes int8.
DTYPES = ("float32", "float16", "bfloat16", "hifloat8", "float8_e4m3fn", "float8_e5m2")

# Storage formats and their numbers in aclFormat (public header acl/acl_base.h of CANN).
FORMATS = {
    "NCHW": 0,
    "NHWC": 1,
    "ND": 2,
    "NC1HWC0": 3,
    "FRACTAL_Z": 4,
    "NC1HWC0_C04": 12,
    "HWCN": 16,
    "NDHWC": 27,
    "FRACTAL_NZ": 29,
    "NCDHW": 30,
    "NDC1HWC0": 32,
    "FRACTAL_Z_3D": 33,
    "NC": 35,
    "NCL": 47,
}
