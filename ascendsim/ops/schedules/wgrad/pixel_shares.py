"""The cut of a wgrad whose parts are shares of the pixels of an image; tiles in L1 are of two lengths."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ascendsim.errors import ConfigError
from ascendsim.frozen import cached_property
from ascendsim.ops.schedules.numbering import Ranges, cut, cut_within
from ascendsim.ops.schedules.wgrad.columns import Columns, column_blocks, range_in_row, whole_taps
from ascendsim.ops.schedules.wgrad.tasks import WgradTasks

if TYPE_CHECKING:
    from ascendsim.ops.problems.strips import Numbers


@dataclass(frozen=True)
class PixelShares(WgradTasks):
    """The cut of a wgrad whose reduction is dealt in shares of so many pixels of an image."""

    one_length: ClassVar[bool] = False
    # What says how long a share is.
    cut_by: ClassVar[str] = "single_core_k"

    def __post_init__(self) -> None:
        """Refuse a tiling that no program can follow."""
        super().__post_init__()
        t = self.tiling
        if max(t.step_ka, t.step_kb) % min(t.step_ka, t.step_kb):
            raise ConfigError(
                f"tiling of grad_weight: step_ka is {t.step_ka} and step_kb is {t.step_kb}; one must divide "
                "the other, so that a tile of one operand serves whole tiles of the other"
            )
        if range_in_row(self.gemm, t, self.l1_budget):
            raise ConfigError(
                "tiling of grad_weight: whole rows of the image do not fit in L1, so that its pixels cannot "
                f"be cut by {self.cut_by}; make base_n or step_kb smaller"
            )

    @property
    def share(self) -> int:
        """Pixels of a share but the last."""
        pixels: int = self.gemm.sliding.pixels
        return min(self.tiling.single_core_k or pixels, pixels)

    @cached_property
    def pixel_shares(self) -> Ranges:
        """Pixel ranges of the shares of one image."""
        return cut(self.gemm.sliding.pixels, self.share)

    @cached_property
    def ranges_of_image(self) -> list[tuple[int, int]]:
        """The pixels of each range in one image: those of the shares, cut for the shorter tiles in L1."""
        t = self.tiling
        return cut_within(self.pixel_shares, min(t.step_ka, t.step_kb) * t.base_k)

    @cached_property
    def column_blocks(self) -> list[Columns]:
        """Column blocks at one kernel depth, with all taps of what they touch if L1 holds these."""
        blocks = whole_taps(self.gemm, self.tiling)
        pixels, tile_bytes = self.tiling.step_kb * self.tiling.base_k, self.gemm.sliding.tile_bytes
        # The blocks themselves tell what they touch: where windows and blocks divide each other, less than a
        # block that may begin anywhere.
        need = max(tile_bytes(pixels, block.box, in_row=False) for block in blocks)
        return blocks if need <= self.l1_budget else column_blocks(self.gemm, self.tiling, self.l1_budget)

    def left_tiles(self, runs: Numbers) -> Numbers:
        """Return the pixels of the left tiles in L1 that serve some runs."""
        return self._tiles_of(runs, self.tiling.step_ka)

    def right_tiles(self, runs: Numbers) -> Numbers:
        """Return the pixels of the right tiles in L1 that serve some runs."""
        return self._tiles_of(runs, self.tiling.step_kb)

    def _tiles_of(self, runs: Numbers, step: int) -> Numbers:
        """Return the tiles of so many slices, counted from where a share begins, that some runs lie in."""
        share, length = self.share, step * self.tiling.base_k
        begin = runs[:, 0] // share * share
        first = begin + (runs[:, 0] - begin) // length * length
        end = np.minimum(begin + share, self.gemm.sliding.pixels)
        return np.column_stack([first, np.minimum(length, end - first)])

    @cached_property
    def ranges_of_share(self) -> list[slice]:
        """The ranges of each share, by number."""
        step = min(self.tiling.step_ka, self.tiling.step_kb) * self.tiling.base_k
        counts = [-(-pixels // step) for _, pixels in self.pixel_shares]
        return [slice(*ends) for ends in pairwise(accumulate(counts, initial=0))]
