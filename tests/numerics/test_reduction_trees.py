"""Is the tree of a reduction the order in which its model adds?"""

import re
from itertools import combinations

import numpy as np
import pytest

from ascendsim.errors import ConfigError
from ascendsim.numerics.accumulation.models import AccumulationModel
from ascendsim.precision import as_dot, as_text, reduction_tree
from ascendsim.studies.identify.judge import Cut, answers


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
    sums = answers(AccumulationModel.parse(model), a, np.ones((count, 1), np.float32), Cut(mmad, 1))
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
