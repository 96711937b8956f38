"""The layouts in which the cube reads and writes: channels in groups of C0 = 32 bytes.

Groups of a grouped convolution are padded one by one and form the first axis of every layout.

    NDC1HWC0   an activation, (groups, N, D, C1, H, W, C0); H and W may be folded into one axis
    DC1HWC0N   a weight as dgrad reads it, (groups, KD, C1, KH, KW, C0, columns)
    DNC1HWC0   a grad_weight as wgrad writes it, (groups, KD, rows, C1 * KH * KW * C0)
"""

from __future__ import annotations

from ascendsim.numerics.formats.dtypes import DType
from ascendsim.ops.problems.convolution import ConvProblem, Triple
from ascendsim.program.places import GmTensor

# The short side of a fractal, and the block in which GM and UB are moved: 16 channels of 16 bits, 8 of 32.
C0_BYTES = 32


# Changes of layout that a kernel makes, as profilers name them; the last: weights of one group become many.
REGROUPS = "FRACTAL_Z->FRACTAL_Z"
CHANGES = (
    *("NCHW->NC1HWC0", "NC1HWC0->NCHW", "NCHW->FRACTAL_Z", "FRACTAL_Z->NCHW"),
    *("NCDHW->NDC1HWC0", "NDC1HWC0->NCDHW", "NCDHW->FRACTAL_Z_3D", "FRACTAL_Z_3D->NCDHW", REGROUPS),
)


def groups_of(channels: int, c0: int) -> int:
    """Return how many groups of C0 hold so many channels."""
    return -(-channels // c0)


def activation(name: str, p: ConvProblem, size: Triple, channels: int, storage: DType) -> GmTensor:
    """Return an activation in the cube's layout; `channels` are those of one group."""
    # Gradients may merge their groups in different ways: then each reads a copy of its own.
    c0 = C0_BYTES // storage.itemsize
    shape = (p.groups, p.batch, size[0], groups_of(channels, c0), *size[1:], c0)
    grouped = f" in groups of {channels}" if p.groups > 1 else ""
    return GmTensor.of(f"{name} NDC1HWC0{grouped}", shape, storage.name, "input", "NDC1HWC0")
