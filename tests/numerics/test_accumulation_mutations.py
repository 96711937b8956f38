"""Would a wrong bit of an accumulation model be noticed?  Change one line in a copy: some test must fail.

Rows are as in `test_mutations`, with an expression that picks the tests that have to notice, so that few
kernels are compiled. A row for a compiled model is noticed by comparison with its twin, a row for a twin by
answers derived by hand or by gmpy2.
"""

import pytest

from tests.helpers.mutating import Mutation, assert_noticed, run_copy, source_of

TWINS = [
    # one rounding, one tie rule, one overflow, one block size, one pairing, one order, one option
    ("2 * rest > ulp or", "2 * rest >= ulp or"),
    ("whole % 2 == 1", "whole % 2 == 0"),
    ("whole += 2 * rest >= ulp", "whole += 2 * rest > ulp"),
    ('fmt.max_finite if mode == "RZ"', 'fmt.max_finite if mode == "RNA"'),
    ("max(exponent(x), fmt.min_exponent)", "exponent(x)"),
    ("for i in range(0, len(pairs), size)", "for i in range(0, len(pairs), size + 1)"),
    ('if pairing == "adjacent":', 'if pairing == "halves":'),
    ("+ [0.0] * (block - len(products))", "+ [-0.0] * (block - len(products))"),
    ("exponent(term(a)) + exponent(term(b)) for", "exponent(product(a, b)) for"),
    ("if model.with_accumulator and _is_number(c):", "if _is_number(c):"),
    ("return r2(total(", "return r(total("),
    ("minus_zero else 0.0", "minus_zero else -0.0"),
    ("value < math.ldexp(1.0, fmt.min_exponent)", "value <= math.ldexp(1.0, fmt.min_exponent)"),
    ("np.uint32(0xFFFFF000)", "np.uint32(0xFFFFE000)"),
    ("0.0 if math.isnan(c) else", "c if math.isnan(c) else"),
]
HARD = "hard_data and "
CHAIN = "        round_toward_zero()\n    for j"
COMPILED = [
    # one rounding
    ("panel_rounding", "| as_ones(inexact, bits))", "| as_ones(overshot, bits))", HARD + "ftz-acc"),
    ("panel_rounding", "bits - as_ones(absolute(x) <", "bits + as_ones(absolute(x) <", HARD + "align:4"),
    ("panel_rounding", "how.mode == RNE and not how.half", "not how.half", HARD + "seq:RNA"),
    ("kernels/block", "acc = fma(rows(singles, a + t * ROWS), columns(singles, b + t * LANES), acc)",
     "acc = acc + rows(singles, a + t * ROWS) * columns(singles, b + t * LANES)", HARD + "seq:RNE"),
    ("kernels/block", "rounded(total, model.add", "rounded(total, model.sum", HARD + "block-add"),
    # one rounding of the processor's own
    ("panel_rounding", "x + y if how.cuts else exact_sum(x, y)", "x + y", HARD + "seq:RNA"),
    ("kernels/block", CHAIN, "        pass\n    for j", HARD + "seq-muladd:RZ+split3"),
    ("kernels/align", "        round_toward_zero()", "        pass", HARD + "tree:8:halves:RZ"),
    ("kernels/block", "round_toward_zero()\n    _run(", "pass\n    _run(", HARD + "exact:RZ"),
    ("kernels/block", "round_toward_zero()\n    _run_fused(", "pass\n    _run_fused(", HARD + "seq:RZ"),
    ("kernels/block", "a.shape[1]\n    round_toward_zero()", "a.shape[1]", HARD + "fp16-acc and seq:RZ"),
    ("accumulate", "and not model.ftz_acc", "", HARD + "ftz-acc"),
    ("accumulate", 'modes == {"RZ"}', '"RZ" in modes', HARD + "block-add:8:RZ:RNE"),
    # one tie rule
    ("panel_rounding", "equal(x - below, above - x)", "(above - x < x - below)", HARD + "RNA"),
    # one block size, one ragged end, one pairing
    ("accumulate", '"exact-mmad") else model.block', '"exact-mmad") else 2 * model.block',
     HARD + "block:4"),
    ("kernels/align", "leaf + (pairs if halves else 1)", "leaf + (1 if halves else pairs)", HARD + "tree:16"),
    ("kernels/align", "if t >= length:", "if t > length:", HARD + "tree:16"),
    # one proof each: more is believed exact than is
    ("block_sums", "EXACT_UNITS: Final = 2.0**53", "EXACT_UNITS: Final = 2.0**58", "block"),
    ("block_sums", "spread(units * _ROUNDOFF)", "spread(0.0 * _ROUNDOFF)", "block"),
    ("block_sums", "lost = lost + absolute(second)", "lost = lost * absolute(second)", "block"),
    ("block_sums", "(reach + block.bound) * _GROWTH", "block.bound * _GROWTH", "block"),
    ("kernels/block", "return reach if is_exact(reach, unit) else np.inf, unit", "return reach, unit",
     HARD + "block:16"),
    ("kernels/align", "largest <= _ACCUMULATOR_LIMIT and", "largest <= np.inf and", HARD + "align"),
    ("kernels/block", "is_narrow(a, _LIMIT) and", "is_narrow(a, _LIMIT) or", HARD + "fp16-acc and seq"),
    # one special case, one option
    ("kernels/align", "_MINUS_ZERO)), plain, total)", "_MINUS_ZERO)), total, total)", "zero_sums and align"),
    ("kernels/align", "select(absolute(plain) < spread(_INFINITY), total, plain)", "total", HARD + "align"),
    ("workspace", "exact = exact - low_product(work, a, b, t)", "pass", HARD + "split3"),
    ("workspace", "return x * y + spread(0.0)", "return x * y", "zero_sums and split3"),
    ("packing", "np.int32(-4096)", "np.int32(-8192)", HARD + "split3"),
    ("accumulate", "c[np.isnan(c)] = 0.0", "pass", HARD + "saturate"),
    ("accumulate", "if model.ftz_acc:\n        c[:] =", "if model.ftz_acc:\n        c =", HARD + "ftz-acc"),
]  # fmt: skip
PARTS = [
    ("panel_rounding", "np.float32(65520.0)", "np.float32(65504.0)"),
    ("block_sums", "spread(_TIMES_2_29 + 1.0)", "spread(_TIMES_2_29 + 2.0)"),
    ("block_sums", "2.0**53 * (1.0 - 2.0**-28)", "2.0**53"),
    ("block_sums", "np.int64(-(1 << 29))", "np.int64(-(1 << 30))"),
    ("block_sums", "unit >= SMALLEST and reach", "reach"),
    ("panel_rounding", "(low + 0.5 * below)", "(low + 0.0 * below)"),
    ("panel_rounding", "(bits - 1 if error < 0.0 else bits) | 1", "bits | 1"),
    ("workspace", "if magnitude & _FRACTION else 0", "if magnitude else 0"),
    ("workspace", "low == 0 and largest", "largest"),
    (
        "panel_rounding",
        "above = select(size < spread(_SMALLEST_HALF), spread(_SMALLEST_HALF), size)",
        "above = size",
    ),
]
# What is measured of operands: the largest of four rows, and of each block.
MEASURED = [
    ("workspace", "max(max(bound(w), bound(x)), max(bound(y), bound(z)))", "max(bound(w), bound(x))"),
    ("workspace", "size if size <= np.inf else np.inf", "size"),
    ("workspace", "k * ROWS, model.block * ROWS, place)", "k * ROWS, k * ROWS, place)"),
    ("workspace", "first + start, first + min(start + part, size))", "first + start, part)"),
    ("workspace", "total if summed else largest", "largest"),
    ("workspace", "range(start + ROWS * LANES, stop, ROWS * LANES)", "range(start + ROWS * LANES, start, 1)"),
    ("packing", "return select(x < y, x, y)", "return x"),
    ("packing", "return select(x < y, y, x)", "return x"),
    ("packing", "b.fcmp_ordered(\">\", x, y), x, y), ROWS)", "b.fcmp_ordered(\">\", x, y), x, x), ROWS)"),
    ("packing", "bits & spread(_FRACTION)", "bits & spread(_EXPONENT)"),
    ("packing", "Accumulators(singles, spare - skipped, rows, columns)",
     "Accumulators(singles, spare, rows, columns)"),
]  # fmt: skip
# What a call leaves behind, and for whom.
LENT = [
    ("packing", "class Scratch(local):", "class Scratch:"),
    ("workspace", "clear(doubles, limbs)", "pass"),
    ("workspace", "put(singles, a_single, -1.0)", "pass"),
]
# Bounds that are wider by a little than what can be proven.
EDGES = [
    ("block_sums", "EXACT_UNITS: Final = 2.0**53", "EXACT_UNITS: Final = 2.0**54"),
    ("block_sums", "_GROWTH: Final = 1.001", "_GROWTH: Final = 1.0"),
    ("block_sums", "_SUBNORMAL: Final = 2.0**-24", "_SUBNORMAL: Final = 0.0"),
    ("block_sums", "SAFE_UNIT: Final = 2.0**-100", "SAFE_UNIT: Final = 2.0**-300"),
    ("block_sums", "3 * block.length + 8", "3 * block.length - 8"),
    ("block_sums", "        units = 2 * units", "        pass"),
    ("block_sums", "        round_to_nearest()", "        pass"),
    ("block_sums", "_SUBNORMAL, min(unit, block.unit)", "_SUBNORMAL, block.unit"),
    ("kernels/block", "_LARGEST_UNIT: Final = 32.0", "_LARGEST_UNIT: Final = 256.0"),
    ("kernels/block", "if block.unit < SAFE_UNIT or any_lane", "if any_lane"),
    ("kernels/align", "_INTEGERS: Final = 2.0**31", "_INTEGERS: Final = 2.0**32"),
    ("kernels/align", "(4.0 * model.block + 2.0)", "(4.0 * model.block)"),
    ("kernels/align", "_LIMIT: Final = 2.0**30", "_LIMIT: Final = 2.0**50"),
    ("kernels/align", "_ACCUMULATOR_UNIT: Final = 2.0**-88", "_ACCUMULATOR_UNIT: Final = 2.0**-92"),
    ("kernels/align", "_SMALLEST8: Final = 2.0**-600", "_SMALLEST8: Final = 2.0**-290"),
    ("kernels/block", "_LIMIT: Final = 2.0**50", "_LIMIT: Final = 2.0**80"),
    ("accumulate", '"tree": "seq-muladd"', '"tree": "seq"'),
    ("accumulate", "np.abs(x) < np.float32", "np.abs(x) <= np.float32"),
]
EVERY = [
    *(Mutation("accumulation/twins", *change, "test_accumulation_twins") for change in TWINS),
    *(
        Mutation(f"compiled/{file}", *change, "test_accumulation_kernels", pick)
        for file, *change, pick in COMPILED
    ),
    *(Mutation(f"compiled/{file}", *change, "test_accumulation_parts") for file, *change in PARTS),
    *(Mutation(f"compiled/{file}", *change, "test_accumulation_packing") for file, *change in MEASURED),
    *(Mutation(f"compiled/{file}", *change, "test_accumulation_edges") for file, *change in EDGES),
    *(Mutation(f"compiled/{file}", *change, "test_scratch") for file, *change in LENT),
]


@pytest.mark.parametrize("row", EVERY, ids=lambda row: f"{row.file}:{row.new}")
def test_the_line_to_change_exists_once(row: Mutation) -> None:
    assert source_of(f"numerics/{row.file}").count(row.old) == 1


@pytest.mark.slow
@pytest.mark.parametrize("row", EVERY, ids=lambda row: f"{row.file}:{row.new}")
def test_a_changed_line_makes_a_test_fail(row: Mutation, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTEST_ADDOPTS", f'-k "{row.pick}"')
    # Exit status 5, no test picked, does not count as noticed either.
    assert_noticed(run_copy(tmp_path / "copy", f"numerics/{row.file}", row.old, row.new, row.tests))
