"""Do strided tensors, and those of conv_tbc, give the same bits, each permutation at its cost?"""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ascendsim import ConvProblem, conv_tbc_backward, convolution_backward, estimate
from ascendsim.errors import AclnnError, ConfigError
from ascendsim.functional import run_kernel
from ascendsim.numerics.accumulation import AccumulationModel
from ascendsim.numerics.hifloat8 import HiFloat8Array
from ascendsim.ops.lowering.graph import GraphBuilder, VectorKernels
from ascendsim.ops.operands import Operand, spread
from ascendsim.ops.problems.views import View
from ascendsim.program.places import GmTensor
from ascendsim.timing.kernel import time_kernel
from tests.helpers.calls import LAYS, as_carrier, backwards, every_second, gradients, names, permuted, plain
from tests.helpers.conv_cases import assert_same_bits
from tests.helpers.toy_machines import toy_split, toy_unified

# --- Do strided tensors give the same bits, and one Contiguous kernel each that costs what it says? ----


def view_of(array):
    return Operand.of(array).view


# What a view is


@pytest.mark.parametrize(
    ("shape", "strides", "whole"),
    [
        ((2, 3, 4), (12, 4, 1), True),
        ((2, 1, 4), (4, 999, 1), True),  # the stride of an axis of one element does not matter
        ((0, 3, 4), (7, 7, 7), True),  # nothing lies anywhere
        ((2, 3, 4), (24, 4, 1), False),
        ((2, 3, 4), (0, 4, 1), False),
        ((4, 3), (1, 4), False),
        ((3, 4), (4, -1), False),
    ],
)
def test_what_counts_as_contiguous(shape, strides, whole):
    assert View(shape, strides).is_contiguous is whole


@pytest.mark.parametrize("make", [lambda a: a, lambda a: a[::2], lambda a: a[:, ::-1], lambda a: a.T])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, ml_dtypes.bfloat16])
def test_numpy_agrees_on_what_is_contiguous(make, dtype):
    array = make(np.zeros((6, 4), dtype))
    assert view_of(array).is_contiguous is array.flags.c_contiguous


def test_a_hifloat8_tensor_lies_where_its_codes_lie():
    codes = np.zeros((4, 6), np.uint8)
    assert view_of(HiFloat8Array(codes)).strides == (6, 1)
    assert view_of(HiFloat8Array(codes.T)).strides == (1, 6)
    assert not view_of(HiFloat8Array(codes.T)).is_contiguous


@pytest.mark.parametrize(
    ("shape", "strides", "itemsize", "expected"),
    [
        # 2 x 16 halves side by side: 64 bytes
        ((2, 16), (16, 1), 2, 64),
        # two rows of 16 halves with a gap: 2 x 32 bytes
        ((2, 16), (40, 1), 2, 64),
        # every second of 16 halves: a line spans 31 x 2 = 62 bytes, two blocks, and there are two lines
        ((2, 16), (64, 2), 2, 128),
        # every 100th float: a block of 32 bytes for each of 8
        ((8,), (100,), 4, 256),
        # NHWC seen as NCHW (1, 3, 4, 5): all 60 floats are one dense line of 240 bytes, eight blocks
        ((1, 3, 4, 5), (60, 1, 15, 3), 4, 256),
        # one element repeated 8 times: one block
        ((8,), (0,), 4, 32),
        # backwards: the same bytes as forwards
        ((16,), (-1,), 2, 32),
        # a scalar
        ((1, 1), (1, 1), 4, 32),
    ],
)
def test_bytes_read_follow_lines_and_blocks(shape, strides, itemsize, expected):
    assert View(shape, strides).bytes_read(itemsize) == expected


@pytest.mark.parametrize(
    ("shape", "strides", "itemsize", "expected"),
    [
        ((4, 16), (40, 1), 2, True),  # rows of whole blocks
        ((4, 8), (40, 1), 2, False),  # rows of 16 bytes must be pushed together
        ((2, 3), (3, 1), 2, True),  # all of it, in order
        ((16, 16), (1, 16), 2, False),  # transposed
        ((64,), (2,), 4, False),
    ],
)
def test_elements_in_whole_blocks_stay_in_place(shape, strides, itemsize, expected):
    assert View(shape, strides).in_place(itemsize) is expected


def test_one_number_stands_for_every_axis():
    assert spread(3, 2) == (3, 3)
    assert spread([1, 2], 3) == (1, 2)
    assert spread(None, 2) is None
    assert spread(True, 2) is True  # no number of anything: the rules refuse it


# The kernels


def kernels(shape, dtype="float32", profile=None):
    """Begin a graph with one tensor; return what appends to it, and the graph."""
    graph = GraphBuilder({"input": GmTensor.of("input", shape, dtype)})
    return VectorKernels(graph, profile or toy_split(), AccumulationModel("exact")), graph


def contiguous(view, dtype="float32"):
    """Return the kernel that brings a view into order."""
    on, graph = kernels(view.shape, dtype)
    on.contiguous("input", view)
    return graph.build(()).kernels[0]


def gathered(kernel, values):
    """Run a kernel on one tensor and return what it makes of it."""
    gm = {"input": values}
    # Its transfers say the bytes of the sectors that they cross, not those of the slice.
    run_kernel(kernel, gm, checked=False)
    return gm["input in order"]


@pytest.mark.parametrize("profile", [toy_split(), toy_unified()], ids=["split", "unified"])
@pytest.mark.parametrize("axes", [(0, 1, 2), (1, 2, 0), (2, 1, 0)])
def test_transpose_permutes_the_axes(profile, axes):
    values = np.arange(7 * 5 * 11, dtype=np.float32).reshape(7, 5, 11)
    on, graph = kernels(values.shape, profile=profile)
    on.transpose("input", axes)
    (kernel,) = graph.build(()).kernels
    assert np.array_equal(gathered(kernel, values), values.transpose(axes).reshape(-1))
    assert graph.now("input").shape == values.transpose(axes).shape
    assert time_kernel(kernel, profile).cycles > 0


def test_contiguous_keeps_the_values():
    values = np.arange(400, dtype=np.float32).reshape(20, 20)[::2, ::-3]
    kernel = contiguous(view_of(values))
    assert np.array_equal(gathered(kernel, values), values.reshape(-1))
    assert kernel.facts["strides"] == (40, -3)


def test_a_scattered_tensor_takes_longer_than_rows():
    # 64 x 64 halves: rows with a gap cost 64 x 128 bytes; columns of a wide matrix 32 bytes for each element.
    rows = contiguous(View((64, 64), (128, 1)), "float16")
    scattered = contiguous(View((64, 64), (4096, 64)), "float16")
    kinds = [
        {type(i).__name__ for w in s.phases[0].work for i in w.build().instructions}
        for s in (rows, scattered)
    ]
    assert kinds == [{"CopyGmToUb", "CopyUbToGm"}, {"CopyGmToUb", "Rearrange", "CopyUbToGm"}]
    fast, slow = (time_kernel(s, toy_split()) for s in (rows, scattered))
    assert fast.bytes["l2_read"] == 64 * 128
    assert slow.bytes["l2_read"] == 64 * 64 * 32
    assert slow.cycles > fast.cycles


# In a call


PROBLEM = ConvProblem((2, 4, 6, 5), (6, 4, 3, 3), 1, 1)


def tensors(dtype=np.float16):
    rng = np.random.default_rng(5)
    shapes = (PROBLEM.grad_output, PROBLEM.input, PROBLEM.weight)
    return [rng.integers(-4, 5, shape).astype(dtype) for shape in shapes]


def run(grad_output, input, weight, **options):
    return convolution_backward(
        grad_output, input, weight, [6], 1, 1, 1, False, 0, 1, (True, True, True), 0, **options
    )


@pytest.mark.parametrize("lay", [permuted, every_second, backwards])
def test_a_view_gives_the_bits_of_its_copy(lay):
    given = tensors()
    # Under other starts the kernels that gather leave in L2 what the call then finds there.
    plain = run(*given, l2_start="warm")
    strided = run(*map(lay, given), l2_start="warm")
    for name in ("grad_input", "grad_weight", "grad_bias"):
        assert getattr(strided, name).tobytes() == getattr(plain, name).tobytes()
        assert getattr(strided, name).flags.c_contiguous
    first = ["contiguous_grad_output", "contiguous_input", "contiguous_weight"]
    assert names(strided) == first + names(plain)
    assert strided.cycles == plain.cycles + sum(kernel.cycles for kernel in strided.kernels[:3])
    assert any("gather strided elements" in note for note in strided.notes)
    assert not any("gather strided elements" in note for note in plain.notes)


def test_a_repeated_axis_is_a_view_too():
    grad_output, input, weight = tensors()
    ones = np.broadcast_to(np.float16(1), PROBLEM.grad_output)
    spread_out, plain = run(ones, input, weight), run(np.ones_like(grad_output), input, weight)
    assert np.array_equal(spread_out.grad_input, plain.grad_input)
    assert names(spread_out)[0] == "contiguous_grad_output"


def test_only_strided_tensors_cost_a_kernel():
    grad_output, input, weight = tensors()
    assert names(run(grad_output, permuted(input), weight))[0] == "contiguous_input"
    # a slice of the batch is still row after row
    longer = np.concatenate([input, input])
    assert not any(name.startswith("contiguous") for name in names(run(grad_output, longer[:2], weight)))


@pytest.mark.parametrize("product", ["910B", "910_95", "310P"])
def test_an_estimate_counts_them_alike(product):
    given = [permuted(array) for array in tensors()]
    got = run(*given, product=product)
    strides = {
        name: view_of(array).strides
        for name, array in zip(("grad_output", "input", "weight"), given, strict=True)
    }
    expected = estimate(PROBLEM, "float16", product=product, strides=strides)
    assert names(expected) == names(got)
    assert expected.cycles == got.cycles


def test_strides_of_an_unknown_tensor_are_refused():
    with pytest.raises(ConfigError, match=r"bias.*it takes grad_output, input, weight"):
        estimate(PROBLEM, strides={"bias": (1,)})


# -------------------------------------------------------------------------------------------------------
# Is conv_tbc backward the one-dimensional convolution it is lowered to, with its permutations counted?
# -------------------------------------------------------------------------------------------------------

DTYPES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32}


def tensors_tbc(time=6, batch=2, channels=3, made=4, taps=3, pad=1, dtype=np.float16, seed=0):
    """Draw grad_output, input, weight and bias."""
    rng = np.random.default_rng(seed)
    shapes = (
        (time + 2 * pad + 1 - taps, batch, made),
        (time, batch, channels),
        (taps, channels, made),
        (made,),
    )
    return [rng.standard_normal(shape).astype(np.float32).astype(dtype) for shape in shapes]


def by_convolution(grad_output, input, weight, pad, cube_math_type, **options):
    """Return the gradients that a 1-D convolution of permuted copies has, permuted back."""
    given = [
        np.ascontiguousarray(array.transpose(axes))
        for array, axes in ((grad_output, (1, 2, 0)), (input, (1, 2, 0)), (weight, (2, 1, 0)))
    ]
    sizes = [weight.shape[2]]
    result = convolution_backward(
        *given, sizes, 1, pad, 1, False, 0, 1, (True, True, True), cube_math_type, **options
    )
    return result.grad_input.transpose(2, 0, 1), result.grad_weight.transpose(2, 1, 0), result.grad_bias


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    sizes=st.fixed_dictionaries(
        {
            "time": st.integers(1, 9),
            "batch": st.integers(1, 3),
            "channels": st.sampled_from((1, 3, 17)),
            "made": st.sampled_from((1, 4, 18)),
            "taps": st.integers(1, 4),
            "pad": st.integers(0, 3),
        }
    ),
    dtype=st.sampled_from(sorted(DTYPES)),
    cube_math_type=st.sampled_from((0, 1)),
    product=st.sampled_from(("910B", "910_93")),
    lay=st.sampled_from(LAYS),
)
def test_it_is_the_convolution_of_permuted_tensors(sizes, dtype, cube_math_type, product, lay):
    if sizes["time"] + 2 * sizes["pad"] < sizes["taps"]:
        sizes = sizes | {"taps": 1}
    *given_tensors, bias = tensors_tbc(**sizes, dtype=DTYPES[dtype])
    result = conv_tbc_backward(
        *map(lay, given_tensors), bias, sizes["pad"], cube_math_type, product=product, deterministic=True
    )
    want = by_convolution(*given_tensors, sizes["pad"], cube_math_type, product=product, deterministic=True)
    for name, got, expected in zip(("input", "weight", "bias"), gradients(result), want, strict=True):
        assert_same_bits(as_carrier(got), as_carrier(np.ascontiguousarray(expected)), name)
        assert got.flags.c_contiguous


def test_gradients_have_the_shapes_of_their_tensors():
    grad_output, input, weight, bias = tensors_tbc()
    result = conv_tbc_backward(grad_output, input, weight, bias, 1, 0)
    assert [g.shape for g in gradients(result)] == [input.shape, weight.shape, bias.shape]


def test_a_gradient_by_hand():
    # T = 3, one channel, two taps, no pad: y[t] = x[t] w[0] + x[t+1] w[1].
    # dx = (g0 w0, g0 w1 + g1 w0, g1 w1), dw = (g0 x0 + g1 x1, g0 x1 + g1 x2), db = g0 + g1.
    column = lambda *values: np.array(values, np.float32).reshape(-1, 1, 1)  # noqa: E731
    result = conv_tbc_backward(column(10, 20), column(1, 2, 3), column(5, 7), np.zeros(1, np.float32), 0, 0)
    assert [g.reshape(-1).tolist() for g in gradients(result)] == [[50, 170, 140], [50, 80], [30]]


def test_every_permutation_is_a_kernel():
    given_tensors = tensors_tbc()
    result = conv_tbc_backward(*given_tensors, 1, 0)
    assert names(result) == [
        *("transpose_grad_output", "transpose_input", "transpose_weight"),
        *("grad_bias", "transdata_grad_output", "transdata_weight", "grad_input", "transdata_grad_input"),
        *("transdata_grad_output_2", "transdata_input", "memset_grad_weight", "grad_weight"),
        *("transdata_grad_weight", "cast_grad_weight"),
        *("transpose_grad_input", "transpose_grad_weight"),
    ]
    assert result.cycles == sum(kernel.cycles for kernel in result.kernels)
    assert any("Transpose" in note for note in result.notes)


def test_a_strided_tensor_is_made_contiguous_first():
    grad_output, input, weight, bias = tensors_tbc()
    result = conv_tbc_backward(grad_output, permuted(input), weight, bias, 1, 0)
    assert names(result)[:2] == ["contiguous_input", "transpose_grad_output"]
    usual = conv_tbc_backward(grad_output, plain(input), weight, bias, 1, 0)
    assert names(result)[1:] == names(usual)


def test_formats_of_the_gradients_follow_input_weight_and_bias():
    grad_output, input, weight, bias = tensors_tbc(dtype=np.float32)
    mixed = (grad_output.astype(np.float16), input, weight.astype(np.float16), bias)
    result = conv_tbc_backward(*mixed, 1, 1, rules="shipped")
    assert [g.dtype.name for g in gradients(result)] == ["float32", "float16", "float32"]
    assert result.compute_dtype == "hf32_11"
    with pytest.raises(AclnnError) as caught:  # the page wants one format
        conv_tbc_backward(*mixed, 1, 1)
    assert caught.value.status == 161002


@pytest.mark.parametrize("product", ["910_95", "910", "310P"])
def test_products_that_the_page_does_not_name_are_refused(product):
    given_tensors = tensors_tbc()
    with pytest.raises(AclnnError, match=product) as caught:
        conv_tbc_backward(*given_tensors, 1, 0, product=product)
    assert caught.value.status == 161002
    shipped = conv_tbc_backward(*given_tensors, 1, 0, product=product, rules="shipped")
    for got, want in zip(
        gradients(shipped), by_convolution(*given_tensors[:3], 1, 0, product=product), strict=True
    ):
        assert np.array_equal(got, want)


def test_a_pad_that_does_not_fit_is_refused():
    grad_output, input, weight, bias = tensors_tbc()
    with pytest.raises(AclnnError) as caught:
        conv_tbc_backward(grad_output, input, weight, bias, 2, 0)
    assert caught.value.status == 161002


# Empty tensors: only the shipped operator takes them


def empty_time():
    """T = 0 with pad 1 and one tap: T_out = 2; the sum of grad_output is 12 a channel, its terms are 6."""
    return (
        np.full((2, 3, 4), 2, np.float16),
        np.zeros((0, 3, 5), np.float16),
        np.ones((1, 5, 4), np.float16),
        np.ones(4, np.float16),
    )


def test_the_shipped_operator_counts_where_it_should_add():
    result = conv_tbc_backward(*empty_time(), 1, 0, rules="shipped")
    assert result.grad_input.shape == (0, 3, 5)
    assert not result.grad_weight.any()
    assert result.grad_weight.shape == (1, 5, 4)
    assert result.grad_bias.tolist() == [6.0] * 4
    assert names(result) == ["fill_grad_weight", "fill_grad_bias"]


def test_the_hardware_rules_add():
    result = conv_tbc_backward(*empty_time(), 1, 0, rules="hardware")
    assert result.grad_bias.tolist() == [12.0] * 4
    assert names(result) == ["fill_grad_weight", "transpose_grad_output", "grad_bias"]


def test_the_page_refuses_empty_tensors():
    with pytest.raises(AclnnError) as caught:
        conv_tbc_backward(*empty_time(), 1, 0)
    assert caught.value.status == 161002
