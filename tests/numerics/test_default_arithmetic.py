"""Do the processor's modes, as a caller has set them, change any bit?  Are they given back?"""

import platform
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import llvmlite.binding as llvm
import numpy as np
import pytest

from ascendsim import convolution_backward
from ascendsim.errors import ShapeError, UnsupportedError
from ascendsim.native import default_arithmetic as guard
from ascendsim.native import default_arithmetic as words
from ascendsim.numerics import casts, format_rounding
from ascendsim.numerics import format_rounding as tables
from ascendsim.numerics import hifloat8 as hifloat8_rounding
from ascendsim.numerics.accumulation import AccumulationModel
from ascendsim.numerics.accumulation_twins import accumulate_twin
from ascendsim.numerics.casts import cast_twin
from ascendsim.numerics.compiled.accumulate import accumulate
from ascendsim.numerics.dtypes import DTYPES
from ascendsim.numerics.metrics import error_metrics
from tests.helpers.format_samples import CLASSES, MODES, mode, modes_set, same_bits, tile
from tests.numerics.test_accumulation_kernels import MODELS

pytestmark = pytest.mark.skipif(not MODES, reason="this processor's modes are not known here")
ONE, LARGEST = np.float32(1), np.finfo(np.float32).max
# What every mode treats in another way: subnormals, ties, values near them and overflow.
HARD = ("subnormal", "ties", "hairs", "overflow", "cancellation", "normal")


def values() -> np.ndarray:
    """Return float32 values of all sizes: every 99,991st pattern, so every exponent, and special values."""
    patterns = np.arange(0, 2**32, 99991, dtype=np.uint64).astype(np.uint32).view(np.float32)
    return np.concatenate([patterns, np.float32([0.0, -0.0, np.inf, -np.inf, np.nan, 2.0**-149])])


def forget_tables() -> None:
    # Tables that are made at a first use under a wrong mode would stay wrong.
    for table in (format_rounding._binades, hifloat8_rounding._widths, tables.code_table):
        table.cache_clear()


@pytest.mark.parametrize(
    ("name", "call", "default"),
    [
        # 1 + 2^-24 is a tie, which goes to the even 1; upward and downward it goes there on one side each.
        ("up", lambda x: x + np.float32(2.0**-24), ONE),
        ("down", lambda x: -x - np.float32(2.0**-24), -ONE),
        ("toward zero", lambda x: x + np.float32(1.5 * 2.0**-24), ONE + np.float32(2.0**-23)),
        ("ftz and daz", lambda x: x * np.float32(2.0**-140), np.float32(2.0**-140)),
    ],
)
def test_a_mode_that_is_set_here_does_change_numpy(name, call, default):
    # Otherwise the tests below could not fail.
    operand = np.array([1.0], np.float32)
    assert call(operand)[0] == default
    with mode(name):
        changed = call(operand).view(np.uint32)[0]
    assert changed != default.view(np.uint32)


@pytest.mark.parametrize("name", MODES)
@pytest.mark.parametrize("text", MODELS)
def test_no_mode_changes_a_bit_of_a_model(text, name):
    model = AccumulationModel.parse(text)
    for kind in HARD:
        a, b, c = tile(kind, "fp32", 5, 19, 9)
        expected, found = c.copy(), c.copy()
        accumulate(model, a, b, expected)
        with mode(name):
            accumulate(model, a, b, found)
        assert same_bits(found, expected)


@pytest.mark.parametrize("name", MODES)
@pytest.mark.parametrize("fmt", DTYPES, ids=str)
def test_no_mode_changes_a_bit_of_a_cast(fmt, name):
    x = values()
    for rounding in hifloat8_rounding.HIFLOAT8_ROUNDINGS if fmt.tapered else format_rounding.ROUNDINGS:
        for overflow in format_rounding.OVERFLOWS:
            forget_tables()
            expected = casts.round_to(x, fmt, rounding, overflow)
            forget_tables()
            with mode(name):
                found = casts.round_to(x, fmt, rounding, overflow)
            assert same_bits(found, expected)


@pytest.mark.parametrize("name", MODES)
@pytest.mark.parametrize("fmt", DTYPES, ids=str)
def test_no_mode_changes_what_is_stored_or_on_the_grid(fmt, name):
    on_grid = casts.round_to(values(), fmt)
    with mode(name):
        there = casts.is_on_grid(on_grid, fmt), casts.is_on_grid(values(), fmt)
        back = casts.decode(casts.encode(on_grid, fmt), fmt)
    assert there == (True, fmt.name == "float32")
    assert same_bits(back, on_grid)


@pytest.mark.parametrize("name", MODES)
def test_no_mode_changes_hf32_a_hybrid_rounding_or_a_narrowing(name):
    x = values()
    halves = casts.round_to(x, "float16")
    calls = [
        lambda bits=bits, ties=ties: casts.hf32(x, bits, ties)
        for bits in (10, 11)
        for ties in casts.HF32_TIES
    ]
    calls += [
        lambda variant=variant: hifloat8_rounding.round_hybrid(halves, variant, "float16")
        for variant in hifloat8_rounding.HYBRIDS
    ]
    with np.errstate(over="ignore", invalid="ignore"):
        wide = x.astype(np.float64) * (1 + 2.0**-40)
    calls.append(lambda: format_rounding.narrow_to_odd(wide))
    # Casts call it under a guard of their own; here it has no other than its own.
    calls.append(lambda: format_rounding.round_fields(x, DTYPES[1], "RINT", "ieee"))
    for call in calls:
        expected = call()
        with mode(name):
            found = call()
        assert same_bits(found, expected)


@pytest.mark.parametrize("name", MODES)
def test_no_mode_changes_the_definitions(name):
    model = AccumulationModel.parse("block:4:RNE")
    operands = tile("subnormal", "fp32", 2, 6, 3)
    smallest = [2.0**-149, 3 * 2.0**-149, 1 + 2.0**-9, 1 + 3 * 2.0**-9]
    twin, cast = accumulate_twin(model, *operands), [cast_twin(x, DTYPES[1]) for x in smallest]
    with mode(name):
        assert same_bits(accumulate_twin(model, *operands), twin)
        assert [cast_twin(x, DTYPES[1]) for x in smallest] == cast


@pytest.mark.parametrize("name", MODES)
def test_no_mode_changes_a_measure_of_errors(name):
    x = np.float32([2.0**-149, 3 * 2.0**-140, 1.0, 1 + 2.0**-23, 3.0])
    reference = x.astype(np.float64) * (1 + 2.0**-25)
    expected = error_metrics(x, reference, "float32")
    with mode(name):
        assert error_metrics(x, reference, "float32") == expected


def gradients(operands: list[np.ndarray]) -> list[np.ndarray]:
    """Return the gradients of a small convolution."""
    result = convolution_backward(*operands, [16], 1, 1, 1, False, 0, 1, [True] * 3, 0, product="910B")
    return [result.grad_input, result.grad_weight, result.grad_bias]


@pytest.mark.parametrize("name", MODES)
def test_no_mode_changes_the_gradients_of_a_call(name):
    # Some products are subnormal; the bias gradient is added by a vector core.
    rng = np.random.default_rng(3)
    shapes = (1, 16, 6, 6), (1, 16, 6, 6), (16, 16, 3, 3)
    operands = [(rng.standard_normal(s) * 2.0 ** rng.integers(-75, 1, s)).astype(np.float32) for s in shapes]
    expected = gradients(operands)
    with mode(name):
        found = gradients(operands)
    for ours, theirs in zip(found, expected, strict=True):
        assert same_bits(ours, theirs)


@pytest.mark.parametrize("name", MODES)
def test_threads_that_inherit_a_mode_compute_the_same_and_keep_it(name):
    model = AccumulationModel.parse("tree:8:halves:RZ")
    a, b, c = tile("subnormal", "fp32", 5, 19, 9)
    expected = c.copy()
    accumulate(model, a, b, expected)

    def run(_index):
        before, found = modes_set(), c.copy()
        accumulate(model, a, b, found)
        return found, before, modes_set()

    with mode(name), ThreadPoolExecutor(3) as pool:  # its threads are started here, and so inherit
        results = list(pool.map(run, range(9)))
        here = modes_set()
    for found, before, after in results:
        assert same_bits(found, expected)
        assert before == after == here


@pytest.mark.parametrize("name", MODES)
def test_a_mode_is_given_back_after_a_call_and_after_an_error(name):
    a, b, c = tile("normal", "fp32", 2, 3, 4)
    with mode(name):
        set_here = modes_set()
        accumulate(AccumulationModel.parse("block:4:RZ"), a, b, c)
        assert modes_set() == set_here
        with pytest.raises(UnsupportedError):
            casts.round_to(c.astype(np.float64), "bfloat16")
        with pytest.raises(ShapeError):
            accumulate_twin(AccumulationModel.parse("seq:RNE"), a, b, c[:1])
        assert modes_set() == set_here


@pytest.mark.parametrize("text", [text for text in MODELS if "RZ" in text])
def test_a_model_that_cuts_leaves_the_default_behind(text):
    before = modes_set()
    for kind in CLASSES:  # the ways through a kernel that the data choose
        a, b, c = tile(kind, "fp32", 5, 19, 9)
        accumulate(AccumulationModel.parse(text), a, b, c)
        assert modes_set() == before


def test_a_processor_that_is_not_known_computes_under_the_default_and_refuses_else(monkeypatch):
    under_default = guard.default_arithmetic(lambda: 5)
    for name in [None, *MODES]:
        guard._access.cache_clear()
        with mode(name) if name else nullcontext(), monkeypatch.context() as changed:
            changed.setattr(platform, "machine", lambda: "a new one")
            if name is None:
                assert under_default() == 5
            else:
                with pytest.raises(UnsupportedError, match="a new one"):
                    under_default()
    guard._access.cache_clear()


def test_another_processor_gets_its_own_instructions():
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    try:
        target = llvm.Target.from_triple("aarch64-linux-gnu")
    except RuntimeError:
        pytest.skip("this code generator is not built for that processor")
    module = llvm.parse_assembly(words.accessors(words.CONTROL_WORDS["aarch64"]))
    text = target.create_target_machine().emit_assembly(module).lower()
    assert re.search(r"mrs\s+x\d+, fpcr", text)
    assert re.search(r"msr\s+fpcr, x0", text)
