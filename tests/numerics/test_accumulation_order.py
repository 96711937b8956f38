"""In which order does a reduction add, and where does it round?"""

import re
from itertools import combinations

import numpy as np
import pytest

from ascendsim import convolution_backward, matmul
from ascendsim.errors import ConfigError
from ascendsim.numerics.accumulation import (
    AccumulationModel,
    IntegerSum,
    MathSettings,
    products_of,
    rounds_once,
)
from ascendsim.numerics.accumulation_twins import accumulate_twin
from ascendsim.ops.plan import Tiling
from ascendsim.precision import as_dot, as_text, reduction_tree
from ascendsim.program.places import CoreMemory, Slot
from ascendsim.studies.identify.judge import ReductionCut, answers

# --- Is the tree of a reduction the order in which its model adds? -------------------------------------


@pytest.mark.parametrize(
    ("model", "products", "mmad", "text"),
    [
        ("seq:RNE", 3, None, "(((c 0) 1) 2)"),
        ("seq-muladd:RZ", 2, None, "((c 0) 1)"),
        ("block:2:RNE", 5, None, "(((c 0 1) 2 3) 4)"),
        ("block:4:RNE", 6, 3, "((c 0 1 2) 3 4 5)"),
        ("block-add:2:RNE:RNE", 3, None, "((c (0 1)) 2)"),
        ("align:4:F24:RZ:acc", 4, None, "(c 0 1 2 3)"),
        ("exact:RNE", 4, 2, "(c 0 1 2 3)"),
        ("exact-mmad:RNE", 4, 2, "((c 0 1) 2 3)"),
        ("tree:4:adjacent:RNE", 4, None, "(c ((0 1) (2 3)))"),
        ("tree:4:halves:RNE", 4, None, "(c ((0 2) (1 3)))"),
        ("tree:4:halves:RNE", 7, None, "((c ((0 2) (1 3))) ((4 6) 5))"),
        ("tree:4:adjacent:RNE", 3, None, "(c ((0 1) 2))"),
    ],
)
def test_a_tree_by_hand(model, products, mmad, text):
    assert as_text(reduction_tree(model, products, mmad)) == text


def leaves(tree):
    return {tree} if not isinstance(tree, tuple) else set().union(*map(leaves, tree))


def below_both(tree, one, other):
    """Return the leaves of the smallest subtree that holds two of them."""
    for child in tree if isinstance(tree, tuple) else ():
        if {one, other} <= leaves(child):
            return below_both(child, one, other)
    return leaves(tree)


@pytest.mark.parametrize("model", ["seq:RNE", "seq-muladd:RNE", "tree:8:adjacent:RNE", "tree:4:halves:RNE"])
@pytest.mark.parametrize("mmad", [8, 16])
def test_masks_reveal_the_tree_from_the_sums_alone(model, mmad):
    # As FPRev does: with M at one place and -M at another, ones that meet either before the two meet are
    # lost, so that the sum counts the ones outside of the smallest subtree over both.
    count, big = 16, 2.0**60
    tree = reduction_tree(model, count, mmad)
    pairs = list(combinations(range(count), 2))
    a = np.ones((len(pairs), count), np.float32)
    for row, (one, other) in enumerate(pairs):
        a[row, one], a[row, other] = big, -big
    sums = answers(AccumulationModel.parse(model), a, np.ones((count, 1), np.float32), ReductionCut(mmad, 1))
    outside = [count - len(below_both(tree, *pair) - {"c"}) for pair in pairs]
    assert sums[:, 0].tolist() == outside


def test_the_picture_has_a_node_for_each_sum_and_leaf():
    tree = reduction_tree("block:2:RNE", 4)
    text = as_dot(tree, "block 2")
    # c, four products, and two sums.
    assert text.count('[label="+"]') == 2
    assert sorted(re.findall(r'label="([c0-9])"', text)) == ["0", "1", "2", "3", "c"]
    # Each but the root hangs below one.
    assert text.count("->") == 6
    assert text.startswith('digraph "block 2" {\n')
    names = re.findall(r"^  (n\d+) \[", text, re.MULTILINE)
    assert len(names) == len(set(names)) == 7


@pytest.mark.parametrize(
    ("model", "products", "mmad"), [("block:cube_k:RNE", 4, None), ("seq:RNE", 0, None), ("seq:RNE", 4, 0)]
)
def test_what_has_no_tree_is_refused(model, products, mmad):
    with pytest.raises(ConfigError, match="reduction tree: model"):
        reduction_tree(model, products, mmad)


# --- Does `exact` round once for a whole reduction, and `exact-mmad` once for each cube product? -------

EXACT, EACH = AccumulationModel.parse("exact:RNE"), AccumulationModel.parse("exact-mmad:RNE")
ULP = 2.0**-23


def product(a, b, model, base_k, **options):
    tiling = Tiling(16, 16, base_k, used_cores=1)
    return matmul(a, b, accumulation=str(model), out_dtype="float32", tiling=tiling, **options).output


def row_and_column(values):
    """Return operands whose products are the values, one row and one column."""
    row = np.zeros((1, len(values)), np.float32)
    row[0] = values
    return row, np.ones((len(values), 1), np.float32)


def test_a_reduction_rounds_once_however_many_mmads_it_takes():
    # Three Mmads of 8: 2^24, then 1, then -2^24 + 2^-10. After each Mmad 2^24 + 1 is a tie and goes to 2^24,
    # so that 2^-10 is left; in one sum 1 + 2^-10 is left.
    values = np.zeros(24)
    values[[0, 8, 16, 17]] = 2.0**24, 1, -(2.0**24), 2.0**-10
    a, b = row_and_column(values)
    assert product(a, b, EXACT, 8).item() == 1 + 2.0**-10
    assert product(a, b, EACH, 8).item() == 2.0**-10
    assert product(a, b, EACH, 24).item() == 1 + 2.0**-10


@pytest.mark.parametrize("product_name", ["910B", "310P"])
def test_every_plan_gives_the_same_bits(product_name):
    # Columns leave the L0C of 310P through UB in pieces, each of which reads the accumulator.
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((20, 100), (100, 70)))
    zeros = np.zeros((20, 70), np.float32)
    want = accumulate_twin(EXACT, a[:3], b[:, :5], zeros[:3, :5])
    found = [product(a, b, EXACT, base_k, product=product_name) for base_k in (16, 48, 112)]
    for made in found:
        assert np.array_equal(made[:3, :5], want)
        assert np.array_equal(made, found[0])
    each = [product(a, b, EACH, base_k, product=product_name) for base_k in (16, 48)]
    assert not np.array_equal(each[0], each[1])


def test_kernel_depths_and_images_are_one_reduction():
    # grad_weight of one channel over 3 images of one pixel: 2^24 + 1 - 2^24, an Mmad for each image.
    x = np.array([2.0**12, 1, -(2.0**12)], np.float32).reshape(3, 1, 1, 1)
    grad = np.array([2.0**12, 1, 2.0**12], np.float32).reshape(3, 1, 1, 1)
    weight = np.ones((1, 1, 1, 1), np.float32)
    mask = (False, True, False)
    answers = {}
    for model in (EXACT, EACH):
        tiling = {"grad_weight": Tiling(16, 16, 16)}
        options = {"accumulation": model, "tiling": tiling}
        result = convolution_backward(grad, x, weight, None, 1, 0, 1, False, 0, 1, mask, 0, **options)
        answers[model] = result.grad_weight.item()
    assert answers == {EXACT: 1.0, EACH: 0.0}


def test_slices_are_joined_for_exact_alone():
    rng = np.random.default_rng(1)
    slices = [(rng.standard_normal((2, k)), rng.standard_normal((k, 3))) for k in (1, 4, 2)]
    ((a, b),) = products_of(EXACT, slices)
    assert np.array_equal(a, np.concatenate([left for left, _ in slices], axis=1))
    assert np.array_equal(b, np.concatenate([right for _, right in slices], axis=0))
    for model in (EACH, AccumulationModel("seq"), IntegerSum()):
        assert products_of(model, slices) is slices
        assert not rounds_once(model)


def test_an_accumulator_that_is_read_early_goes_on_from_its_exact_sum():
    slot = Slot("L0C", 1024, "c", 0)
    memory = CoreMemory({}, MathSettings(EXACT), {})
    one = np.ones((1, 1), np.float32)

    def read_after(value):
        memory.add_product(slot, one * np.float32(value), one)
        return memory.tile(slot).item()

    memory.new_tile(slot, (1, 1)).fill(0)
    # 2^24 + 1 reads as 2^24, its tie; with another 1 it is 2^24 + 2, which no rounded 2^24 would reach.
    assert [read_after(2.0**24), read_after(1), read_after(1)] == [2.0**24, 2.0**24, 2.0**24 + 2]
    # A new tile in the slot begins anew.
    memory.new_tile(slot, (1, 1)).fill(0)
    assert memory.tile(slot).item() == 0.0
    assert read_after(1 + ULP) == 1 + ULP


def test_operands_may_be_overwritten_once_their_mmad_has_run():
    slot = Slot("L0C", 1024, "c", 0)
    memory = CoreMemory({}, MathSettings(EXACT), {})
    memory.new_tile(slot, (1, 1)).fill(0)
    a, b = np.full((1, 1), 3, np.float32), np.ones((1, 1), np.float32)
    memory.add_product(slot, a, b)
    a[0], b[0] = np.nan, np.nan
    assert memory.tile(slot).item() == 3.0
