"""The loop nest of grad_input with four channels a tap (C04): few channels leave less of an Mmad empty."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ascendsim.errors import ConfigError
from ascendsim.ops.schedules.dgrad.shares import DgradShares


@dataclass(frozen=True)
class DgradC04(DgradShares):
    """As `DgradShares`, but the reduction has four channels under each tap, where others have C0 of them.

    grad_output and weights of at most four channels lie so in L1 (`DgradGemm.in_fours`); four taps fill the
    32 bytes of a fractal. With 3 channels and 3 x 3 taps a pixel adds 36 products, which take 3 fractals of
    the cube, and not 144 in 9.

    Raises   ConfigError where the operands do not lie so, or the stride or the dilation is not one
    """

    name: ClassVar[str] = "dgrad_c04"
    reads: ClassVar[frozenset[str]] = DgradShares.reads - {*("k_split", "single_core_k", "transpose_first")}

    def __post_init__(self) -> None:
        """Take the product with its operands in fours, and refuse a tiling that no program can follow."""
        sliding = self.gemm.sliding
        plain = {*sliding.stride, *sliding.insert, *sliding.dilation} == {1} and self.gemm.backwards
        # Other cores get their tensors in C0 groups from a kernel before (TransData).
        if not plain or self.profile.generation.changes_layouts:
            raise ConfigError(
                "schedule dgrad_c04: it takes a convolution that is not transposed, of stride and dilation 1 "
                "in H and W, on cores that read the user's tensors as they lie; take dgrad_shares"
            )
        object.__setattr__(self, "gemm", self.gemm.in_fours())
        super().__post_init__()
