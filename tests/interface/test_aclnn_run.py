"""Does the second phase compute what the first has accepted, under every option?"""

import inspect

import numpy as np
import pytest

from ascendsim import Tiling, conv_tbc_backward, convolution_backward
from ascendsim.aclnn import (
    AclnnError,
    AclTensor,
    CubeMathType,
    conv_tbc_backward_get_workspace_size,
    convolution_backward_get_workspace_size,
)
from ascendsim.aclnn.handles import overlaps_itself, write
from ascendsim.errors import CapacityError
from ascendsim.numerics.hifloat8 import HiFloat8Array
from ascendsim.ops.options.keywords import CallOptions
from ascendsim.profile import load_profile
from tests.helpers.calls import OUTPUTS, arguments_of, changed, conv, first_phase, tbc

# --- Does the second phase compute what the first has accepted, into the tensors that were given? ------

SMALL = conv((2, 3, 5, 6), (4, 3, 3, 3), groups=1)
CALLS = {
    "1d": conv((2, 3, 9), (4, 3, 3), groups=1, dtype="float16"),
    "2d": SMALL,
    "3d grouped": conv((1, 4, 3, 4, 5), (6, 2, 2, 3, 3), groups=2, dtype="bfloat16"),
    "transposed": conv((2, 4, 3, 4), (4, 2, 3, 3), groups=1, transposed=True, stride=2, output_padding=1),
    "four pads": conv((1, 2, 5, 6), (3, 2, 3, 3), groups=1, padding=(0, 1, 2, 0), dtype="float16"),
    "hf32": conv((2, 3, 5, 6), (4, 3, 3, 3), groups=1, cube_math_type=3),
}


def bits(array):
    memory = np.asarray(getattr(array, "codes", array))
    return memory.view(f"u{memory.itemsize}")


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_gradients_are_those_of_the_operator_and_are_written(call):
    given = arguments_of(call)
    size, executor = first_phase(call, given)
    result = executor.run(size)
    held = {name: tensor.array for name, tensor in given.items() if isinstance(tensor, AclTensor)}
    expected = convolution_backward(
        held["grad_output"],
        held["input"],
        held["weight"],
        call.bias_sizes,
        call.stride,
        call.padding,
        call.dilation,
        call.transposed,
        call.output_padding,
        call.groups,
        call.output_mask,
        call.cube_math_type,
    )
    for name in OUTPUTS:
        assert np.array_equal(bits(getattr(result, name)), bits(getattr(expected, name)))
        assert np.array_equal(bits(held[name]), bits(getattr(expected, name)))
    assert result.cycles == expected.cycles > 0
    assert executor.decision.compute_dtype in result.compute_dtype


def test_conv_tbc():
    # Integers, so that every order of additions gives the same sum.
    call = tbc(time=4, batch=2, channels=1, taps=2, made=1, pad=0)
    given = arguments_of(call)
    given["grad_output"].array[...] = np.arange(6).reshape(3, 2, 1)
    given["input"].array[...] = np.arange(8).reshape(4, 2, 1)
    given["weight"].array[...] = np.array([2, 3]).reshape(2, 1, 1)
    size, executor = first_phase(call, given)
    result = executor.run(size)
    # grad_input[t] = 2 grad_output[t] + 3 grad_output[t - 1]
    assert given["grad_input"].array[:, :, 0].tolist() == [[0, 2], [4, 9], [14, 19], [12, 15]]
    # grad_weight[k] = sum over t and b of grad_output[t] input[t + k]
    assert result.grad_weight.ravel().tolist() == [55, 55 + 2 * 15]
    assert given["grad_bias"].array.tolist() == [15]


def test_masked_gradients_stay_as_they_were():
    call = changed(SMALL, {"output_mask": (False, True, False)})
    given = arguments_of(call)
    size, executor = first_phase(call, given)
    result = executor.run(size)
    assert result.grad_input is None
    assert result.grad_bias is None
    assert (given["grad_input"].array == 1).all()
    assert (given["grad_bias"].array == 1).all()
    assert not (given["grad_weight"].array == 1).any()


def test_no_gradient_at_all():
    call = changed(SMALL, {"output_mask": (False, False, False)})
    size, executor = first_phase(call)
    assert size == 16 * 2**20
    assert executor.run(size).cycles == 0


def test_null_outputs_by_the_operators_rules():
    call = changed(
        SMALL,
        {"output_mask": (True, False, False), "grad_weight": None, "grad_bias": None, "bias_sizes": None},
    )
    given = arguments_of(call)
    size, executor = first_phase(call, given, rules="shipped")
    executor.run(size)
    assert not (given["grad_input"].array == 1).all()


def test_outputs_of_a_dtype_of_their_own():
    call = changed(SMALL, {"grad_weight.dtype": "float16"})
    given = arguments_of(call)
    size, executor = first_phase(call, given)
    executor.run(size)
    assert given["grad_weight"].array.dtype == np.float16


def test_views_are_read_and_written_through():
    given = arguments_of(SMALL)
    plain_size, plain = first_phase(SMALL, given, rules="shipped")
    expected = plain.run(plain_size)
    for name in ("input", "grad_input"):
        wide = np.full((2, 3, 5, 12), 7, np.float32)
        wide[..., ::2] = given[name].array
        given[name] = AclTensor(wide[..., ::2], "float32", "NCHW")
    assert given["input"].description.strides == (180, 60, 12, 2)
    size, executor = first_phase(SMALL, given, rules="shipped")
    result = executor.run(size)
    target = given["grad_input"].array
    assert np.array_equal(bits(np.ascontiguousarray(target)), bits(expected.grad_input))
    assert (target.base[..., 1::2] == 7).all()
    assert any("contiguous" in kernel.name for kernel in result.kernels)


def test_hifloat8_in_codes_or_in_its_own_array():
    call = conv(
        (1, 4, 4, 5), (4, 6, 3, 3), groups=1, transposed=True, dtype="hifloat8", mask=(True, False, False)
    )
    given = arguments_of(call)
    assert isinstance(given["input"].array, HiFloat8Array)
    size, executor = first_phase(call, given, product="910_95")
    expected = executor.run(size).grad_input
    codes = {
        name: AclTensor(tensor.array.codes.copy(), "HIFLOAT8", tensor.description.format)
        if isinstance(tensor, AclTensor)
        else tensor
        for name, tensor in given.items()
    }
    size, executor = first_phase(call, codes, product="910_95")
    executor.run(size)
    assert np.array_equal(codes["grad_input"].array, expected.codes)
    assert np.array_equal(given["grad_input"].array.codes, expected.codes)


@pytest.mark.parametrize("name", OUTPUTS)
def test_an_empty_call_writes_zeros(name):
    call = conv((0, 4, 6, 7), (6, 4, 3, 3), groups=1)
    given = arguments_of(call)
    size, executor = first_phase(call, given)
    executor.run(size)
    assert size == 16 * 2**20
    assert not given[name].array.any()


def test_an_empty_call_writes_zeros_whatever_the_shapes_of_the_outputs():
    # The operator compares no shapes there (check 15).
    call = changed(conv((0, 4, 6, 7), (6, 4, 3, 3), groups=1), {"grad_bias.shape": (9,)})
    given = arguments_of(call)
    size, executor = first_phase(call, given, rules="hardware")
    executor.run(size)
    assert given["grad_bias"].array.tolist() == [0] * 9


def test_the_slip_of_conv_tbc_with_no_taps():
    # No taps, 5 + 1 = 6 steps of 2 images: the operator writes the count 12, the sum is something else.
    call = tbc(time=5, batch=2, channels=3, taps=0, made=4, pad=0)
    given = arguments_of(call)
    size, executor = first_phase(call, given, rules="shipped")
    executor.run(size)
    assert given["grad_bias"].array.tolist() == [12.0] * 4
    assert not given["grad_input"].array.any()
    size, executor = first_phase(call, given, rules="hardware")
    executor.run(size)
    exact = given["grad_output"].array.astype(np.float64).sum((0, 1))
    assert np.allclose(given["grad_bias"].array, exact, rtol=1e-5)


@pytest.mark.parametrize("rules", ["shipped", "hardware"])
@pytest.mark.parametrize("product", ["910_95", "910_93", "310P", "910"])
def test_every_product_runs(product, rules):
    call = conv((1, 3, 4, 5), (4, 3, 3, 3), groups=1, dtype="float16")
    size, executor = first_phase(call, product=product, rules=rules)
    assert executor.run(size).product == product


def test_a_profile_is_as_good_as_a_name():
    _, executor = first_phase(SMALL, product=load_profile("910B3"))
    assert executor.run(executor.workspace_size).variant == "910B3"


def test_an_executor_runs_as_often_as_wanted():
    given = arguments_of(SMALL)
    size, executor = first_phase(SMALL, given)
    first = executor.run(size).grad_input
    given["input"].array[...] = 0  # device memory changes between runs
    assert np.array_equal(executor.run(size + 1).grad_input, first)
    assert not executor.run(size).grad_weight.any()


@pytest.mark.parametrize("short", [0, -1, None, 1.5, "16777216", True])
def test_too_small_a_workspace(short):
    size, executor = first_phase(SMALL)
    given = size - 1 if short == -1 else short
    with pytest.raises(AclnnError) as caught:
        executor.run(given)
    assert (caught.value.status, caught.value.check) == (161002, "run")
    assert str(size) in str(caught.value)


def test_a_tensor_without_values_cannot_run():
    _, executor = first_phase(SMALL, arguments_of(SMALL, arrays=False))
    with pytest.raises(AclnnError, match="shape alone") as caught:
        executor.run(executor.workspace_size)
    assert (caught.value.status, caught.value.name) == (361001, "ACLNN_ERR_RUNTIME_ERROR")


def test_outputs_without_arrays_are_returned_only():
    given = arguments_of(SMALL)
    for name in OUTPUTS:
        given[name] = arguments_of(SMALL, arrays=False)[name]
    size, executor = first_phase(SMALL, given)
    assert executor.run(size).grad_bias.shape == (4,)


def test_a_read_only_output():
    given = arguments_of(SMALL)
    given["grad_bias"].array.flags.writeable = False
    size, executor = first_phase(SMALL, given)
    with pytest.raises(AclnnError, match="grad_bias is read-only"):
        executor.run(size)


def test_the_signatures_are_those_of_the_interface():
    names = list(inspect.signature(convolution_backward_get_workspace_size).parameters)
    assert names == [
        *("grad_output", "input", "weight", "bias_sizes", "stride", "padding", "dilation", "transposed"),
        *("output_padding", "groups", "output_mask", "cube_math_type", "grad_input", "grad_weight"),
        *("grad_bias", "product", "rules", "options", "strict"),
    ]
    names = list(inspect.signature(conv_tbc_backward_get_workspace_size).parameters)
    assert names == [
        *("grad_output", "input", "weight", "bias", "pad", "cube_math_type"),
        *("grad_input", "grad_weight", "grad_bias", "product", "rules", "options", "strict"),
    ]
    assert list(inspect.signature(AclTensor).parameters) == ["shape_or_array", "dtype", "format", "strides"]


def test_what_the_operators_refuse_is_an_inner_failure(monkeypatch):
    def fail(*_, **__):
        raise CapacityError("the tile does not fit")

    given = arguments_of(SMALL)
    size, executor = first_phase(SMALL, given)
    monkeypatch.setattr("ascendsim.ops.convolution_backward.convolution_backward", fail)
    with pytest.raises(AclnnError) as caught:
        executor.run(size)
    assert (caught.value.status, caught.value.check) == (561103, "run")
    assert "the tile does not fit" in str(caught.value)
    assert isinstance(caught.value.__cause__, CapacityError)


def test_a_gradient_of_another_shape_is_not_written():
    # By the shipped rules nobody compares the shapes of outputs that the caller allocated too small.
    target = AclTensor(np.zeros((2, 2), np.float16), "float16")
    with pytest.raises(AclnnError) as caught:
        write("grad_weight", target, np.ones((2, 3), np.float16))
    assert caught.value.status == 561103
    assert not target.array.any()


@pytest.fixture
def nothing_computed(monkeypatch):
    """Fail if the operator is called."""

    def fail(*_, **__):
        raise AssertionError("computed before it was refused")

    monkeypatch.setattr("ascendsim.ops.convolution_backward.convolution_backward", fail)


def refused(given, rules="shipped"):
    """Return the AclnnError of a run whose first phase passes."""
    size, executor = first_phase(SMALL, given, rules=rules)
    with pytest.raises(AclnnError) as caught:
        executor.run(size)
    return caught.value


@pytest.mark.usefixtures("nothing_computed")
def test_outputs_that_cannot_be_written_are_refused_before_anything_is_computed():
    given = arguments_of(SMALL)
    given["grad_weight"].array.flags.writeable = False
    assert refused(given).status == 361001


@pytest.mark.usefixtures("nothing_computed")
def test_an_output_whose_elements_share_a_place_is_refused():
    given = arguments_of(SMALL)
    for step in (0, 4):  # one row for all, or rows that begin an element apart
        row = np.lib.stride_tricks.as_strided(np.zeros(6 * 30, np.float32), (2, 3, 5, 6), (360, 120, step, 4))
        given["grad_input"] = AclTensor(row, "float32", "NCHW")
        assert "has elements in the same place" in str(refused(given))


@pytest.mark.usefixtures("nothing_computed")
def test_outputs_that_share_memory_are_refused():
    given = arguments_of(SMALL)
    memory = np.zeros(2 * 3 * 5 * 6 + 108, np.float32)
    given["grad_input"] = AclTensor(memory[:180].reshape(2, 3, 5, 6), "float32", "NCHW")
    given["grad_weight"] = AclTensor(memory[179 : 179 + 108].reshape(4, 3, 3, 3), "float32", "NCHW")
    assert "grad_input and grad_weight lie in the same memory" in str(refused(given))


def test_outputs_that_interleave_in_one_buffer_are_written():
    given = arguments_of(SMALL)
    memory = np.zeros((2, 3, 5, 12), np.float32)
    given["grad_input"] = AclTensor(memory[..., ::2], "float32", "NCHW")
    wide = memory.reshape(-1)[1:216:2].reshape(4, 3, 3, 3)
    given["grad_weight"] = AclTensor(wide, "float32", "NCHW")
    size, executor = first_phase(SMALL, given, rules="shipped")
    result = executor.run(size)
    assert np.array_equal(memory[..., ::2], result.grad_input)
    assert np.array_equal(wide, result.grad_weight)


@pytest.mark.parametrize(
    ("shape", "steps", "shared"),
    [
        ((4, 4), (16, 4), False),
        ((4, 4), (4, 16), False),  # columns first
        ((4, 4), (-16, 4), False),
        ((4, 4), (8, 4), True),
        ((2, 3), (12, 8), False),  # places 0, 8, 16 and 12, 20, 28: between each other, none twice
        ((3, 3), (12, 8), False),
        ((3, 4), (12, 8), True),  # 2 x 12 = 3 x 8
        ((2, 2), (2, 4), True),  # half an element apart
        ((1, 5), (0, 4), False),
        ((2, 5), (0, 4), True),
        ((0, 5), (0, 0), False),
        ((10**6, 10**6, 10**6), (0, 0, 0), True),
    ],
)
def test_elements_that_share_a_place(shape, steps, shared):
    array = np.lib.stride_tricks.as_strided(np.zeros(100, np.float32)[50:], shape, steps)
    assert overlaps_itself(array) == shared


@pytest.mark.usefixtures("nothing_computed")
@pytest.mark.parametrize(
    "other",
    [
        np.zeros((4, 3, 3, 3), np.float16),
        np.zeros((4, 3, 3, 4), np.float32),
        np.zeros((4, 3, 3, 6), np.float32)[..., ::2],
    ],
    ids=["dtype", "shape", "strides"],
)
@pytest.mark.parametrize("name", ["weight", "grad_weight"])
def test_a_tensor_that_was_swapped_for_another_kind_is_seen(name, other):
    given = arguments_of(SMALL)
    size, executor = first_phase(SMALL, given)
    given[name].array = other
    with pytest.raises(AclnnError, match=name) as caught:
        executor.run(size)
    assert caught.value.status == 161002


def test_a_tensor_described_anew_is_seen():
    given = arguments_of(SMALL)
    size, executor = first_phase(SMALL, given)
    half = np.zeros((4, 3, 3, 3), np.float16)
    given["grad_weight"].__init__(half, "float16", "NCHW")
    with pytest.raises(AclnnError, match=r"grad_weight was .*float32.* first phase .*float16"):
        executor.run(size)


def test_a_tensor_may_be_swapped_for_another_of_its_kind():
    given = arguments_of(SMALL)
    size, executor = first_phase(SMALL, given)
    given["grad_weight"].array = np.zeros((4, 3, 3, 3), np.float32)
    assert np.array_equal(executor.run(size).grad_weight, given["grad_weight"].array)


def test_tensors_of_torch_are_refused_with_the_way_to_convert_them():
    torch = pytest.importorskip("torch")
    given = arguments_of(SMALL)
    for tensor in (torch.zeros(2, 3, 5, 6), torch.zeros(3, dtype=torch.int64), torch.zeros(())):
        given["input"] = AclTensor(tensor, "float32", "NCHW")
        with pytest.raises(AclnnError, match=r"input is made of a torch\.Tensor.*\.numpy\(\)"):
            first_phase(SMALL, given)


@pytest.mark.parametrize("target", [None, AclTensor((2, 2), "float16")])
def test_a_gradient_without_memory_goes_nowhere(target):
    write("grad_weight", target, np.ones((2, 2), np.float16))
    write("grad_weight", AclTensor(np.zeros((2, 2), np.float16), "float16"), None)


# -------------------------------------------------------------------------------------------------------
# Does the two-phase interface give the operators' results, to the bit and the cycle, under every option?
# -------------------------------------------------------------------------------------------------------

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
    {"l2_start": "chained"},
    {"l2_start": "input,weight"},
    {"engine": "simpy"},
    {"engine": "compiled"},
    {"fixpipe": "c-api-pages"},
    {"order": 3},
    {"most_instructions": 10**6, "most_bytes": 2**34},
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


PACKED = {"layout": "NC1HWC0"}  # of convolution backward alone


def test_every_option_is_tried():
    interface = {"product", "rules", "output_dtypes", "output_strides"}  # said by other arguments
    assert {*CallOptions.__annotations__, "order"} - interface <= set().union(*OPTIONS, PACKED)


@pytest.mark.parametrize("product", ["910B", "910_95"])
@pytest.mark.parametrize(
    ("call", "options"),
    [(CONV, PACKED), *((call, options) for call in (CONV, TBC) for options in OPTIONS)],
    ids=lambda value: str(value) if isinstance(value, dict) else "tbc" if value is TBC else "conv",
)
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


@pytest.mark.parametrize("layout", ["NCHW", "NC1HWC0"])
def test_conv_tbc_has_no_layout(layout):
    with pytest.raises(AclnnError, match="options has 'layout'; it takes accumulation, ") as caught:
        first_phase(TBC, options={"layout": layout})
    assert caught.value.status == 161002
    with pytest.raises(TypeError, match=r"conv_tbc_backward\(\) got .* 'layout'"):
        direct(TBC, arguments_of(TBC), layout=layout)


@pytest.mark.parametrize("batch", [0, 1])
def test_tensors_that_lie_packed_have_no_strides(batch):
    call = conv((batch, 4, 6, 7), (6, 4, 3, 3), groups=1)
    given = arguments_of(call)
    given["grad_weight"] = AclTensor(np.ones((3, 3, 4, 6), np.float32).transpose(3, 2, 0, 1), "float32")
    first_phase(call, given, rules="hardware", options={"layout": "NCHW"})
    with pytest.raises(AclnnError, match="have no strides, but those of grad_weight") as caught:
        first_phase(call, given, rules="hardware", options={"layout": "NC1HWC0"})
    assert (caught.value.status, caught.value.check) == (161002, "0 (argument types)")


def test_a_plan_that_the_product_cannot_follow_is_an_inner_failure():
    with pytest.raises(AclnnError, match="schedule is 'dgrads'") as caught:
        first_phase(CONV, options={"schedule": "dgrads"})
    assert caught.value.status == 561103
