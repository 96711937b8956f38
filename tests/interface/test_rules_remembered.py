"""Does a call that has been decided before get the same answer, and any other call its own?"""

from dataclasses import replace

import numpy as np
import pytest

from ascendsim import convolution_backward
from ascendsim.errors import AclnnError
from ascendsim.rules import resolve
from tests.helpers.rules_calls import conv


def test_an_equal_call_gets_an_equal_decision_with_a_table_of_its_own():
    first = resolve(conv(), "910B")
    first.dtypes["grad_input"] = "int4"
    second = resolve(conv(), "910B")
    assert second.dtypes["grad_input"] == "float32"
    assert second == first._replace(dtypes={**first.dtypes, "grad_input": "float32"})


@pytest.mark.parametrize("name", ["groups", "stride"])
def test_true_is_no_number_where_one_has_been_accepted(name):
    # For Python True == 1, and their hashes are equal.
    one = {"groups": 1, "stride": (1, 1, 1)}[name]
    call = replace(conv(weight=(6, 4, 3, 3, 3), groups=1), **{name: one})
    assert resolve(call, "910B").compute_dtype == "float32"
    bad = replace(call, **{name: True if name == "groups" else (True, 1, 1)})
    for _ in range(2):
        with pytest.raises(AclnnError):
            resolve(bad, "910B")


def test_a_rule_set_that_is_edited_decides_anew(tmp_path):
    own = tmp_path / "own.toml"
    answers = []
    for text in ("base = 'documented'", "base = 'documented'\ndirect_outputs = true"):
        own.write_text(text)
        answers += [resolve(conv(), "910B", own).direct_outputs for _ in range(2)]
    assert answers == [False, False, True, True]


def test_products_have_decisions_of_their_own():
    # 310P has no float32 cube: cubeMathType 1 lets it compute in float16.
    call = conv((2, 4, 6, 7), (6, 2, 3, 3), cube_math_type=1)
    assert [resolve(call, product).compute_dtype for product in ("910B", "310P") * 2] == [
        "hf32",
        "float16",
    ] * 2


def test_numbers_of_other_types_make_the_same_gradients():
    rng = np.random.default_rng(0)
    shapes = (2, 4, 5, 5), (2, 3, 5, 5), (4, 3, 3, 3)
    tensors = [rng.standard_normal(shape).astype(np.float16) for shape in shapes]
    made = [
        convolution_backward(
            *tensors, None, stride, 1, 1, False, 0, one, (True, True, False), 0, timing=False
        )
        for stride, one in ((1, 1), (np.int64(1), np.int32(1)), ([1, 1], 1))
    ]
    for other in made[1:]:
        assert np.array_equal(other.grad_input, made[0].grad_input)
        assert np.array_equal(other.grad_weight, made[0].grad_weight)
