"""Would a wrong bit be noticed?  Change one line of the arithmetic in a copy: some test must fail."""

import ast
import os
import signal
import subprocess
import sys

import pytest

import mutant_places as places
import mutants
from tests.helpers import other_processes
from tests.helpers.other_processes import Mutation, assert_noticed, run_copy, source_of

# --- Would a wrong bit be noticed? Change one line of the arithmetic in a copy: some test must fail. ---
# A row names the file, the text to change (it must occur exactly once), what it becomes, and the tests that
# have to notice.  Rows whose change cannot alter any result do not belong here.

TESTS = "test_casts test_formats"

FORMATS = [
    # one mantissa width, one bias, one largest value, one Inf
    Mutation("dtypes", '"float16", 16, 5, 10, 15', '"float16", 16, 5, 9, 15'),
    Mutation("dtypes", '"bfloat16", 16, 8, 7,', '"bfloat16", 16, 8, 8,'),
    Mutation("dtypes", '"hf32_11", 32, 8, 11,', '"hf32_11", 32, 8, 10,'),
    Mutation("dtypes", '"hf32_10", 32, 8, 10,', '"hf32_10", 32, 8, 11,'),
    Mutation("dtypes", '"float8_e5m2", 8, 5, 2, 15, 57344.0', '"float8_e5m2", 8, 5, 2, 14, 57344.0'),
    Mutation("dtypes", "3, 7, 448.0, has_infinity=False", "3, 7, 480.0, has_infinity=False"),
    Mutation("dtypes", "448.0, has_infinity=False", "448.0, has_infinity=True"),
    Mutation("dtypes", "(0b10, 2, 3)", "(0b10, 2, 2)"),
    Mutation("dtypes", "(body - 23)", "(body - 22)"),
    Mutation("dtypes", "INFINITY_CODE = 0x6F", "INFINITY_CODE = 0x6E"),
]
ROUNDINGS = [
    # one tie rule, one direction, one boundary
    Mutation("format_rounding", "rest + odd > half", "rest >= half"),
    Mutation("format_rounding", "inexact & (rest >= half)", "inexact & (rest > half)"),
    Mutation("format_rounding", "return inexact & negative", "return inexact & ~negative"),
    Mutation("format_rounding", "return inexact & ~negative", "return inexact & negative"),
    Mutation("format_rounding", "return inexact & ~odd", "return inexact & odd"),
    Mutation(
        "format_rounding",
        "maximum(fmt.min_exponent - exponent, 0)",
        "maximum(fmt.min_exponent - exponent, 1)",
    ),
    Mutation("format_rounding", "+ below, 26)", "+ below, 24)"),
    Mutation("format_rounding", "bits[inexact] |= np.uint32(1)", "bits[inexact] |= np.uint32(0)"),
    Mutation("format_rounding", "bits[outwards & inexact] -=", "bits[outwards & inexact] +="),
    Mutation("casts", "rounded += half - np.uint32(1)", "rounded += half"),
    Mutation("casts", "np.asarray(bits + half)", "np.asarray(bits + half - np.uint32(1))"),
    Mutation("casts", '23 - fmt.mantissa_bits, "RNE")', '23 - fmt.mantissa_bits, "RNA")'),
    Mutation("casts", "bits | QUIET, bits)", "bits, bits)"),
    Mutation("hifloat8", "(np.uint32(1) << drop >> np.uint32(1))", "(np.uint32(1) << drop >> 2)"),
    Mutation("dtypes", "size <= 7, size", "size < 7, size"),
    Mutation("hifloat8", "np.uint32), kept == 3)", "np.uint32), kept >= 2)"),
    Mutation("hifloat8", "away & (fraction > 0)", "away & (fraction >= 0)"),
    Mutation("hifloat8", "away = fraction >= threshold", "away = fraction > threshold"),
    Mutation("hifloat8", "& (result != 0)", "& (result == result)"),
]
OVERFLOWS = [
    # one saturation switch
    Mutation("format_rounding", 'if overflow == "saturate":', 'if overflow != "ieee":'),
    Mutation("format_rounding", 'if overflow != "ieee":', 'if overflow == "saturate":'),
    Mutation("format_rounding", "rounded[np.isnan(values)] = 0.0", "rounded[np.isnan(values)] = -0.0"),
    Mutation("format_rounding", "np.full(negative.shape, _last_bit_is_odd(fmt))", "np.ones_like(negative)"),
    Mutation("format_rounding", "where(inwards & finite_input", "where(inwards"),
    Mutation("hifloat8", '_LARGEST if overflow != "ieee"', '_LARGEST if overflow == "ieee"'),
    Mutation("hifloat8", '0.0 if overflow == "saturate"', '0.0 if overflow != "ieee"'),
    Mutation("dtypes", "not instruction_saturates", "instruction_saturates", "test_formats"),
    Mutation("dtypes", "if bits.global_rules else", "if True else", "test_formats"),
    Mutation("dtypes", "fmt.name in FP8 else", "fmt.bits == 8 else", "test_formats"),
    Mutation("dtypes", "if inf_nan and fmt.name in", "if inf_nan or fmt.name in", "test_formats"),
    Mutation("dtypes", 'preset == "c-api-pages" and', "False and", "test_formats"),
]
METRICS = [
    Mutation("metric_chunks", "(size + 1e-7)", "(size + 1e-8)", "test_metrics"),
    Mutation("metric_chunks", "((np.abs(wide) - size)", "((wide - exact)", "test_metrics"),
    Mutation("metric_chunks", "np.maximum(size, scale)", "size", "test_metrics"),
    Mutation("metrics", "mare < 10 *", "mare < 9 *", "test_metrics"),
    Mutation(
        "metric_chunks", "narrow_to_odd(reference), fmt", "reference.astype(np.float32), fmt", "test_metrics"
    ),
    Mutation("metrics", 'specials_match and total("st_misses")', 'total("st_misses")', "test_metrics"),
    Mutation("metric_chunks", "MIXED_ULPS = 32", "MIXED_ULPS = 33", "test_metrics"),
    Mutation("metric_chunks", "MIXED_MISS_SHARE = 0.01", "MIXED_MISS_SHARE = 0.02", "test_metrics"),
    Mutation("metric_chunks", '"float32": Standards(1e-4', '"float32": Standards(1e-3', "test_metrics"),
    Mutation("dtypes", "fmt.min_exponent, math", "fmt.min_exponent + 1, math", "test_metrics"),
]


EVERY = FORMATS + ROUNDINGS + OVERFLOWS + METRICS


@pytest.mark.parametrize("mutation", EVERY, ids=lambda m: f"{m.file}:{m.new}")
def test_the_line_to_change_exists_once(mutation):
    assert source_of(f"numerics/{mutation.file}").count(mutation.old) == 1


@pytest.mark.slow
def test_the_copy_passes_unchanged(tmp_path):
    every = " ".join(sorted({name for mutation in EVERY for name in (mutation.tests or TESTS).split()}))
    done = run_copy(tmp_path, "", "", "", every)
    assert done.returncode == 0, done.stdout[-2000:]


@pytest.mark.slow
@pytest.mark.parametrize("mutation", EVERY, ids=lambda m: f"{m.file}:{m.new}")
def test_a_changed_line_makes_a_test_fail(mutation, tmp_path):
    file, old, new, tests, _ = mutation
    assert_noticed(run_copy(tmp_path, f"numerics/{file}", old, new, tests or TESTS))


def test_a_copy_whose_tests_find_no_end_counts_as_noticed(monkeypatch):
    monkeypatch.setattr(other_processes, "PATIENCE", 1)  # second of a processor
    endless = [sys.executable, "-c", "while True: pass"]
    done = subprocess.run(endless, preexec_fn=other_processes.limit_time, capture_output=True, text=True)
    assert done.returncode == -signal.SIGXCPU
    assert_noticed(done)


def test_a_copy_that_passes_or_cannot_run_is_not_noticed():
    for status in (0, 2):
        with pytest.raises(AssertionError, match="no test noticed"):
            assert_noticed(subprocess.CompletedProcess([], status, "", ""))


# -------------------------------------------------------------------------------------------------------
# Would a wrong bit of an accumulation model be noticed? Change one line in a copy: some test must fail.
# -------------------------------------------------------------------------------------------------------
# Rows are as in `test_mutations`, with an expression that picks the tests that have to notice, so that few
# kernels are compiled. A row for a compiled model is noticed by comparison with its twin, a row for a twin
# by answers derived by hand or by gmpy2.

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
    ("block_kernels", "acc = fma(rows(singles, a + t * ROWS), columns(singles, b + t * LANES), acc)",
     "acc = acc + rows(singles, a + t * ROWS) * columns(singles, b + t * LANES)", HARD + "seq:RNE"),
    ("block_kernels", "rounded(total, model.add", "rounded(total, model.sum", HARD + "block-add"),
    # one rounding of the processor's own
    ("panel_rounding", "x + y if how.cuts else exact_sum(x, y)", "x + y", HARD + "seq:RNA"),
    ("block_kernels", CHAIN, "        pass\n    for j", HARD + "seq-muladd:RZ+split3"),
    ("align_kernels", "        round_toward_zero()", "        pass", HARD + "tree:8:halves:RZ"),
    ("block_kernels", "round_toward_zero()\n    _run(", "pass\n    _run(", HARD + "exact:RZ"),
    ("block_kernels", "round_toward_zero()\n    _run_fused(", "pass\n    _run_fused(", HARD + "seq:RZ"),
    ("block_kernels", "a.shape[1]\n    round_toward_zero()", "a.shape[1]", HARD + "fp16-acc and seq:RZ"),
    ("accumulate", "and not model.ftz_acc", "", HARD + "ftz-acc"),
    ("accumulate", 'modes == {"RZ"}', '"RZ" in modes', HARD + "block-add:8:RZ:RNE"),
    # one tie rule
    ("panel_rounding", "equal(x - below, above - x)", "(above - x < x - below)", HARD + "RNA"),
    # one block size, one ragged end, one pairing
    ("accumulate", '"exact-mmad") else model.block', '"exact-mmad") else 2 * model.block',
     HARD + "block:4"),
    ("align_kernels", "leaf + (pairs if halves else 1)", "leaf + (1 if halves else pairs)", HARD + "tree:16"),
    ("align_kernels", "if t >= length:", "if t > length:", HARD + "tree:16"),
    # one proof each: more is believed exact than is
    ("block_sums", "EXACT_UNITS: Final = 2.0**53", "EXACT_UNITS: Final = 2.0**58", "block"),
    ("block_sums", "spread(units * _ROUNDOFF)", "spread(0.0 * _ROUNDOFF)", "block"),
    ("block_sums", "lost = lost + absolute(second)", "lost = lost * absolute(second)", "block"),
    ("block_sums", "(reach + block.bound) * _GROWTH", "block.bound * _GROWTH", "block"),
    ("block_kernels", "return reach if is_exact(reach, unit) else np.inf, unit", "return reach, unit",
     HARD + "block:16"),
    ("align_kernels", "largest <= _ACCUMULATOR_LIMIT and", "largest <= np.inf and", HARD + "align"),
    ("block_kernels", "is_narrow(a, _LIMIT) and", "is_narrow(a, _LIMIT) or", HARD + "fp16-acc and seq"),
    # one special case, one option
    ("align_kernels", "_MINUS_ZERO)), plain, total)", "_MINUS_ZERO)), total, total)", "zero_sums and align"),
    ("align_kernels", "select(absolute(plain) < spread(_INFINITY), total, plain)", "total", HARD + "align"),
    ("workspace", "exact = exact - low_product(work, a, b, t)", "pass", HARD + "split3"),
    ("workspace", "return x * y + spread(0.0)", "return x * y", "zero_sums and split3"),
    ("packing", "np.int32(-4096)", "np.int32(-8192)", HARD + "split3"),
    ("accumulate", "c[np.isnan(c)] = 0.0", "pass", HARD + "saturate"),
    ("accumulate", "if model.ftz_acc:\n        c[:] =", "if model.ftz_acc:\n        c =", HARD + "ftz-acc"),
]  # fmt: skip
PARTS = [
    ("panel_rounding", "np.float32(65520.0)", "np.float32(65504.0)"),
    ("panels", "number in (1 << 29, 1 << 28, ", "number in (1 << 30, 1 << 28, "),
    ("panels", "select(even, below, half)", "select(even, half, below)"),
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
    ("block_sums", "3 * (stop - first) + 8", "0 * (stop - first)"),
    ("block_sums", "while width <= places:", "while width <= 0:"),
    ("block_sums", "block.bound * _LEAST_SHARE, ", "0.0, "),
    ("block_sums", "        units = 2 * units", "        pass"),
    ("block_sums", "        round_to_nearest()", "        pass"),
    ("block_sums", "_SUBNORMAL, min(unit, block.unit)", "_SUBNORMAL, block.unit"),
    ("block_kernels", "_LARGEST_UNIT: Final = 32.0", "_LARGEST_UNIT: Final = 256.0"),
    ("block_kernels", "if block.unit < SAFE_UNIT or any_lane", "if any_lane"),
    ("align_kernels", "_INTEGERS: Final = 2.0**31", "_INTEGERS: Final = 2.0**32"),
    ("align_kernels", "(4.0 * model.block + 2.0)", "(4.0 * model.block)"),
    ("align_kernels", "_LIMIT: Final = 2.0**30", "_LIMIT: Final = 2.0**50"),
    ("align_kernels", "_ACCUMULATOR_UNIT: Final = 2.0**-88", "_ACCUMULATOR_UNIT: Final = 2.0**-92"),
    ("align_kernels", "_SMALLEST8: Final = 2.0**-600", "_SMALLEST8: Final = 2.0**-290"),
    ("block_kernels", "_LIMIT: Final = 2.0**50", "_LIMIT: Final = 2.0**80"),
    ("accumulate", '"tree": "seq-muladd"', '"tree": "seq"'),
    ("accumulate", "np.abs(x) < np.float32", "np.abs(x) <= np.float32"),
]
ACCUMULATION_EVERY = [
    *(Mutation("accumulation_twins", *change, "test_accumulation_models") for change in TWINS),
    *(
        Mutation(f"compiled/{file}", *change, "test_accumulation_kernels", pick)
        for file, *change, pick in COMPILED
    ),
    *(Mutation(f"compiled/{file}", *change, "test_accumulation_parts") for file, *change in PARTS),
    *(Mutation(f"compiled/{file}", *change, "test_accumulation_panels") for file, *change in MEASURED),
    *(Mutation(f"compiled/{file}", *change, "test_accumulation_edges") for file, *change in EDGES),
    *(Mutation(f"compiled/{file}", *change, "test_accumulation_parts") for file, *change in LENT),
]


@pytest.mark.parametrize("row", ACCUMULATION_EVERY, ids=lambda row: f"{row.file}:{row.new}")
def test_the_line_to_change_exists_once_accumulation(row: Mutation) -> None:
    assert source_of(f"numerics/{row.file}").count(row.old) == 1


@pytest.mark.slow
@pytest.mark.parametrize("row", ACCUMULATION_EVERY, ids=lambda row: f"{row.file}:{row.new}")
def test_a_changed_line_makes_a_test_fail_accumulation(row: Mutation, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTEST_ADDOPTS", f'-k "{row.pick}"')
    # Exit status 5, no test picked, does not count as noticed either.
    assert_noticed(run_copy(tmp_path / "copy", f"numerics/{row.file}", row.old, row.new, row.tests))


# -------------------------------------------------------------------------------------------------------
# Do the tests notice a change of the arithmetic that nobody has chosen? Draw places to change by a seed.
# -------------------------------------------------------------------------------------------------------

DRAWN_EVERY = places.every_mutant()
# The parts for which `mutant_tests.py` names tests.
NAMED = "ops/lowering ops/schedules ops/tiling instructions profile program rules studies timing"
JUDGED = DRAWN_EVERY + places.every_mutant(NAMED.split())


def test_a_seed_draws_the_same_mutants_again_and_another_one_others():
    first = [mutant.name for mutant in places.drawn(1)[:50]]
    assert first == [mutant.name for mutant in places.drawn(1)[:50]]
    assert first != [mutant.name for mutant in places.drawn(2)[:50]]


def test_every_file_that_computes_has_mutants():
    paths = [path for path in (places.PACKAGE / "numerics").rglob("*.py") if path.name != "__init__.py"]
    files = {path.relative_to(places.PACKAGE).as_posix().removesuffix(".py") for path in paths}
    # One holds texts alone.
    assert {mutant.file for mutant in DRAWN_EVERY} == files - {"numerics/metric_columns"}


def test_every_file_of_a_part_that_is_judged_has_tests_that_exist():
    for file in {mutant.file for mutant in JUDGED}:
        for name in (word for run in mutants.tests_of(file) for word in run if word.startswith("tests/")):
            assert (places.ROOT / name).exists(), (file, name)


def test_equal_lines_of_a_file_have_mutants_of_different_names(tmp_path, monkeypatch):
    monkeypatch.setattr(places, "PACKAGE", tmp_path)
    file = tmp_path / "module.py"
    file.write_text("x = 3 < 4\n\nx = 3 < 4\n")
    found = [mutant.name for mutant in places.Places(file).found() if mutant.old == "<"]
    assert found == ["module: x = 3 < 4 [6: < -> <=]", "module: x = 3 < 4 #2 [6: < -> <=]"]


def test_what_is_asserted_is_no_place(tmp_path, monkeypatch):
    monkeypatch.setattr(places, "PACKAGE", tmp_path)
    file = tmp_path / "module.py"
    file.write_text("assert 1 < 2\nx = zip(a, b, strict=True)\ny = zip(a, b, strict=False)\n")
    assert [mutant.name for mutant in places.Places(file).found()] == [
        "module: y = zip(a, b, strict=False) [21: False -> True]"
    ]


def test_names_tell_mutants_apart():
    names = [mutant.name for mutant in JUDGED]
    assert len(names) == len(set(names))


def test_a_mutant_is_one_change_that_can_be_read_as_python():
    for mutant in DRAWN_EVERY[::50]:
        text = (places.PACKAGE / f"{mutant.file}.py").read_text()
        assert text[mutant.start : mutant.stop] == mutant.old != mutant.new
        begin = text.rindex(mutant.line, 0, mutant.start + len(mutant.line)) + mutant.column
        assert begin == mutant.start
        changed = text[: mutant.start] + mutant.new + text[mutant.stop :]
        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(text))


def test_texts_types_and_errors_are_left_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(places, "PACKAGE", tmp_path)
    file = tmp_path / "module.py"
    file.write_text(
        '"""A text: 1 + 2."""\n'
        "def function(x: Literal[1]) -> Literal[2]:\n"
        '    """Return 1 + 2."""\n'
        "    if x < 3:\n"
        '        raise ValueError(f"{x + 1} is below 3")\n'
        "    return x\n"
    )
    found = {(mutant.old, mutant.new) for mutant in places.Places(file).found()}
    assert found == {("<", "<="), ("3", "2"), ("3", "4"), ("x < 3", "not (x < 3)")}


def test_what_is_listed_as_equivalent_exists_once_and_has_a_reason():
    names = [mutant.name for mutant in JUDGED]
    for name, reason in mutants.equivalents().items():
        assert names.count(name) == 1, name
        assert len(reason) > 20


def test_tests_that_fail_without_any_change_judge_no_mutant(monkeypatch):
    asked = []
    monkeypatch.setattr(mutants, "fate", lambda mutant, *_: asked.append(mutant) or "killed")
    with pytest.raises(SystemExit, match="tell nothing of a mutant"):
        mutants.run(seed=1, count=1, workers=1)
    assert asked == [None]


def test_tests_without_a_change_run_once_for_each_set_and_limit_its_mutants(monkeypatch):
    asked, clock = [], iter([0.0, 20.0, 20.0, 21.0])
    monkeypatch.setattr(mutants, "fate", lambda *told: asked.append(told[1:]) or "survived")
    monkeypatch.setattr(mutants, "processor_seconds", lambda: next(clock))
    baselines = mutants.Baselines("kept")
    first, second = places.drawn(1, ["program/flags"])[:2]
    [other] = places.drawn(1, ["timing"])[:1]
    # Five times 20 seconds, and never below a minute; machine code of `timing` is not taken over.
    runs = mutants.tests_of("program/flags")
    assert baselines.asked(first) == baselines.asked(second) == (runs, "kept", 100)
    assert baselines.asked(other) == (mutants.tests_of(other.file), None, 60)
    assert asked == [(runs, "kept"), (mutants.tests_of(other.file), None)]


def test_what_cannot_be_imported_is_no_killed_mutant(tmp_path):
    folder = tmp_path / "ascendsim" / "part"
    folder.mkdir(parents=True)
    texts = {"__init__": "", "sound": "1 + 0\n", "broken": "1 / 0\n", "endless": "while True:\n    pass\n"}
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text)
    (tmp_path / "ascendsim" / "__init__.py").touch()
    own = {**os.environ, "PYTHONPATH": str(tmp_path)}
    found = [places.Mutant(f"part/{name}", 0, 0, "", "", "", 0) for name in texts]
    assert [mutants.imported(mutant, tmp_path, own, 2) for mutant in found] == [True, True, False, True]


def test_a_mutant_that_computes_for_ever_is_ended():
    endless = mutants.limited([sys.executable, "-c", "while True: pass"], seconds=1)
    assert subprocess.run(endless, capture_output=True).returncode < 0


@pytest.mark.slow
def test_of_120_mutants_95_in_a_hundred_are_killed():
    # About half a minute of processor time each: most of the compiled models are compiled anew.
    killed, survivors = mutants.run(seed=20261124, count=120, workers=os.cpu_count() or 1)
    assert killed >= mutants.LEAST_KILLED * 120, [mutant.name for mutant in survivors]
