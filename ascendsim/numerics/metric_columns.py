"""Meaning of each field of `ErrorMetrics`: heading, unit, formula."""

from typing import NamedTuple


class Column(NamedTuple):
    """Define one named value of a record: its heading in tables, its unit, and what it is in words."""

    name: str
    heading: str
    unit: str
    definition: str


METRIC_SYMBOLS = (
    "a: an element of the gradient. g: the same of the reference, which is the stored tensors convolved in "
    "float64. R(g): g rounded once into the gradient's format. ulp(g): the step of that format at g. Where "
    "a or R(g) is NaN or Inf, an element counts in the three columns about these, in equal bits and in the "
    "standards, and in no other measure."
)
METRIC_COLUMNS = (
    Column("dtype", "format", "", "The format whose steps and limits are meant."),
    Column("count", "elements", "", "Elements of the tensor."),
    Column("compared", "compared", "", "Elements where the result and R(g) are both finite."),
    Column("special_expected", "NaN/Inf due", "", "Elements where R(g) is NaN or Inf."),
    Column("special_got", "NaN/Inf got", "", "Elements where a is NaN or Inf."),
    Column("mere", "MERE", "", "Mean of |a - g| / (|g| + 1e-7)."),
    Column("mare", "MARE", "", "Maximum of |a - g| / (|g| + 1e-7)."),
    Column("rmse", "RMSE", "", "Square root of the mean of (a - g)^2."),
    Column(
        "rel_l2",
        "rel L2",
        "",
        "The root of the sum of (a - g)^2 over that of g^2; none where every g is 0.",
    ),
    Column(
        "sqnr_db",
        "SQNR",
        "dB",
        "10 log10 of the sum of g^2 over that of (a - g)^2; none where one of them is 0.",
    ),
    Column(
        "cosine",
        "cosine",
        "",
        "The sum of a g over the roots of the sums of a^2 and of g^2; none where one of them is 0.",
    ),
    Column("max_abs", "max abs", "", "Maximum of |a - g|."),
    Column(
        "mean_of_terms",
        "mean of terms",
        "",
        "Mean of |a - g| / S, where S is the sum of the magnitudes of the terms of g: the error of the sum, "
        "whatever of it cancels; none where S is not known.",
    ),
    Column("max_of_terms", "max of terms", "", "Maximum of |a - g| / S."),
    Column(
        "underflow_share", "underflow", "share of 1", "Share of all elements with a = 0 where g is not 0."
    ),
    Column(
        "overflow_share",
        "overflow",
        "share of 1",
        "Share of all elements with a finite g where a is NaN, Inf, or the largest value in place of an Inf "
        "or NaN of R(g).",
    ),
    Column(
        "share_above_1e3",
        "> 1e-3",
        "share of 1",
        "Share of the compared elements with |a - g| > 1e-8 + 1e-3 |g|: against the float64 value itself, so "
        "the rounding into a coarse format counts as well.",
    ),
    Column("share_above_1e4", "> 1e-4", "share of 1", "Share with |a - g| > 1e-8 + 1e-4 |g|."),
    Column(
        "share_above_1e3_rounded",
        "> 1e-3 of R",
        "share of 1",
        "Share with |a - R(g)| > 1e-8 + 1e-3 |R(g)|; the double-thousandth rule allows 0.001.",
    ),
    Column(
        "max_ulp",
        "max ulp",
        "ulp(g)",
        "Maximum of |a - g| / ulp(g).",
    ),
    Column(
        "mean_signed_ulp",
        "mean ulp",
        "ulp(s)",
        "Mean of (a - g) / ulp(s), s the larger of |g| and the root mean square of all g: a drift up or "
        "down.",
    ),
    Column(
        "mean_outward_ulp",
        "outward ulp",
        "ulp(s)",
        "Mean of (|a| - |g|) / ulp(s): below zero the results shrink, as truncation makes them.",
    ),
    Column(
        "max_rank_ulp",
        "max rank",
        "values",
        "hifloat8: most representable values between a and R(g); its codes are not in value order.",
    ),
    Column(
        "equal_bits_share",
        "equal bits",
        "share of 1",
        "Share of all elements that have exactly the bits of R(g), NaN for NaN: those that are as right as "
        "the format can be.",
    ),
    Column("small_count", "small", "", "Elements with |g| below the format's small-value limit."),
    Column(
        "small_above_bound", "small off", "", "Those of them with |a - g| above the format's small bound."
    ),
    Column(
        "special_mismatches",
        "NaN/Inf off",
        "",
        "Elements where a or R(g) is NaN or Inf and the other differs.",
    ),
    Column(
        "verdicts",
        "standards",
        "",
        "Acceptance rules of the field for the format (st: the operator library's tests of convolution "
        "backward; mixed, stat: the operator test kit): which of them the gradient fails; none where "
        "nothing is finite and every NaN and Inf is due.",
    ),
)
