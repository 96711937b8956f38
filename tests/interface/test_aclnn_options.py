"""Does the two-phase interface give the operators' results, to the bit and the cycle, under every option?"""

from typing import get_type_hints

import numpy as np
import pytest

from ascendsim import Tiling, conv_tbc_backward, convolution_backward
from ascendsim.aclnn import AclnnError, CubeMathType
from ascendsim.ops.options.call import CallOptions
from tests.helpers.aclnn_calls import OUTPUTS, arguments_of, first_phase
from tests.helpers.rules_calls import changed, conv, tbc

CONV = conv((2, 20, 6, 7), (18, 20, 3, 3), groups=1, dtype="float16")
TBC = tbc(time=9, batch=2, channels=20, taps=3, made=18, dtype="float16")
PARTS = {"grad_weight": Tiling(16, 16, 16, k_split=4, used_cores=4)}
OPTIONS = [
    {},
    {"accumulation": "seq:RNE"},
    {"tiling": PARTS},
    {"tiling": PARTS, "deterministic": True},
    {"tiling": PARTS, "deterministic": False, "order": "arrival"},
    {"tiling": PARTS, "order": 7},
    {"schedule": "dgrad_columns_outer"},
    {"l2_start": "cold"},
    {"l2_start": "handed"},
    {"engine": "simpy"},
    {"engine": "compiled"},
    {"fixpipe": "c-api-pages"},
    {"order": 3},
]
ATTRIBUTES = (
    *("bias_sizes", "stride", "padding", "dilation", "transposed", "output_padding", "groups"),
    *("output_mask", "cube_math_type"),
)


def direct(call, given, **options):
    """Run the operator on the tensors of a call."""
    held = [given[name].array for name in ("grad_output", "input", "weight")]
    if "pad" in given:
        return conv_tbc_backward(*held, given["bias"].array, call.pad, call.cube_math_type, **options)
    return convolution_backward(*held, *(getattr(call, name) for name in ATTRIBUTES), **options)


def test_every_option_is_tried():
    interface = {"product", "rules", "output_dtypes", "output_strides"}  # said by other arguments
    assert {*get_type_hints(CallOptions), "order"} - interface <= set().union(*OPTIONS)


@pytest.mark.parametrize("product", ["910B", "910_95"])
@pytest.mark.parametrize("call", [CONV, TBC], ids=["conv", "tbc"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_both_doors_agree_under_every_option(product, call, options):
    given = arguments_of(call)
    where = {"product": product, "rules": "shipped"}
    size, executor = first_phase(call, given, options=options, **where)
    result = executor.run(size)
    expected = direct(call, given, **options, **where)
    for name in OUTPUTS:
        assert getattr(result, name).tobytes() == getattr(expected, name).tobytes()
        assert given[name].array.tobytes() == getattr(expected, name).tobytes()
    assert (result.cycles, result.notes, result.order) == (expected.cycles, expected.notes, expected.order)


@pytest.mark.parametrize(
    "call", [conv((1, 2, 4), (3, 2, 3), groups=1), tbc(time=3, batch=1)], ids=["conv", "tbc"]
)
@pytest.mark.parametrize("name", CubeMathType.__members__)
def test_a_cube_math_type_by_its_name_or_number(call, name):
    call = changed(call, {f"{tensor}.dtype": "float32" for tensor in call.tensors})
    made = []
    for value in (int(CubeMathType[name]), CubeMathType[name], name, f" {name.lower()} "):
        asked = changed(call, {"cube_math_type": value})
        given = arguments_of(asked)
        size, executor = first_phase(asked, given)
        made += [executor.run(size), direct(asked, given)]
    assert {result.compute_dtype for result in made} == {made[0].compute_dtype}
    assert len({result.grad_weight.tobytes() for result in made}) == 1


@pytest.mark.parametrize("value", ["USE_FP32", "", "0", b"USE_FP16"])
def test_a_name_that_no_cube_math_type_has(value):
    with pytest.raises(AclnnError, match=r"check 0 .*cube_math_type is"):
        first_phase(changed(CONV, {"cube_math_type": value}))


@pytest.mark.parametrize("options", [3, [("order", 3)], {"product": "910B"}, {"rules": "shipped"}, {3: 3}])
def test_what_is_no_option_is_refused(options):
    with pytest.raises(AclnnError, match="options") as caught:
        first_phase(CONV, options=options)
    assert (caught.value.status, caught.value.check) == (161002, "0 (argument types)")


@pytest.mark.parametrize(
    "options",
    [{"l2_start": np.ones(2)}, {"tiling": 3}, {"engine": []}, {"order": -1}, {"accumulation": "exakt"}],
    ids=str,
)
def test_a_value_without_a_meaning_is_refused_in_the_first_phase(options):
    (name,) = options
    with pytest.raises(AclnnError, match=name) as caught:
        first_phase(CONV, options=options)
    assert (caught.value.status, caught.value.check) == (161002, "0 (argument types)")


def test_a_plan_that_the_product_cannot_follow_is_an_inner_failure():
    with pytest.raises(AclnnError, match="schedule is 'dgrads'") as caught:
        first_phase(CONV, options={"schedule": "dgrads"})
    assert caught.value.status == 561103
