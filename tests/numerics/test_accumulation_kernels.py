"""Do the compiled accumulation models give the bits of their definitions?

Every comparison is with the model's twin, which is exact by construction, bit for bit; all NaN are equal.
"""

from concurrent.futures import ThreadPoolExecutor

import gmpy2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ascendsim.errors import ConfigError, ShapeError, UnsupportedError
from ascendsim.numerics.accumulation import AccumulationModel
from ascendsim.numerics.accumulation_twins import accumulate_twin
from ascendsim.numerics.compiled.accumulate import accumulate
from tests.helpers.format_samples import CLASSES, GRIDS, PROBES, same_bits, tile

# Every kind in every rounding, both pairings, with and without the accumulator, and every option.
MODELS = [
    "exact:RNE",
    "exact:RZ",
    "seq:RNE",
    "seq:RNA",
    "seq:RZ",
    "seq-muladd:RNE",
    "seq-muladd:RZ",
    "seq-muladd:RZ+split3",
    "block:16:RNE",
    "block:4:RNE",
    "block:8:RNA",
    "block:4:RZ",
    "block-add:4:RNE:RNE",
    "block-add:8:RZ:RNE",
    "block-add:8:RZ:RZ",
    "block-add:16:RNE:RNA",
    "tree:16:adjacent:RNE",
    "tree:16:halves:RNE",
    "tree:8:halves:RZ",
    "tree:4:adjacent:RZ+split3",
    "tree:4:adjacent:RNA",
    "align:16:F24:RZ:acc",
    "align:4:F25:RZ:acc",
    "align:16:F23:RZ",
    "align:8:F13:RNE:acc",
    "align:4:F32:RNA",
    "align:2:F1:RZ:acc",
    "fp16-acc(exact:RNE)",
    "fp16-acc(seq:RNE)",
    "fp16-acc(seq:RNA)",
    "fp16-acc(seq:RZ)",
    "fp16-acc(seq-muladd:RZ)",
    "fp16-acc(seq-muladd:RNE)",
    "fp16-acc(block:16:RNE)",
    "fp16-acc(block:4:RZ)",
    "fp16-acc(block:8:RNA)",
    "fp16-acc(block-add:8:RNE:RZ)",
    "fp16-acc(tree:8:halves:RNE)",
    "fp16-acc(align:16:F24:RZ:acc)",
    "seq:RNE+split3",
    "block:4:RNE+split3",
    "block:4:RZ+split3+saturate",
    "tree:4:adjacent:RNE+split3",
    "align:4:F24:RZ:acc+split3",
    "seq:RNE+ftz-in+ftz-acc",
    "block:4:RNE+ftz-acc",
    "tree:4:halves:RZ+ftz-acc",
    "block-add:4:RZ:RNE+ftz-acc",
    "tree:8:adjacent:RNE+ftz-acc",
    "align:8:F24:RNE:acc+ftz-acc",
    "fp16-acc(block:4:RNE)+ftz-in:-14+ftz-acc+saturate",
]


def check(text: str, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    """Assert that the compiled model and its twin agree on a tile."""
    model = AccumulationModel.parse(text)
    found = c.copy()
    with np.errstate(all="ignore"):
        accumulate(model, a, b, found)
    expected = accumulate_twin(model, a, b, c)
    assert same_bits(found, expected)


@pytest.mark.parametrize("text", MODELS)
@pytest.mark.parametrize("kind", CLASSES)
def test_every_model_agrees_with_its_definition_on_hard_data(text: str, kind: str) -> None:
    # 19 products: blocks of 4, 8 and 16 all end ragged. 5 rows and 9 columns: no panel is whole.
    for grid in GRIDS:
        check(text, *tile(kind, grid, 5, 19, 9))


@pytest.mark.parametrize("size", [1, 4, 8, 16, 32])
@pytest.mark.parametrize(
    "form", ["block:{}:RNE", "block-add:{}:RNE:RNE", "tree:{}:halves:RNE", "align:{}:F24:RZ:acc"]
)
def test_every_block_size_starts_at_zero_and_may_end_short(form: str, size: int) -> None:
    for grid in GRIDS:
        for k in (1, size, size + 1, 2 * size + 3):
            check(form.format(size), *tile("wide", grid, 2, k, 3, seed=size))


@pytest.mark.parametrize(
    "text", ["seq:RNE", "block:4:RNE", "tree:4:adjacent:RNE", "align:4:F24:RZ:acc", "seq:RZ"]
)
def test_rows_and_columns_need_not_fill_a_panel(text: str) -> None:
    for m, n in ((1, 1), (3, 31), (4, 32), (5, 33), (8, 64), (9, 65)):
        check(text, *tile("normal", "fp16", m, 6, n))


@pytest.mark.parametrize("kind", ["normal", "sparse", "cancellation", "bits"])
@pytest.mark.parametrize(
    ("text", "grid"),
    [
        ("seq:RNE", "fp32"),
        ("block:16:RNE", "fp16"),
        ("block:16:RNE", "bf16"),
        ("block:8:RNE", "hf32_11"),
        ("block:32:RNE", "e4m3"),
        ("block:4:RNE", "fp32"),
        ("tree:16:adjacent:RNE", "fp16"),
        ("align:16:F24:RZ:acc", "fp16"),
        ("fp16-acc(seq:RNE)", "fp16"),
        ("fp16-acc(block:16:RNE)", "fp16"),
    ],
)
def test_tiles_of_several_panels_agree(text: str, grid: str, kind: str) -> None:
    # Whole panels beside ragged ones, and several blocks: what is proven of c must stay true for all of them.
    check(text, *tile(kind, grid, 9, 50, 68))


@pytest.mark.parametrize("text", MODELS)
def test_zero_sums_have_the_right_sign(text: str) -> None:
    # One or two products only: then all terms are often -0, the one case whose sum is -0.
    for k in (1, 2):
        check(text, *tile("zeros", "fp32", 5, k, 37))


@pytest.mark.parametrize("name", PROBES)
@pytest.mark.parametrize("text", MODELS)
def test_probe_vectors_agree(text: str, name: str) -> None:
    pairs = np.array(PROBES[name].products, np.float32)
    check(text, pairs[:, :1].T.copy(), pairs[:, 1:].copy(), np.full((1, 1), PROBES[name].c, np.float32))


FLOATS = st.floats(width=32) | st.sampled_from([2.0**e for e in range(-140, 120, 9)])


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(st.sampled_from(MODELS), st.lists(st.tuples(FLOATS, FLOATS), min_size=1, max_size=20), FLOATS)
def test_any_floats_agree(text: str, pairs: list[tuple[float, float]], c: float) -> None:
    both = np.array(pairs, np.float32)
    check(text, both[:, :1].T.copy(), both[:, 1:].copy(), np.full((1, 1), c, np.float32))


@pytest.mark.parametrize(("mode", "how"), [("RNE", gmpy2.RoundToNearest), ("RZ", gmpy2.RoundToZero)])
@pytest.mark.parametrize("kind", ["wide", "subnormal", "ties", "overflow", "cancellation"])
def test_blocks_agree_with_an_independent_library(kind: str, mode: str, how: int) -> None:
    # gmpy2.fsum rounds an exact sum once, in binary32 with subnormals; products are exact in 300 bits.
    a, b, c = tile(kind, "fp32", 3, 10, 4, seed=11)
    found = c.copy()
    accumulate(AccumulationModel.parse(f"block:4:{mode}"), a, b, found)
    context = gmpy2.context(precision=24, emin=-148, emax=128, subnormalize=True, round=how)
    for i, j in np.ndindex(c.shape):
        total = gmpy2.mpfr(float(c[i, j]))
        for first in range(0, 10, 4):
            with gmpy2.context(precision=300):
                pairs = zip(a[i, first : first + 4].tolist(), b[first : first + 4, j].tolist(), strict=True)
                terms = [gmpy2.mpfr(x) * gmpy2.mpfr(y) for x, y in pairs]
            with gmpy2.context(context):
                total = gmpy2.fsum([total, *terms])
        assert float(total) == found[i, j]


def test_two_calls_continue_where_the_first_stopped() -> None:
    # Blocks begin anew with each call: 6 products in blocks of 4 are 4 + 2, in two calls of 3 they are 3 + 3.
    a, b, c = tile("normal", "fp32", 4, 6, 5)
    model = AccumulationModel.parse("block:4:RNE")
    found = c.copy()
    accumulate(model, np.ascontiguousarray(a[:, :3]), b[:3], found)
    accumulate(model, np.ascontiguousarray(a[:, 3:]), b[3:], found)
    halfway = accumulate_twin(model, a[:, :3], b[:3], c)
    assert same_bits(found, accumulate_twin(model, a[:, 3:], b[3:], halfway))


def test_operands_may_be_views_and_read_only() -> None:
    a, b, c = tile("normal", "fp16", 6, 8, 10)
    expected = c.copy()
    model = AccumulationModel.parse("block:4:RNE")
    accumulate(model, a, b, expected)
    frozen = np.asfortranarray(a)
    frozen.flags.writeable = False
    found = c.copy()
    accumulate(model, frozen, np.repeat(b, 2, axis=1)[:, ::2], found)
    assert same_bits(found, expected)


def test_no_products_leave_the_accumulators_alone() -> None:
    c = np.array([[1.0, np.nan, 2.0**-140]], np.float32)
    found = c.copy()
    empty = np.zeros((1, 0), np.float32), np.zeros((0, 3), np.float32)
    accumulate(AccumulationModel.parse("seq:RNE+ftz-acc+saturate"), *empty, found)
    assert same_bits(found, c)


def test_no_accumulators_are_no_work() -> None:
    nothing = np.zeros((0, 4), np.float32)
    accumulate(
        AccumulationModel.parse("seq:RNE"),
        np.zeros((0, 2), np.float32),
        nothing[:0].reshape(2, 0),
        nothing[:, :0],
    )


def test_threads_do_not_disturb_each_other() -> None:
    # Kernels release the interpreter lock; all their memory belongs to the call.
    a, b, c = tile("cancellation", "fp32", 64, 64, 64)
    model = AccumulationModel.parse("block:4:RNE")

    def once(_index: int) -> bytes:
        found = c.copy()
        accumulate(model, a, b, found)
        return found.tobytes()

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(once, range(16)))) == 1


def test_wrong_shapes_types_and_models_say_what_is_wrong() -> None:
    model = AccumulationModel.parse("seq:RNE")
    a, b, c = tile("normal", "fp16", 2, 3, 4)
    with pytest.raises(ShapeError, match=r"a \(2, 3\), b \(3, 4\), c \(2, 3\) do not fit"):
        accumulate(model, a, b, c[:, :3])
    with pytest.raises(UnsupportedError, match="carriers are float32"):
        accumulate(model, a.astype(np.float64), b, c)
    with pytest.raises(UnsupportedError, match="changed in place"):
        accumulate(model, a, b, np.asfortranarray(c))
    with pytest.raises(ConfigError, match="resolve cube_k"):
        accumulate(AccumulationModel.parse("block:cube_k:RNE"), a, b, c)


def test_a_kind_that_nothing_computes_is_no_other_kind() -> None:
    model = AccumulationModel.parse("block:4:RNE")
    object.__setattr__(model, "kind", "new")
    a, b, c = tile("normal", "fp16", 2, 3, 4)
    for compute in (accumulate, accumulate_twin):
        with pytest.raises(AssertionError, match="does not know the accumulation model kind 'new'"):
            compute(model, a, b, c)


@pytest.mark.slow
@pytest.mark.parametrize("text", MODELS)
def test_more_random_tiles_agree(text: str) -> None:
    for seed in range(1, 6):
        for kind in CLASSES:
            for grid in GRIDS:
                check(text, *tile(kind, grid, 5, 37, 34, seed=seed))
