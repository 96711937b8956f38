"""How far are gradients from the float64 ones of the same stored tensors, and why?"""

import hashlib
import math
from dataclasses import replace

import numpy as np
import pytest

import ascendsim.precision as precision
from ascendsim import ConvProblem, convolution_backward
from ascendsim.errors import ConfigError, ShapeError, UnsupportedError
from ascendsim.numerics.accumulation import AccumulationModel
from ascendsim.numerics.casts import encode, round_to
from ascendsim.numerics.dtypes import dtype
from ascendsim.precision import GPUS, Math, attribute, spread
from ascendsim.studies.arithmetic import math as arithmetic
from ascendsim.studies.arithmetic.formats import quantise
from ascendsim.studies.arithmetic.math import accumulators, checked, operands_of
from ascendsim.studies.identify.folder import write_outputs, write_probe
from ascendsim.studies.identify.vectors import ProbeCase, simulated
from ascendsim.studies.sweep import float64_references, judge

# --- Are gradients judged by the float64 ones of the same stored tensors? ------------------------------

PROBLEM = ConvProblem((1, 16, 4, 4), (16, 16, 1, 1))
ALL = (True, True, True)


def tensors(name="float16", seed=0):
    random = np.random.default_rng(seed)
    shapes = (PROBLEM.grad_output, PROBLEM.input, PROBLEM.weight)
    drawn = (random.standard_normal(shape, dtype=np.float32) for shape in shapes)
    return tuple(encode(round_to(values, name), dtype(name)) for values in drawn)


def backward(stored, mask=ALL, cube_math_type=0, **options):
    bias = [PROBLEM.grad_output[1]] if mask[2] else None
    return convolution_backward(*stored, bias, 1, 0, 1, False, 0, 1, mask, cube_math_type, **options)


@pytest.fixture(scope="module")
def judged():
    stored = tensors()
    result = backward(stored)
    return result, judge(result, float64_references(PROBLEM, *stored, ALL))


def test_every_gradient_is_judged_once(judged):
    result, gradients = judged
    assert [gradient.name for gradient in gradients] == ["grad_input", "grad_weight", "grad_bias"]
    for gradient in gradients:
        made = getattr(result, gradient.name)
        assert gradient.shape == made.shape
        assert gradient.stored == "float16"
        assert gradient.sha256 == hashlib.sha256(made.tobytes()).hexdigest()
        assert gradient.errors.count == made.size
        assert 0 < gradient.errors.mere < 2**-10


def test_a_masked_gradient_is_left_out():
    stored, mask = tensors(), (True, False, False)
    references = float64_references(PROBLEM, *stored, mask)
    assert references["grad_weight"] is None
    assert references["grad_bias"] is None
    assert [gradient.name for gradient in judge(backward(stored, mask), references)] == ["grad_input"]


def test_the_references_are_those_of_the_tensors_as_stored():
    # A 1x1 kernel without padding: grad_input is the product of weight^T and grad_output at each position.
    stored = tensors("bfloat16")
    grad_output, _, weight = (tensor.astype(np.float64) for tensor in stored)
    references = float64_references(PROBLEM, *stored, ALL)
    expected = np.einsum("nohw,oi->nihw", grad_output, weight[:, :, 0, 0])
    np.testing.assert_allclose(references["grad_input"], expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(references["grad_bias"], grad_output.sum(axis=(0, 2, 3)), atol=1e-12)


def test_references_serve_every_result_of_the_same_tensors(judged):
    result, gradients = judged
    stored = tensors()
    references = float64_references(PROBLEM, *stored, ALL)
    for product in ("910B", "910_93"):
        assert len(judge(backward(stored, product=product), references)) == 3
    assert judge(result, references) == gradients


def test_a_wrong_element_is_found(judged):
    result, gradients = judged
    weight = result.grad_weight.copy()
    weight[0, 0] = 2 * np.abs(weight).max() + 1
    wrong = judge(replace(result, grad_weight=weight), float64_references(PROBLEM, *tensors(), ALL))
    assert wrong[0] == gradients[0]
    assert wrong[1].errors.max_abs > 1
    assert wrong[1].sha256 != gradients[1].sha256
    assert not all(verdict.passed for verdict in wrong[1].errors.verdicts)


def test_equal_bits_have_equal_digests_and_others_do_not(judged):
    result, _ = judged
    one = replace(result, grad_input=None, grad_weight=None, grad_bias=np.array([0.0], np.float16))
    other = replace(one, grad_bias=np.array([-0.0], np.float16))
    exact = {"grad_bias": np.array([0.0])}
    digests = [judge(made, exact)[0].sha256 for made in (one, one, other)]
    assert digests[0] == digests[1] != digests[2]


def test_hifloat8_is_judged_by_its_codes():
    stored = tensors("hifloat8")
    # By the pages, 8-bit tensors have grad_input of transposed convolutions alone; the cube multiplies all.
    result = backward(stored, product="910_95", rules="hardware")
    gradients = judge(result, float64_references(PROBLEM, *stored, ALL))
    assert {gradient.stored for gradient in gradients} == {"hifloat8"}
    assert gradients[0].sha256 == hashlib.sha256(result.grad_input.codes.tobytes()).hexdigest()


def test_hf32_is_judged_by_the_steps_of_its_operands_but_for_the_bias():
    stored = tensors("float32")
    result = backward(stored, cube_math_type=1)
    assert result.compute_dtype.startswith("hf32")
    gradients = judge(result, float64_references(PROBLEM, *stored, ALL))
    formats = {gradient.name: gradient.errors.dtype for gradient in gradients}
    assert formats == {
        "grad_input": result.compute_dtype,
        "grad_weight": result.compute_dtype,
        "grad_bias": "float32",
    }
    assert {gradient.stored for gradient in gradients} == {"float32"}
    # HF32 keeps 11 bits of each operand: far more than a step of float32, but few of its own.
    assert gradients[0].errors.max_ulp < 2**8


# --- Do `spread` and `attribute` say how far gradients are from float64, and why? ----------------------

MODULE_PROBLEM = ConvProblem((2, 20, 6, 5), (18, 20, 3, 3), 1, 1)
TRANSPOSED = ConvProblem((1, 6, 4, 4), (6, 5, 3, 3), 2, 1, transposed=True, output_padding=1)
BOTH = ("grad_input", "grad_weight")


def tensors_module(problem=MODULE_PROBLEM, seed=0):
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(getattr(problem, name)) for name in ("grad_output", "input", "weight")}


def judged_module(maths, problem=MODULE_PROBLEM, **options):
    return {
        (one.math, one.gradient): one for one in spread(problem, tensors_module(problem), maths, **options)
    }


@pytest.mark.parametrize("problem", [MODULE_PROBLEM, TRANSPOSED], ids=["plain", "transposed"])
@pytest.mark.parametrize("model", ["seq:RNE", "exact:RNE"])
def test_gradients_are_those_of_the_product(problem, model):
    # In models that no plan touches: one part of the reduction, and every product in its place.
    given, math = tensors_module(problem), Math("float16", model)
    halves = [given[name].astype(np.float16) for name in ("grad_output", "input", "weight")]
    options = {"accumulation": model, "rules": "hardware", "output_dtypes": ("float32",) * 3}
    sizes = problem.stride, problem.padding, 1, problem.transposed, problem.output_padding, 1
    mask = (True, True, False)
    planned = convolution_backward(*halves, None, *sizes, mask, 0, tiling="search", **options)
    # A plan may share a reduction among cores, whose parts are then added in float32; here it may not.
    plans = {kernel.name: kernel.plan for kernel in planned.kernels if kernel.plan}
    tiling = {name: replace(plan.tiling, k_split=1) for name, plan in plans.items()}
    result = convolution_backward(*halves, None, *sizes, mask, 0, tiling=tiling, **options)
    for gradient in BOTH:
        operands = operands_of(problem, checked(problem, given), math, gradient)
        made = accumulators(problem, gradient, operands, math)
        assert np.array_equal(made.view(np.uint32), getattr(result, gradient).view(np.uint32)), gradient


def test_each_arithmetic_is_held_against_float64_and_the_first():
    first, other = Math("float32", "block:4:RNE"), Math("float32", "seq:RZ")
    found = judged_module([first, other, first])
    for gradient in BOTH:
        own, cut = found[str(first), gradient], found[str(other), gradient]
        assert own.different == 0
        assert 0 < cut.different <= 1
        # Rounding toward zero in every step drifts; four exact products and one rounding do not.
        assert cut.errors.mean_outward_ulp < -0.5 < own.errors.mean_outward_ulp
        assert own.errors.rel_l2 < cut.errors.rel_l2 < 1e-5
        assert own.errors.max_of_terms < 2.0**-20


def test_a_gpu_is_an_arithmetic_like_others():
    here, there = Math("float16", "block:16:RNE"), Math("float16", "nvidia-a100")
    found = judged_module([here, there], gradients=("grad_input",))
    # In float32 nearly every bit pattern differs; both are as far from float64 as their operands are.
    assert found[str(there), "grad_input"].different > 0.5
    errors = [one.errors.rel_l2 for one in found.values()]
    assert errors[0] == pytest.approx(errors[1], rel=0.01)
    assert str(there) == "float16, nvidia-a100, float32 (a study)"


def test_every_gpu_is_an_align_model_with_a_source():
    for kinds in GPUS.values():
        for gpu in kinds.values():
            model = AccumulationModel.parse(gpu.model)
            assert (model.kind, model.rounding, model.with_accumulator) == ("align", "RZ", True)
            assert gpu.source
            assert gpu.confidence


def test_every_gpu_has_the_sums_that_are_published_of_it():
    # Products that meet, fraction bits of what they are aligned to, and of a result.
    halves = {
        "nvidia-v100": (4, 23, 23),
        "nvidia-a100": (8, 24, 23),
        "nvidia-a2": (8, 24, 23),
        "nvidia-l40s": (8, 24, 23),
        "nvidia-h100": (16, 25, 23),
        "nvidia-b200": (16, 25, 23),
    }
    eights = {"nvidia-l40s": (16, 13, 13), "nvidia-h100": (32, 13, 13)}
    for name, kinds in GPUS.items():
        # The oldest of them has no bfloat16.
        has = {"float16"} if name == "nvidia-v100" else {"float16", "bfloat16"}
        assert set(kinds) == has | ({"float8_e4m3fn", "float8_e5m2"} if name in eights else set())
        for kind, gpu in kinds.items():
            block, fraction, result = (eights if kind.startswith("float8") else halves)[name]
            assert (gpu.model, gpu.fraction) == (f"align:{block}:F{fraction}:RZ:acc", result)
    assert set(GPUS) == set(halves)


# F by name and format as published: MMA-Sim; for 8 bits on Hopper and Ada a sum of 13 fraction bits.
PUBLISHED = [
    *[("nvidia-v100", "float16", 23), ("nvidia-a100", "float16", 24), ("nvidia-a2", "bfloat16", 24)],
    *[("nvidia-l40s", "float16", 24), ("nvidia-l40s", "float8_e4m3fn", 13), ("nvidia-h100", "bfloat16", 25)],
    *[("nvidia-h100", "float8_e5m2", 13), ("nvidia-b200", "float16", 25)],
]


def sum_on(name, kind, products):
    """Return grad_input of one element: a sum of `products` along the channels."""
    line = ConvProblem((1, 1, 1, 1), (len(products), 1, 1, 1))
    ones = np.ones((len(products), 1, 1, 1))
    given = {"grad_output": np.array(products).reshape(1, -1, 1, 1), "input": np.ones((1, 1, 1, 1))}
    sums, given = Math(kind, name), checked(line, given | {"weight": ones})
    operands = operands_of(line, given, sums, "grad_input")
    return accumulators(line, "grad_input", operands, sums).item()


@pytest.mark.parametrize(("name", "kind", "bits"), PUBLISHED)
def test_a_name_and_a_format_cut_terms_where_it_is_published(name, kind, bits):
    # Two halves of the last bit that stays beside 2^p, in one block: each is cut to nothing on its own, and
    # both whole bits stay. 2^p is in the range of float16, half a bit 2^-9 or more in that of float8_e4m3fn.
    p = min(bits - 8, 15)
    exact = 2.0**p, 2.0 ** (p - bits)
    result_keeps = min(bits, 23)
    unit = 2.0 ** (p - result_keeps)
    assert sum_on(name, kind, [exact[0], exact[1] / 2, exact[1] / 2]) == exact[0]
    terms = [exact[0]] + [exact[1]] * 3
    # Three bits of 2^-F: of them a result in float32, which is cut as well, keeps whole units.
    assert sum_on(name, kind, terms) == exact[0] + math.floor(3 * exact[1] / unit) * unit


def test_eight_bits_have_a_result_of_thirteen_fraction_bits():
    # 2 + 2^-13 from terms that all stay: its fraction needs 14 bits.
    for name in ("nvidia-h100", "nvidia-l40s"):
        assert sum_on(name, "float8_e5m2", [1.0, 1.0, 2.0**-13]) == 2.0
        assert sum_on(name, "float8_e5m2", [1.0, 2.0**-13]) == 1 + 2.0**-13
        assert sum_on(name, "scaled(float8_e5m2)", [1.0, 2.0**-13]) == 1 + 2.0**-13


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("float8_e4m3fn", "nvidia-a100"),
        ("bfloat16", "nvidia-v100"),
        ("float8_e4m3fn", "nvidia-b200"),
        ("float32", "nvidia-h100"),
        ("mxfp8_e4m3", "nvidia-h100"),
    ],
)
def test_a_format_that_is_not_published_for_a_gpu_is_refused(kind, name):
    with pytest.raises(ConfigError, match=f"sums of {name} are known for operands in float16"):
        Math(kind, name)


def test_fewer_bits_are_further_from_float64():
    formats = ["float32", "float16", "bfloat16", "e5m3", "e5m2"]
    found = judged_module([Math(name) for name in formats], gradients=("grad_weight",))
    errors = [one.errors.rel_l2 for one in found.values()]
    assert errors == sorted(errors)


@pytest.mark.parametrize(
    ("math", "largest"),
    [
        (Math("bfloat16", "exact:RNE", "float32"), "operands"),
        (Math("float32", "seq:RZ", "float32"), "accumulation"),
        (Math("float32", "block:4:RNE", "bfloat16"), "output"),
    ],
)
def test_an_error_is_put_down_to_what_makes_it(math, largest):
    for one in attribute(MODULE_PROBLEM, tensors_module(), math):
        parts = {name: getattr(one, name) for name in ("operands", "accumulation", "output")}
        assert max(parts, key=parts.get) == largest
        assert one.total == pytest.approx(parts[largest], rel=0.01)
        assert one.total <= sum(parts.values()) * (1 + 1e-12)


def test_a_part_that_does_nothing_is_zero():
    small = ConvProblem((1, 1, 1, 1), (1, 1, 1, 1))
    ones = {name: np.ones((1, 1, 1, 1)) for name in ("grad_output", "input", "weight")}
    for one in attribute(small, ones, Math("float16", "seq:RNE", "float16")):
        assert (one.total, one.operands, one.accumulation, one.output, one.of_terms) == (0, 0, 0, 0, 0)


@pytest.mark.parametrize("sign", [1, -1])
def test_each_part_of_an_error_by_hand(sign):
    # 2^-12 is a quarter of a last bit of float16 at 1; 2^-24 is half a last bit of float32, and cut off; 2^-9
    # is a quarter of a last bit of bfloat16.
    line, last = ConvProblem((1, 1, 1, 1), (2, 1, 1, 1)), sign * 2.0**-24
    given = {"input": np.ones((1, 1, 1, 1)), "weight": np.ones((2, 1, 1, 1))}
    given["grad_output"] = np.array([1 + 2.0**-9 + 2.0**-12, last]).reshape(1, 2, 1, 1)
    (found,) = attribute(line, given, Math("float16", "seq:RZ", "bfloat16"), ["grad_input"])
    exact = 1 + 2.0**-9 + 2.0**-12 + last
    # Toward zero, a little less than a number is the number before it.
    sums = 1 + 2.0**-9 if sign > 0 else 1 + 2.0**-9 - 2.0**-23
    assert found.operands == 2.0**-12 / exact
    assert found.accumulation == 2.0**-24 / exact
    assert found.output == (sums - 1) / exact
    assert found.total == (exact - 1) / exact
    # Over the magnitudes of the terms as the cube reads them.
    assert found.of_terms == 2.0**-24 / (1 + 2.0**-9 + 2.0**-24)


def test_each_part_of_an_error_of_weights_by_hand():
    # Of a grad_weight the other operand is the input: 2^-12 of it are lost.
    line = ConvProblem((1, 1, 1, 2), (1, 1, 1, 1))
    given = {"weight": np.ones((1, 1, 1, 1)), "input": np.array([1 + 2.0**-12, 1]).reshape(1, 1, 1, 2)}
    given["grad_output"] = np.array([1, -0.5]).reshape(1, 1, 1, 2)
    (found,) = attribute(line, given, Math("float16", "seq:RNE"), ["grad_weight"])
    assert found.operands == found.total == 2.0**-12 / (0.5 + 2.0**-12)
    assert (found.accumulation, found.output, found.of_terms) == (0, 0, 0)


def test_how_far_from_float64_and_from_the_first_by_hand():
    # The second of two columns differs by 2^-12, which float16 does not hold.
    line = ConvProblem((1, 1, 1, 2), (1, 1, 1, 1))
    given = {"weight": np.ones((1, 1, 1, 1)), "input": np.ones((1, 1, 1, 2))}
    given["grad_output"] = np.array([-1, 1 + 2.0**-12]).reshape(1, 1, 1, 2)
    first, second = spread(line, given, [Math("float32"), Math("float16")], ["grad_input"])
    assert (first.different, first.errors.max_abs) == (0, 0)
    assert (second.different, second.errors.max_abs) == (0.5, 2.0**-12)
    # Of the magnitude of its one term.
    assert second.errors.max_of_terms == 2.0**-12 / (1 + 2.0**-12)


def test_chance_is_fixed_by_its_seed():
    maths = [Math("e4m3", rounding="stochastic", seed=seed) for seed in (1, 1, 2)]
    found = spread(MODULE_PROBLEM, tensors_module(), maths, gradients=("grad_input",))
    assert [one.different > 0 for one in found] == [False, False, True]
    assert "rounded by chance (seed 1)" in found[0].math


def test_no_two_tensors_are_rounded_by_the_same_draws(monkeypatch):
    drawn = []
    monkeypatch.setattr(arithmetic, "quantise", lambda *told: drawn.append(told[-1]) or quantise(*told))
    maths = [Math("e4m3", output="e5m2", rounding="stochastic", seed=seed) for seed in range(4)]
    spread(MODULE_PROBLEM, tensors_module(), maths)
    # Of each seed: two operands and the result, of two gradients, none left out between.
    assert sorted(drawn) == list(range(4 * 2 * 3))


def test_what_no_product_has_is_named_a_study():
    assert not Math().is_study
    for one in (Math("e4m3"), Math("mxfp8_e4m3"), Math(rounding="stochastic"), Math(output="e5m2")):
        assert one.is_study
        assert str(one).endswith("(a study)")


@pytest.mark.parametrize(
    ("fields", "error", "words"),
    [
        ({"operands": "float61"}, UnsupportedError, "float61"),
        ({"accumulation": "blok:16:RNE"}, ConfigError, "Did you mean block:16:RNE"),
        ({"accumulation": "nvidia-a10"}, ConfigError, "is known; there are nvidia-v100, nvidia-a100"),
        ({"accumulation": "block:cube_k:RNE"}, ConfigError, "say the number that cube_k stands for"),
        ({"rounding": "up"}, ConfigError, "one of nearest, stochastic"),
    ],
)
def test_values_without_a_meaning_are_refused(fields, error, words):
    with pytest.raises(error, match=words):
        Math(**fields)


def test_tensors_that_do_not_fit_are_refused():
    given = tensors_module()
    with pytest.raises(ShapeError, match="precision: weight is missing"):
        spread(MODULE_PROBLEM, {name: given[name] for name in ("grad_output", "input")}, [Math()])
    with pytest.raises(ShapeError, match=r"input is of shape \(1,\); the problem needs \(2, 20, 6, 5\)"):
        attribute(MODULE_PROBLEM, {**given, "input": np.ones(1)}, Math())


# A single text would be taken letter by letter; grad_bias is a sum, which no cube multiplies.
@pytest.mark.parametrize("gradients", [["grad_inputs"], ["grad_input", "grad_bias"], "grad_input"])
def test_other_gradients_are_refused(gradients):
    with pytest.raises(ConfigError, match="must be a list of some of grad_input, grad_weight"):
        spread(MODULE_PROBLEM, tensors_module(), [Math()], gradients)
    with pytest.raises(ConfigError, match="must be a list of some of grad_input, grad_weight"):
        attribute(MODULE_PROBLEM, tensors_module(), Math(), gradients)


def test_a_folder_is_identified_from_python(tmp_path):
    write_probe(tmp_path, ("float16",))
    case = ProbeCase("matmul", "float16")
    write_outputs(tmp_path, {case: simulated(case, "910B", "block:16:RZ")})
    (found,) = precision.identify(str(tmp_path))
    assert "block:16:RZ" in [one.model for one in found.left]


def test_every_public_name_is_there():
    assert all(hasattr(precision, name) for name in precision.__all__)
    assert len(set(precision.__all__)) == len(precision.__all__)
