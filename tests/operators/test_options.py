"""Is every argument of the Python interface taken as it is meant, or refused with a sentence of ours?"""

import re
from dataclasses import fields
from typing import get_type_hints

import numpy as np
import pytest

from ascendsim import (
    ConvProblem,
    MatmulProblem,
    Tiling,
    convolution_backward,
    estimate,
    estimate_matmul,
    load_profile,
)
from ascendsim.arguments import truth, whole
from ascendsim.errors import ConfigError, UnsupportedError
from ascendsim.ops.options.call import CallOptions, Options, ProductOptions, options_of
from ascendsim.ops.problems.convolution import as_multiplied, full_name, stored_name

PROBLEM = ConvProblem((1, 16, 4, 4), (16, 16, 3, 3), padding=1)


def backward(tensors, number=int, **options):
    """Compute all gradients of a small convolution, its attributes as numbers of a kind."""
    one = number(1)
    return convolution_backward(
        *tensors, [number(16)], one, one, one, False, number(0), one, (True, True, True), number(0), **options
    )


@pytest.fixture
def tensors():
    random = np.random.default_rng(1)
    shapes = (PROBLEM.grad_output, PROBLEM.input, PROBLEM.weight)
    return [random.standard_normal(shape).astype(np.float16) for shape in shapes]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"accumulation": 3}, "accumulation is 3; it must be the text of a model"),
        ({"accumulation": ""}, "cannot read ''"),
        ({"tiling": 5}, "tiling is 5; it must be a Tiling"),
        ({"tiling": {"grad_input": 1}}, "tiling is {'grad_input': 1}; it must be a Tiling"),
        ({"deterministic": "x"}, "deterministic is 'x'; it must be true, false or None"),
        ({"product": None}, "product is None; it must be a name"),
        ({"output_dtypes": "float16"}, "output_dtypes is 'float16'; it must be three formats"),
        ({"output_dtypes": 3}, "output_dtypes is 3"),
        ({"dtype": None}, "dtype is None; it must be a format"),
        ({"dtype": ("float16", None, "float16")}, "it must be a format"),
        ({"strides": 3}, "strides is 3; it must be like"),
        ({"strides": {"input": 3}}, "it must be like"),
        ({"strides": {"inputs": (1, 1)}}, "strides has keys"),
    ],
)
def test_an_option_without_a_meaning_is_refused(options, words):
    with pytest.raises(ConfigError, match=words):
        estimate(PROBLEM, **options)


@pytest.mark.parametrize("dtype", [3, np.int32, "float61"])
def test_an_unknown_format_is_refused(dtype):
    with pytest.raises(UnsupportedError, match="is not a supported format"):
        estimate(PROBLEM, dtype)


def test_what_is_no_problem_is_refused():
    with pytest.raises(ConfigError, match=r"problem is \(1, 2\); it must be ConvProblem"):
        estimate((1, 2))
    with pytest.raises(ConfigError, match=r"problem is \(1, 2\); it must be MatmulProblem"):
        estimate_matmul((1, 2))


@pytest.mark.parametrize("order", [-1, np.int64(-1), 1.5, None, "late"])
def test_an_order_without_a_meaning_is_refused(tensors, order):
    with pytest.raises(ConfigError, match="order is "):
        backward(tensors, order=order)


@pytest.mark.parametrize("dtype", [np.float16, np.dtype("float16"), [np.float16, "float16", np.float16]])
def test_a_format_by_numpys_types(dtype):
    assert estimate(PROBLEM, dtype).cycles == estimate(PROBLEM, "float16").cycles


def test_strides_of_numpy(tensors):
    dense = np.array(tensors[1].strides) // 2
    assert estimate(PROBLEM, strides={"input": dense}).cycles == estimate(PROBLEM).cycles


def test_numbers_of_numpy_in_a_call(tensors):
    plain, numpys = backward(tensors, order=3), backward(tensors, np.int64, order=np.int64(3))
    assert numpys.order == plain.order == "seed 3"
    assert np.array_equal(numpys.grad_weight, plain.grad_weight)


def test_numbers_of_numpy_in_plans():
    assert Tiling(np.int64(16), 16, 16) == Tiling(16, 16, 16)
    assert MatmulProblem(np.int32(4), 5, 6) == MatmulProblem(4, 5, 6)


def test_the_order_of_bytes_does_not_matter(tensors):
    plain = backward(tensors)
    turned = backward([tensor.astype(">f2") for tensor in tensors])
    for name in ("grad_input", "grad_weight", "grad_bias"):
        assert getattr(turned, name).tobytes() == getattr(plain, name).tobytes()


def test_turned_bytes_keep_their_place_in_memory(tensors):
    # The view of every second column costs a Contiguous kernel, whichever end of an element comes first.
    wide = np.zeros((1, 16, 4, 8), ">f2")
    wide[..., ::2] = tensors[1]
    made = backward([tensors[0], wide[..., ::2], tensors[2]])
    assert "contiguous_input" in [kernel.name for kernel in made.kernels]
    assert made.grad_weight.tobytes() == backward(tensors).grad_weight.tobytes()


@pytest.mark.parametrize(
    ("value", "number", "flag"),
    [
        (1, 1, True),
        (np.int8(0), 0, False),
        (2, 2, None),
        (True, None, True),
        (np.False_, None, False),
        *((value, None, None) for value in (1.0, "1", None, [1], np.array([1]))),
    ],
)
def test_integers_and_truth_values(value, number, flag):
    assert whole(value) == number
    assert truth(value) is flag


def test_hf32_is_named_after_its_bits_and_stored_as_float32():
    for product, bits in (("910B", 11), ("910_95", 10)):
        profile = load_profile(product)
        assert full_name("hf32", profile) == f"hf32_{bits}"
        # 1 + 2^-bits is the last value above 1 that HF32 keeps; half of that step is a tie, to even.
        given = np.array([1 + 2.0**-bits, 1 + 2.0 ** -(bits + 1)], np.float32)
        assert as_multiplied(given, "hf32", profile, "RNE").tolist() == [1 + 2.0**-bits, 1]
        assert as_multiplied(given, "float32", profile, "RNE") is given
    assert (stored_name("hf32"), stored_name("bfloat16")) == ("float32", "bfloat16")


# --- the keywords that all operators share


def test_keywords_are_declared_once_and_agree():
    # CallOptions is what type checkers read, Options what is run; both list the same names.
    assert list(get_type_hints(CallOptions)) == [field.name for field in fields(Options)]
    assert set(get_type_hints(ProductOptions)) < set(get_type_hints(CallOptions))


@pytest.mark.parametrize(
    ("known", "given", "hint"),
    [
        (CallOptions, "tilling", "'tilling'; did you mean tiling?"),
        (CallOptions, "fix_pipe", "did you mean fixpipe?"),
        (ProductOptions, "deterministic", "it takes product, accumulation, tiling, schedule, l2_start"),
        (ProductOptions, "xyz", "'xyz'; it takes product"),
    ],
)
def test_an_unknown_keyword_is_refused_with_a_near_miss(known, given, hint):
    with pytest.raises(TypeError, match=f"f\\(\\) got an unexpected keyword argument .*{re.escape(hint)}"):
        options_of("f", {given: 1}, known)


def test_options_left_out_have_their_defaults():
    assert options_of("f", {}) == Options()
    assert options_of("f", {"l2_start": "cold"}) == Options(l2_start="cold")


def test_the_doors_refuse_unknown_keywords(tensors):
    with pytest.raises(TypeError, match=r"convolution_backward\(\) got .* 'produkt'; did you mean product"):
        backward(tensors, produkt="910B")
    with pytest.raises(TypeError, match=r"estimate\(\) got .* 'rule'; did you mean rules"):
        estimate(PROBLEM, rule="shipped")
    with pytest.raises(TypeError, match=r"estimate_matmul\(\) got .* 'rules'"):
        estimate_matmul(MatmulProblem(16, 16, 16), rules="shipped")
