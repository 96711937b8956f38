"""Do all doors take Winograd where the operator does: the interface in C's manner, torch, a network?"""

import numpy as np
import pytest

from ascendsim import ConvProblem, convolution_backward, estimate
from tests.helpers.aclnn_calls import arguments_of, first_phase
from tests.helpers.rules_calls import conv
from tests.helpers.winograd_cases import ONLY_WEIGHT

# 4 x 4 tiles fill half of a cluster, just enough.
SMALLEST = ConvProblem((1, 256, 8, 8), (256, 256, 3, 3), 1, 1)


def drawn(problem):
    rng = np.random.default_rng(3)
    shapes = problem.grad_output, problem.input, problem.weight
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def test_the_interface_asks_for_what_the_operator_does():
    # 16 MiB of the runtime; 256 channels at 16 points of 2 clusters with 32 tiles; both sides re-laid; for
    # each of 32 cores a block of 64 x 64 x 9.
    call = conv((1, 256, 16, 16), (256, 256, 3, 3), 1, groups=1, dtype="float32", mask=ONLY_WEIGHT)
    found = first_phase(call, arguments_of(call, arrays=False), product="950PR_9589")[0]
    assert found == 2**24 + 2 * 16 * 32 * 256 * 4 + 2 * 256 * 256 * 4 + 32 * 64 * 64 * 9 * 4


def test_both_gradients_of_one_call_read_grad_output_each_in_its_own_way():
    # grad_input reads it as it lies; grad_weight has copies of its own under other names.
    r = estimate(SMALLEST, "float32", product="950PR_9589")
    made = {kernel.name: set(kernel.kernel.tensors) for kernel in r.kernels}
    assert made["grad_input"] & made["grad_weight"] <= {"grad_output"}
    assert {"grad_output NDC1HWC0 re-laid", "input NDC1HWC0 re-laid"} <= made["grad_weight"]
    tensors = drawn(SMALLEST)
    rest = (None, 1, 1, 1, False, 0, 1)
    both = convolution_backward(*tensors, *rest, (True, True, False), 0, product="950PR_9589")
    alone = convolution_backward(*tensors, *rest, ONLY_WEIGHT, 0, product="950PR_9589")
    assert np.array_equal(both.grad_weight.view(np.uint32), alone.grad_weight.view(np.uint32))


def test_a_script_of_torch_gets_the_bits_of_winograd():
    from tests.helpers.torch_samples import door, torch

    grad_output, input, weight = map(torch.from_numpy, drawn(SMALLEST))
    weight.requires_grad_()
    with door.Simulation(product="950PR_9589"):
        torch.nn.functional.conv2d(input, weight, padding=1).backward(grad_output)
    rest = (None, 1, 1, 1, False, 0, 1, ONLY_WEIGHT, 0)
    direct = convolution_backward(*drawn(SMALLEST), *rest, product="950PR_9589", timing=False)
    asked = estimate(SMALLEST, "float32", product="950PR_9589", output_mask=ONLY_WEIGHT)
    assert asked.plans["grad_weight"].schedule == "wgrad_winograd"
    assert np.array_equal(weight.grad.numpy().view(np.uint32), direct.grad_weight.view(np.uint32))


@pytest.mark.parametrize("start", ["warm", "cold", "handed", "chained"])
def test_every_start_of_l2_times_it(start):
    options = {"product": "950PR_9589", "output_mask": ONLY_WEIGHT, "l2_start": start}
    assert estimate(SMALLEST, "float32", **options).cycles > 0
