"""The precision criteria of the field, by format, as data.

st          tests of convolution backward (ops-nn): |a - R(g)| <= 1e-8 + r |R(g)| on all but a share of r of
            the elements, r = 1e-3 ("double thousandth"), for float32 r = 1e-4.  R(g), because their golden is
            cast to the output's format before it is compared (else no bfloat16 result could pass)
mixed       operator test kit: |a - g| <= atol + rtol |g| on at least 99 % of the elements, and on every one
            |a - g| <= the limit or 32 ulp, whichever is larger
stat        operator test kit, stat_rel_err: MERE < T and MARE < 10 T
small       small-value domain: |g| below `small_below`; there an absolute error above `small_bound` is an
            error (the field compares the count with that of a third party's implementation)
Always      NaN and Inf must be where the reference, rounded to the format, has them
Sources     ops-nn test tables; operator test kit, precision comparison and cross check pages
"""

from dataclasses import dataclass

from ascendsim.numerics.formats.dtypes import DType

ST_ATOL = 1e-8
MIXED_MISS_SHARE = 0.01
MIXED_ULPS = 32


@dataclass(frozen=True)
class Standards:
    """Hold one format's limits; None where the field gives none."""

    st_rtol: float | None
    mixed_rtol: float | None
    mixed_atol: float | None
    mixed_limit: float | None
    stat_limit: float | None
    small_below: float | None
    small_bound: float | None


@dataclass(frozen=True)
class Verdict:
    """Say whether a result passes one standard, and what that standard asks."""

    standard: str
    passed: bool
    rule: str


_HF32 = Standards(1e-3, 2**-9, 2**-10, 1e-1, 2**-11, 2**-12, 2**-28)
_BY_FORMAT = {
    "float16": Standards(1e-3, 2**-9, 2**-9, 1e-1, 2**-10, 2**-11, 2**-16),
    "bfloat16": Standards(1e-3, 2**-6, 2**-6, 1.0, 2**-7, 2**-8, 2**-16),
    "float32": Standards(1e-4, 2**-10, 2**-16, 1e-2, 2**-13, 2**-14, 2**-30),
    "hf32_11": _HF32,
    "hf32_10": _HF32,
    "float8_e4m3fn": Standards(None, 2**-2, 2**-4, 1.0, 2**-3, 2**-4, 2**-6),
    "float8_e5m2": Standards(None, 2**-1, 2**-3, 1e-1, 2**-2, 2**-3, 2**-5),
    "hifloat8": Standards(1e-3, None, None, None, None, None, None),
}


def standards(fmt: DType) -> Standards:
    """Return the limits of a format (HF32: of a float32 tensor computed in HF32)."""
    return _BY_FORMAT[fmt.name]
