"""The types of the kernels that make a gradient on the cube: which of the operators' kernels a call runs."""

from __future__ import annotations

from ascendsim.ops.lowering.call import Call
from ascendsim.ops.problems.products import takes_blocks

# What one row of windows of the zero-filled grad_output may hold for the newer 3-D kernel.
MOST_WINDOW = 4096


def grad_input_type(call: Call) -> str:
    """Return the type of the kernel of grad_input.

    Source   operator interface code; the shapes that its own lists name are not known, and count as others
    """
    p = call.problem
    if p.transposed:
        # The gradient of a transposed convolution is a plain one; 910_95 sees every rank as a volume.
        return "Conv3DV2" if p.rank == 3 or not call.generation.changes_layouts else "Conv2D"
    if not call.generation.changes_layouts:
        return "Conv3DBackpropInputV2"
    if p.rank < 3:
        return "Conv2DBackpropInput"
    return "Conv3DBackpropInputV2" if _newer_input(call) else "Conv3DBackpropInput"


def _newer_input(call: Call) -> bool:
    """Return whether a 3-D grad_input takes the newer kernel."""
    p = call.problem
    _, stride, _ = p.strides
    window = min(2 + (p.kernel[1] - 1) * p.dilations[1], (p.small_size[1] - 1) * stride + 1)
    if window * p.small_size[2] * p.strides[2] > MOST_WINDOW:
        return False
    depth, height, width = p.big_size
    small = max(p.strides) <= 2 and max(map(max, p.pads)) <= 2 and max(p.kernel) <= 4
    return (
        call.storage.name == "float32" or p.groups > 1 or (small and height * width >= 5500 and depth <= 85)
    )


def grad_weight_type(call: Call) -> str:
    """Return the type of the kernel of grad_weight; source as `grad_input_type`."""
    p = call.problem
    if not call.generation.changes_layouts:
        return "Conv3DBackpropFilterV2"
    if p.rank < 3:
        # A deterministic sum needs the newer kernel, over a view with more axes; unified cores have none.
        newer = call.deterministic and call.profile.core_structure == "split"
        return "Conv3DBackpropFilterV2" if newer else "Conv2DBackpropFilter"
    return "Conv3DBackpropFilterV2" if _newer_weight(call) else "Conv3DBackpropFilter"


def _newer_weight(call: Call) -> bool:
    """Return whether a 3-D grad_weight takes the newer kernel."""
    p = call.patches.problem if call.patches else call.problem
    if call.storage.name == "float32" or max(p.dilations) > 1 or p.groups > 1 or call.deterministic:
        return True
    return takes_blocks(p.kernel, p.small_channels, p.big_channels)
