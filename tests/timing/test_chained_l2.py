"""Do kernels of one call find in L2 what those before them have left (`l2_start="chained"`)?"""

import numpy as np
import pytest

from ascendsim import ConvProblem, convolution_backward, estimate
from ascendsim.errors import ConfigError
from ascendsim.profile import load_profile
from ascendsim.timing.kernel import measure_kernel
from ascendsim.timing.l2.account import left_by

FLAT = ConvProblem((2, 32, 12, 12), (48, 32, 3, 3), 1, 1)
BOTH = (True, True, False)


def kernels(product="910B", start="chained", problem=FLAT, mask=BOTH, **options):
    found = estimate(problem, product=product, output_mask=mask, l2_start=start, **options)
    return {kernel.name: kernel for kernel in found.kernels}


def from_memory(kernel):
    return kernel.bytes["memory_read"]


def test_the_first_kernel_begins_with_an_empty_l2():
    (first, *_), (cold, *_) = (list(kernels(start=start).values()) for start in ("chained", "cold"))
    assert (first.cycles, first.bytes) == (cold.cycles, cold.bytes)


def test_each_kernel_is_timed_with_what_the_ones_before_have_left():
    profile, held = load_profile("910B"), {}
    for made in kernels().values():
        assert made.cycles == measure_kernel(made.kernel, profile, l2_start=held).cycles, made.name
        held = left_by(made.kernel, profile, held)


def test_what_was_just_written_is_not_fetched():
    made, cold = kernels(), kernels(start="cold")
    # 2 x 48 x 144 and 2 x 32 x 144 numbers of 2 bytes are packed just before, and the weights
    for name in ("grad_input", "grad_weight", "transdata_grad_input", "transdata_grad_weight"):
        assert from_memory(made[name]) == 0, name
        assert from_memory(cold[name]) > 0, name
    # grad_output itself is still there when its layout is changed a second time.
    grad_output = 2 * 48 * 144 * 2
    assert from_memory(made["transdata_grad_output"]) == grad_output
    assert from_memory(made["transdata_grad_output_2"]) == 0
    assert made["transdata_grad_output_2"].cycles < made["transdata_grad_output"].cycles


@pytest.mark.parametrize(("start", "fetched"), [("handed", 0), ("chained", 1), ("cold", 1)])
def test_a_change_of_layout_finds_what_it_reads_where_each_kernel_is_handed_its_first_input(start, fetched):
    made = kernels(start=start)
    # The first readers of the tensors of the user, be it the gradient that the layer behind has just written
    # or what the forward pass has left long ago.
    sizes = {"grad_output": 2 * 48 * 144, "weight": 48 * 32 * 9, "input": 2 * 32 * 144}
    for name, size in sizes.items():
        found = from_memory(made[f"transdata_{name}"])
        # Numbers of 2 bytes; what does not begin at a sector comes with the rest of it.
        assert bool(found) == bool(fetched), name
        assert found >= fetched * size * 2, name


def test_a_tensor_that_the_cube_reads_as_it_is_stays_known():
    # The 950 packs nothing: its grad_weight finds the grad_output that grad_input has read.
    # Planned by our search: stream-K has vector cores that read parts of the sum from memory, too.
    made, alone = (kernels("910_95", mask=mask, tiling="search") for mask in (BOTH, (False, True, False)))
    assert from_memory(alone["grad_weight"]) - from_memory(made["grad_weight"]) == 2 * 48 * 144 * 2


@pytest.mark.parametrize("product", ["910B", "910_95", "310P"])
def test_both_engines_and_a_run_with_tensors_say_the_same(product):
    found = kernels(product)
    simpy = kernels(product, engine="simpy")
    random = np.random.default_rng(0)
    shapes = (FLAT.grad_output, FLAT.input, FLAT.weight)
    tensors = [random.standard_normal(shape).astype(np.float16) for shape in shapes]
    run = convolution_backward(
        *tensors, None, 1, 1, 1, False, 0, 1, BOTH, 0, product=product, l2_start="chained"
    )
    ran = {kernel.name: kernel for kernel in run.kernels}
    for name, kernel in found.items():
        assert kernel.cycles == simpy[name].cycles == ran[name].cycles == kernel.timeline.cycles, name
        assert kernel.bytes == simpy[name].bytes == ran[name].bytes, name


def test_the_result_says_how_its_kernels_found_l2():
    notes = estimate(FLAT, l2_start="chained", output_mask=BOTH).notes
    assert any("what those before it have left" in note for note in notes)
    with pytest.raises(ConfigError, match="warm, cold, handed, chained"):
        estimate(FLAT, l2_start="linked")
