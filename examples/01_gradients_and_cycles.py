"""Gradients of one layer bit for bit, the cycles they take, and what the accumulation model changes.

Run it with `python examples/01_gradients_and_cycles.py`.
"""

import numpy as np

from ascendsim import convolution_backward

BATCH, CHANNELS, SIZE, OUT_CHANNELS, KERNEL = 2, 32, 14, 64, 3

random = np.random.default_rng(0)
grad_output = random.standard_normal((BATCH, OUT_CHANNELS, SIZE, SIZE)).astype(np.float16)
image = random.standard_normal((BATCH, CHANNELS, SIZE, SIZE)).astype(np.float16)
weight = random.standard_normal((OUT_CHANNELS, CHANNELS, KERNEL, KERNEL)).astype(np.float16)


def backward(accumulation=None):
    """Run the layer on one product; positions as in torch.ops.aten.convolution_backward."""
    mask, cube_math_type = (True, True, True), 0
    return convolution_backward(
        *(grad_output, image, weight, [OUT_CHANNELS], [1, 1], [1, 1], [1, 1], False, [0, 0], 1),
        *(mask, cube_math_type),
        product="910B",
        accumulation=accumulation,
    )


result = backward()
print(f"{result.product} ({result.variant}), accumulation {result.accumulation}")
for kernel in result.kernels:
    # The scalar unit S spends most of its time on the entry of the kernel, before the first instruction.
    entry = kernel.timeline.entry_cycles
    busy = {pipe: cycles for pipe, cycles in kernel.busy.items() if pipe != "S"}
    shares = ", ".join(f"{pipe} {cycles / kernel.cycles:.0%}" for pipe, cycles in busy.items())
    print(f"  {kernel.name}: {kernel.cycles} cycles, {entry} of entry, bound by {kernel.bound_by} ({shares})")

# The rounding inside the real cube is published nowhere. How much hangs on it?
for model in ("block:8:RNE", "seq:RNE"):
    other = backward(model)
    same = np.mean(other.grad_weight == result.grad_weight)
    print(f"  {model}: {same:.2%} of grad_weight have the same bits")
