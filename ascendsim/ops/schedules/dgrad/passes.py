"""The loop nest of grad_input by rows of taps, or by single taps: for kernels that no tile in L1 serves."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain, product
from typing import ClassVar

from ascendsim.errors import ConfigError
from ascendsim.frozen import cached_property
from ascendsim.ops.problems.taps import Taps, cut_taps
from ascendsim.ops.schedules.counted import begins_of
from ascendsim.ops.schedules.dgrad.nest import DgradNest, DgradTiles, Reductions
from ascendsim.ops.schedules.dgrad.shares import DgradShares, ShareTasks
from ascendsim.ops.schedules.order import DgradOrder
from ascendsim.ops.schedules.tiles import Sizes
from ascendsim.program.indices import Number, alike


@dataclass(frozen=True)
class PassTasks(ShareTasks):
    """The cut of a dgrad whose tiles in L1 never serve more taps than a pass takes."""

    def __post_init__(self) -> None:
        """Refuse a tiling that no program can follow."""
        if not (self.tiling.tap_loop and self.gemm.backwards):
            raise ConfigError(
                f"tiling of grad_input: tap_loop is {self.tiling.tap_loop!r}; dgrad_passes takes kh or khkw, "
                "of a convolution that is not transposed; or take dgrad_shares"
            )
        super().__post_init__()

    @property
    def passes(self) -> list[Taps]:
        """The taps of each pass, in the order of the reduction."""
        whole = self.gemm.all_taps
        rows = [whole._replace(row=row, rows=1) for row in range(whole.rows)]
        if self.tiling.tap_loop == "kh":
            return rows
        return [row._replace(col=col, cols=1) for row, col in product(rows, range(whole.cols))]

    @cached_property
    def _boxes(self) -> list[tuple[tuple[Taps, ...], tuple[Taps, ...]]]:
        """The boxes of left and of right tiles in L1 by part: pass after pass."""
        c0, t = self.gemm.sliding.c0, self.tiling
        left, right = t.step_ka * t.base_k, t.step_kb * t.base_k
        found = []
        for channel, channels in self.part_channels:
            own = [taps._replace(channel=channel, channels=channels) for taps in self.passes]
            boxes = [(cut_taps(taps, left, c0), cut_taps(taps, right, c0)) for taps in own]
            lefts, rights = (tuple(chain.from_iterable(side)) for side in zip(*boxes, strict=True))
            found.append((lefts, rights))
        return found

    @cached_property
    def in_row(self) -> bool:
        """Whether pixel tiles must stay inside one row: under one tap a row alone tells what is read."""
        return self.tiling.tap_loop == "khkw" or super().in_row

    def met(self, run: tuple[int, int]) -> frozenset[tuple[int, int]]:
        """Return the passes that read any pixel of grad_output for a pixel range."""
        tile = self.gemm.sliding.tile
        return frozenset(self._pass_of(taps) for taps in self.passes if tile(*run, taps).rows is not None)

    def segments_met(self, passes: frozenset[tuple[int, int]]) -> list[list[int]]:
        """Return of each part of the reduction the numbers of the segments of some passes."""
        found: list[list[int]] = []
        begin = 0
        for part in self.parts:
            found.append([begin + at for at, own in enumerate(part) if self._pass_of(own.left) in passes])
            begin += len(part)
        return found

    def _pass_of(self, box: Taps) -> tuple[int, int]:
        """Return the row, and the column if there is one, of the pass of which a box is a part."""
        return box.row, box.col if self.tiling.tap_loop == "khkw" else 0


class PassNest(DgradNest):
    """As `DgradNest`, but base blocks leave out the passes that meet padding alone.

    If all of them do, the zeros in GM stay.
    """

    def reductions(self, t: DgradTiles, own: Number) -> Reductions:
        """Return what the parts of the reductions of some pixels go through: the segments that they meet."""
        cut = t.cut
        assert isinstance(cut, PassTasks)
        met = [cut.met(run) for run in t.runs]
        found = [cut.segments_met(passes) for passes in dict.fromkeys(met)]
        listed = [part for parts in found for part in parts]
        like = self.table(alike(met), name="like")[own]
        segments, counts = [segment for part in listed for segment in part], [len(part) for part in listed]
        return Reductions(
            self.spans(counts, name="met"),
            like * len(cut.parts),
            segments,
            begins_of(counts),
            self.table(segments, len(t.segments), "segment"),
        )


@dataclass(frozen=True)
class DgradPasses(DgradShares):
    """As `DgradShares`, but with a loop over rows of taps, or over taps, outside of the products.

    A tile in L1 serves one row of taps (`tap_loop` "kh"), or one tap ("khkw"), so that it has no rows around
    those of its pixels, and no kernel is too large for it. The sum stays in L0C from pass to pass. A pass
    that reads nothing but padding, or zeros between pixels, is left out, so the result is cleared first. With
    one tap at a time base blocks end where rows of pixels end.

    Raises   ConfigError without such a loop, or for a transposed convolution
    """

    name: ClassVar[str] = "dgrad_passes"
    reads: ClassVar[frozenset[str]] = DgradShares.reads | {"tap_loop"}

    @cached_property
    def tasks(self) -> PassTasks:
        """The base blocks, and the cut of their reduction."""
        return PassTasks(self.gemm, self.tiling, self.profile)

    @property
    def needs_zeros(self) -> bool:
        """Always, as base blocks that read no pixel are not written."""
        return True

    def nest(self, sizes: Sizes) -> DgradNest:
        """Return the loop nest of all cores that reserve so much."""
        return PassNest(self.name, self.tasks, sizes, self.target)

    def order(self) -> DgradOrder:
        """Return the slices of each part of the reduction, and the runs of pixels that leave passes out."""
        return replace(super().order(), tap_loop=self.tiling.tap_loop, tiles=tuple(self.tasks.pixel_tiles))
