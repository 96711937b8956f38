"""Do `spread` and `attribute` say how far gradients are from float64, and why?"""

from dataclasses import replace

import numpy as np
import pytest

import ascendsim.precision as precision
from ascendsim import ConvProblem, convolution_backward
from ascendsim.errors import ConfigError, ShapeError, UnsupportedError
from ascendsim.numerics.accumulation.models import AccumulationModel
from ascendsim.precision import GPUS, Math, attribute, spread
from ascendsim.studies.arithmetic.math import accumulators, checked, operands_of
from ascendsim.studies.identify.folder import write_outputs, write_probe
from ascendsim.studies.identify.vectors import Case, simulated

PROBLEM = ConvProblem((2, 20, 6, 5), (18, 20, 3, 3), 1, 1)
TRANSPOSED = ConvProblem((1, 6, 4, 4), (6, 5, 3, 3), 2, 1, transposed=True, output_padding=1)
BOTH = ("grad_input", "grad_weight")


def tensors(problem=PROBLEM, seed=0):
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(getattr(problem, name)) for name in ("grad_output", "input", "weight")}


def judged(maths, problem=PROBLEM, **options):
    return {(one.math, one.gradient): one for one in spread(problem, tensors(problem), maths, **options)}


@pytest.mark.parametrize("problem", [PROBLEM, TRANSPOSED], ids=["plain", "transposed"])
@pytest.mark.parametrize("model", ["seq:RNE", "exact:RNE"])
def test_gradients_are_those_of_the_product(problem, model):
    # In models that no plan touches: one part of the reduction, and every product in its place.
    given, math = tensors(problem), Math("float16", model)
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
    found = judged([first, other, first])
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
    found = judged([here, there], gradients=("grad_input",))
    # In float32 nearly every bit pattern differs; both are as far from float64 as their operands are.
    assert found[str(there), "grad_input"].different > 0.5
    errors = [one.errors.rel_l2 for one in found.values()]
    assert errors[0] == pytest.approx(errors[1], rel=0.01)
    assert str(there) == "float16, nvidia-a100, float32 (a study)"


def test_every_gpu_is_an_align_model_with_a_source():
    for gpu in GPUS.values():
        model = AccumulationModel.parse(gpu.model)
        assert (model.kind, model.rounding, model.with_accumulator) == ("align", "RZ", True)
        assert gpu.source
        assert gpu.confidence


def test_fewer_bits_are_further_from_float64():
    formats = ["float32", "float16", "bfloat16", "e5m3", "e5m2"]
    found = judged([Math(name) for name in formats], gradients=("grad_weight",))
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
    for one in attribute(PROBLEM, tensors(), math):
        parts = {name: getattr(one, name) for name in ("operands", "accumulation", "output")}
        assert max(parts, key=parts.get) == largest
        assert one.total == pytest.approx(parts[largest], rel=0.01)
        assert one.total <= sum(parts.values()) * (1 + 1e-12)


def test_a_part_that_does_nothing_is_zero():
    small = ConvProblem((1, 1, 1, 1), (1, 1, 1, 1))
    ones = {name: np.ones((1, 1, 1, 1)) for name in ("grad_output", "input", "weight")}
    for one in attribute(small, ones, Math("float16", "seq:RNE", "float16")):
        assert (one.total, one.operands, one.accumulation, one.output, one.of_terms) == (0, 0, 0, 0, 0)


def test_chance_is_fixed_by_its_seed():
    maths = [Math("e4m3", rounding="stochastic", seed=seed) for seed in (1, 1, 2)]
    found = spread(PROBLEM, tensors(), maths, gradients=("grad_input",))
    assert [one.different > 0 for one in found] == [False, False, True]
    assert "rounded by chance (seed 1)" in found[0].math


def test_what_no_product_has_is_named_a_study():
    assert not Math().is_study
    for math in (Math("e4m3"), Math("mx(e4m3)"), Math(rounding="stochastic"), Math(output="e5m2")):
        assert math.is_study
        assert str(math).endswith("(a study)")


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
    given = tensors()
    with pytest.raises(ShapeError, match="precision: weight is missing"):
        spread(PROBLEM, {name: given[name] for name in ("grad_output", "input")}, [Math()])
    with pytest.raises(ShapeError, match=r"input is of shape \(1,\); the problem needs \(2, 20, 6, 5\)"):
        attribute(PROBLEM, {**given, "input": np.ones(1)}, Math())


# A single text would be taken letter by letter; grad_bias is a sum, which no cube multiplies.
@pytest.mark.parametrize("gradients", [["grad_inputs"], ["grad_input", "grad_bias"], "grad_input"])
def test_other_gradients_are_refused(gradients):
    with pytest.raises(ConfigError, match="must be a list of some of grad_input, grad_weight"):
        spread(PROBLEM, tensors(), [Math()], gradients)
    with pytest.raises(ConfigError, match="must be a list of some of grad_input, grad_weight"):
        attribute(PROBLEM, tensors(), Math(), gradients)


def test_a_folder_is_identified_from_python(tmp_path):
    write_probe(tmp_path, ("float16",))
    case = Case("matmul", "float16")
    write_outputs(tmp_path, {case: simulated(case, "910B", "block:16:RZ")})
    (found,) = precision.identify(str(tmp_path))
    assert "block:16:RZ" in [one.model for one in found.left]


def test_every_public_name_is_there():
    assert all(hasattr(precision, name) for name in precision.__all__)
    assert len(set(precision.__all__)) == len(precision.__all__)
