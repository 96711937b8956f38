"""Choices of a generation of the core: conversions, ties, sums and accumulators around the cube."""

from collections.abc import Mapping
from typing import NamedTuple


class Generation(NamedTuple):
    """Choices that all products of one npu_arch share; a file in configs/generations holds them.

    inf_nan_formats            formats whose conversions can deliver Inf and NaN; the others saturate
    inf_nan_at_launch          CTRL[48] as a kernel finds it: True delivers Inf and NaN, False saturates
    global_rules_at_launch     CTRL[60] likewise: True lets CTRL[48] decide, False each instruction
    fixpipe_saturated_formats  formats that Fixpipe saturates in any case, if the C-API pages are right
    deterministic_sum          how parts of grad_weight that were kept apart are added: "in order", or "tree"
                               (binary, stride doubling)
    squeezes_groups            True: a float32 grad_weight of a grouped convolution in a 16-bit type goes
                               through float16 on its way out
    half_accumulator           True: a float16 product can be accumulated in float16
    changes_layouts            True: TransData kernels bring tensors into the cube's layouts and back; False:
                               the cube's kernels read and write row after row
    writes_rows_in_3d          True: the kernel of a 16-bit 3-D grad_input writes row after row all the same
    loads_ahead                True: kernels of 3-D gradients call for the next tiles of L1 before they read
                               those at hand, and grad_input takes the slots of L1 in turn; False: it counts
    hf32_ties                  how float32 becomes HF32 in the kernels of convolution_backward,
                               convolution_forward (grad_input of a transposed one) and matmul
    """

    inf_nan_formats: tuple[str, ...]
    inf_nan_at_launch: bool
    global_rules_at_launch: bool
    fixpipe_saturated_formats: tuple[str, ...]
    deterministic_sum: str
    squeezes_groups: bool
    half_accumulator: bool
    changes_layouts: bool
    writes_rows_in_3d: bool
    loads_ahead: bool
    hf32_ties: Mapping[str, str]
