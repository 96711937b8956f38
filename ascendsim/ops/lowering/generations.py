"""What the shipped operators of each generation of the core do around the cube, as data."""

from __future__ import annotations

from dataclasses import dataclass

# How a lowered kernel rounds float32 operands to HF32. Convolution kernels only switch HF32 on and leave the
# control bit of the rounding as it is at launch; matrix products set it.
# Source: rule book of arithmetic, section 1 (operators' kernels); the bit's meaning is the Matmul API page's.
HF32_TIES = {"convolution backward": "RNE", "convolution forward": "RNE", "matrix product": "RNA"}


@dataclass(frozen=True)
class Generation:
    """Describe one generation.

    npu_arch           the vendor's number of it
    deterministic_sum  how parts of grad_weight that were kept apart are added: "in order", or "tree" (binary,
                       stride doubling)
    squeezes_groups    True: a float32 grad_weight of a grouped convolution in a 16-bit type goes through
                       float16 on its way out
    half_accumulator   True: a float16 product can be accumulated in float16
    source             where this is from
    """

    npu_arch: str
    deterministic_sum: str
    squeezes_groups: bool
    half_accumulator: bool
    source: str


OLD = "operator interface code (not 3510); order as on 2201, assumed; Mmad page (half accumulator)"
A2 = "grad_weight kernel; operator interface code, output processing; Mmad page"
A5 = "grad_weight kernel, its stream-K tail; Mmad page"
GENERATIONS = (
    Generation("1001", "in order", True, True, OLD),
    Generation("2002", "in order", True, True, OLD),
    Generation("2201", "in order", True, False, A2),
    Generation("3510", "tree", False, False, A5),
)
# A machine of the user's own: nothing is squeezed, and parts are added in order.
UNKNOWN = Generation("", "in order", False, False, "not a product: the plainest choice")


def generation(npu_arch: str) -> Generation:
    """Return the generation with that number, or the plainest one for a machine that is no product."""
    return next((known for known in GENERATIONS if known.npu_arch == npu_arch), UNKNOWN)
