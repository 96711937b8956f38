"""Are the gradients of many lines made as those of one image whose rows they are, between Transposes?

Only 910_95 does so, of batches of 1500 to 4096. Kernels that are executed here are of small batches, for
which the least one is lowered.
"""

from dataclasses import replace

import numpy as np
import pytest

from ascendsim import ConvProblem, convolution_backward, estimate
from ascendsim.ops.lowering.cube import grad_input_type
from ascendsim.ops.problems import folded
from ascendsim.ops.problems.folded import Folded, kernel_problem
from ascendsim.ops.reference.call import reference_gradients
from ascendsim.profile import load_profile
from tests.helpers.both_engines import time_kernel
from tests.helpers.conv_cases import assert_same_bits, call_of, run, tensors_of

NEW, OLD = load_profile("950PR_9599", {"cores.cube": 4, "cores.vector": 8}), load_profile("910B2")
LINES = ConvProblem((2048, 20, 30), (24, 20, 3), 2, 1)
GRADIENTS = ("grad_input", "grad_weight")
# Small ones, folded once the least batch is 2: strides, gaps, groups that are merged, kernels side by side.
SMALL = {
    "plain": ConvProblem((5, 20, 13), (24, 20, 3), 1, 1),
    "strided": ConvProblem((3, 18, 16), (40, 18, 4), 2, 1),
    "dilated": ConvProblem((4, 16, 15), (16, 16, 3), 1, 2, 2),
    "grouped": ConvProblem((3, 24, 9), (24, 4, 3), 1, 1, groups=6),
    "side by side": ConvProblem((3, 6, 32), (20, 6, 8), 8),
}


@pytest.fixture
def small_batches(monkeypatch):
    monkeypatch.setattr(folded, "LEAST_BATCH", 2)


# --- which


@pytest.mark.parametrize(("batch", "folds"), [(1499, False), (1500, True), (4096, True), (4097, False)])
@pytest.mark.parametrize("gradient", GRADIENTS)
def test_batches_of_1500_to_4096_lines_are_folded(batch, folds, gradient):
    p = replace(LINES, input=(batch, 20, 30))
    found = Folded.of(p, gradient, NEW)
    assert (found is not None) is folds
    # Lines of 30 pixels in 20 channels are the rows of one image; a kernel of one row meets one line alone.
    expected = ConvProblem((1, 20, batch, 30), (24, 20, 1, 3), (1, 2), (0, 1)) if folds else p
    assert kernel_problem(p, gradient, "float16", NEW) == expected


@pytest.mark.parametrize(
    ("problem", "profile"),
    [
        (LINES, OLD),
        (ConvProblem((2048, 20, 3, 30), (24, 20, 1, 3)), NEW),  # images of three rows
        (ConvProblem((2048, 20, 30), (20, 24, 3), transposed=True), NEW),
    ],
    ids=["910B", "2-D", "transposed"],
)
def test_others_are_not(problem, profile):
    assert not any(Folded.of(problem, gradient, profile) for gradient in GRADIENTS)


def test_the_image_has_the_macs_of_the_lines():
    assert Folded.of(LINES, "grad_input", NEW).problem.macs == LINES.macs


# --- the graph


def kernels(problem, mask=(True, True, True), dtype="float16", **options):
    made = estimate(problem, dtype, product="910_95", output_mask=mask, **options)
    return [(kernel.name, kernel.kernel.op_type) for kernel in made.kernels]


def test_each_gradient_stands_between_its_transposes():
    assert kernels(LINES) == [
        ("grad_bias", "ReduceSum"),
        ("transpose_grad_output", "Transpose"),
        ("grad_input", "Conv3DBackpropInputV2"),
        ("transpose_grad_input", "Transpose"),
        ("transpose_grad_output_2", "Transpose"),
        ("transpose_input", "Transpose"),
        ("grad_weight", "Conv3DBackpropFilterV2"),
        ("cast_grad_weight", "Cast"),
    ]
    assert [name for name, _ in kernels(LINES, (True, False, False))] == [
        *("transpose_grad_output", "grad_input", "transpose_grad_input")
    ]
    assert [kind for _, kind in kernels(LINES, (False, True, False), "float32")] == [
        *("Transpose", "Transpose", "Conv3DBackpropFilterV2")
    ]


def test_a_transpose_moves_the_tensor_once_each_way():
    [kernel] = [
        kernel
        for kernel in estimate(LINES, product="910_95", output_mask=(True, False, False)).kernels
        if kernel.name == "transpose_grad_input"
    ]
    # Each of the 2048 x 20 lines of 30 halves is written once, wherever it was read from.
    assert kernel.bytes["l2_write"] == 2048 * 20 * 30 * 2
    assert kernel.kernel.facts["shape"] == (2048, 20, 30)


def test_the_plan_is_that_of_the_image():
    image = Folded.of(LINES, "grad_input", NEW).problem
    mask = (True, False, False)
    lines, rows = (
        estimate(p, product="910_95", output_mask=mask).plans["grad_input"] for p in (LINES, image)
    )
    assert lines == rows


def test_short_lines_are_worth_their_transposes(monkeypatch):
    # Seven pixels fill less than half of a fractal of 16 rows; all lines one after the other fill them all.
    short = ConvProblem((2048, 128, 7), (128, 128, 3), 1, 1)
    made = estimate(short, product="910_95", output_mask=(True, False, False))
    monkeypatch.setattr(folded, "LEAST_BATCH", 4000)
    apart = estimate(short, product="910_95", output_mask=(True, False, False))
    assert [kernel.name for kernel in apart.kernels] == ["grad_input"]
    assert 2 * made.cycles < apart.cycles


# --- bits


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("name", SMALL)
def test_the_bits_are_those_of_its_order(name, dtype):
    problem = SMALL[name]
    call, tensors = call_of(problem, dtype, profile=NEW), tensors_of(problem, dtype)
    assert call.folded("grad_input")
    assert bool(call.folded("grad_weight")) is (name != "side by side")
    made = run(call, tensors, "arrival", (True, True, False))[0]
    want = reference_gradients(call, **tensors, mask=(True, True, False))
    for gradient in GRADIENTS:
        assert_same_bits(made[gradient], want[gradient])


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("name", SMALL)
def test_gradients_without_instructions_have_the_same_bits(name):
    p = SMALL[name]
    tensors = [values.astype(np.float16) for values in tensors_of(p, "float16").values()]
    rest = [p.grad_output[1]], p.stride, p.padding, p.dilation, False, 0, p.groups, (True, True, True), 0
    timed, made = (convolution_backward(*tensors, *rest, product=NEW, timing=way) for way in (True, False))
    for gradient in GRADIENTS:
        assert getattr(made, gradient).tobytes() == getattr(timed, gradient).tobytes()
        assert getattr(made, gradient).shape == (p.input if gradient == "grad_input" else p.weight)


@pytest.mark.usefixtures("small_batches")
def test_small_integers_are_the_gradients_of_the_lines():
    # Exact sums have no order: the definition on the lines themselves, no image in sight.
    p = SMALL["plain"]
    rng = np.random.default_rng(3)
    g, x, w = (rng.integers(-3, 4, shape).astype(np.float16) for shape in (p.grad_output, p.input, p.weight))
    made = convolution_backward(g, x, w, [24], 1, 1, 1, False, 0, 1, (True, True, True), 0, product=NEW)
    padded = np.pad(x.astype(float), ((0, 0), (0, 0), (1, 1)))
    wide, weight = np.zeros(padded.shape), np.zeros(w.shape)
    for tap in range(3):
        seen = slice(tap, tap + p.grad_output[2])
        wide[:, :, seen] += np.einsum("nol,oc->ncl", g.astype(float), w[:, :, tap].astype(float))
        weight[:, :, tap] = np.einsum("nol,ncl->oc", g.astype(float), padded[:, :, seen])
    assert np.array_equal(made.grad_input, wide[:, :, 1:-1])
    assert np.array_equal(made.grad_weight, weight)


@pytest.mark.usefixtures("small_batches")
def test_engines_agree():
    from ascendsim.ops.lowering.known import lower

    for kernel in lower(call_of(SMALL["strided"], profile=NEW), (True, True, False)).kernels:
        assert time_kernel(kernel, NEW).cycles > 0
    assert grad_input_type(call_of(SMALL["strided"], profile=NEW)) == "Conv3DBackpropInputV2"
