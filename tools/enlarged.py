"""Make every figure of every product better, alone, and list the layers of ResNet-50 that come out slower.

    python tools/enlarged.py [--batch 32] [--jobs N] [--store FILE] [--sample] [PRODUCT ...]

It writes reports/enlarged.md. Some 11,000 calls, a quarter of an hour of one core; kept in FILE, so that a
second run goes on where the first ended. With --sample only the section on other starts of L2 is made anew.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ascendsim import ConvProblem, estimate, load_profile
from ascendsim.ops.results import Estimate
from ascendsim.profile import Change, Profile
from ascendsim.report.markdown import markdown_table
from ascendsim.studies.engine.run import Budget, Engine, Store
from ascendsim.studies.hardware.figures import enlargings
from ascendsim.studies.hardware.gains import study_hardware
from ascendsim.studies.hardware.records import Gain, LayerGain, Question, StudiedLayer
from ascendsim.studies.table import Table, text_table
from ascendsim.studies.tuning.tune import kernel_parts
from ascendsim.workloads import load_workload

PAGE = Path(__file__).parent.parent / "reports" / "enlarged.md"
PRODUCTS = ("910B2", "910_93", "910_95", "310P", "910")
# A start that misses: all that is shared has a say, memory too.
STARTS = ("handed",)
# The others, of fewer layers: a 1x1 at the largest image, a 3x3, the shortcut with the most weights.
SAMPLE_STARTS = ("warm", "chained")
SAMPLE = ("s2b1_1x1a", "s3b1_3x3", "s5b0_proj")
# Figures of what no kernel of these calls does, by the begin of their paths: they are enlarged all at once.
UNUSED = (
    *(f"paths.{name}." for name in ("L1_BT", "L1_FB", "L1_GM", "L0C_L1", "GM_L0A", "GM_L0B", "L1_UB")),
    *("buffers.BT.", "buffers.FB.", "vector.kind_", "vector.group_"),
    *(f"vector.repeat_cycles.{name}" for name in ("divide", "exp", "multiply_add", "reduce_", "shift")),
    *(f"vector.repeat_cycles.{name}" for name in ("scalar", "compare", "sort", "gather", "filter", "deq")),
)


@dataclass(frozen=True)
class Slower:
    """One layer that a better figure makes slower, under the better of its plans."""

    change: str
    start: str
    layer: LayerGain
    kernel: str
    before: int
    after: int
    waits: str

    @property
    def share(self) -> float:
        """Part of the kernel's cycles by which it is slower."""
        return self.after / self.before - 1


def changes_of(profile: Profile) -> tuple[Change, ...]:
    """Return the changes of a product: each figure alone, and those that nothing uses together."""
    every = enlargings(profile)
    idle = [change for change in every if change.name.startswith(UNUSED)]
    alone = tuple(change for change in every if change not in idle)
    values = {path: value for change in idle for path, value in change.figures.items()}
    return (*alone, Change(f"{len(values)} figures that no kernel uses", values)) if values else alone


def layers_of(batch: int, names: Sequence[str] = ()) -> tuple[StudiedLayer, ...]:
    """Return layers of ResNet-50, all unless they are named, with the gradients that training asks for."""
    rows = [row for row in load_workload("resnet50").convolutions if not names or row.name in names]
    return tuple(StudiedLayer(row.name, ConvProblem(**row.problem_options(batch)), row.mask) for row in rows)


def slower_of(product: str, gain: Gain, layers: Sequence[StudiedLayer]) -> Iterator[Slower]:
    """Yield the layers that a change makes slower, with the kernel that loses most."""
    usual = load_profile(product)
    changed = load_profile(product, overrides={path: new for path, (_, new) in gain.figures.items()})
    for layer, row in zip(layers, gain.layers, strict=True):
        if row.speed_us <= row.base_us:
            continue
        call = partial(estimate, layer.problem, output_mask=layer.gradients, l2_start=gain.start)
        before = call(product=usual)
        plans = {kernel.name: kernel.plan for kernel in before.kernels if kernel.plan}
        after = call(product=changed, tiling=plans if row.speed_us == row.same_us else None)
        yield _worst(gain, row, before, after)


def _worst(gain: Gain, row: LayerGain, before: Estimate, after: Estimate) -> Slower:
    pairs = zip(before.kernels, after.kernels, strict=True)
    old, new = max(pairs, key=lambda pair: pair[1].time_us - pair[0].time_us)
    pipe = "M" if old.plan else old.bound_by
    sides = kernel_parts(old, pipe), kernel_parts(new, pipe)
    differences = {name: sides[1].get(name, 0) - sides[0].get(name, 0) for name in sides[0] | sides[1]}
    moved = sorted(((by, name) for name, by in differences.items() if by), reverse=True)
    waits = f"{pipe}: " + ", ".join(f"{name} {by:+,}" for by, name in moved)
    return Slower(gain.change, gain.start, row, old.name, old.cycles, new.cycles, waits)


@dataclass(frozen=True)
class Found:
    """What enlarging each figure of a product gave under some starts: numbers, and what comes out slower."""

    figures: int
    calls: int
    slower: tuple[Slower, ...]

    @property
    def cells(self) -> tuple[str, ...]:
        """The cells of a summary."""
        most = max((-100 * one.layer.share for one in self.slower), default=0)
        return str(self.figures), f"{self.calls:,}", str(len(self.slower)), f"{most:.3f}"


def studied(
    product: str, layers: Sequence[StudiedLayer], starts: Sequence[str], engine: Engine
) -> dict[str, Found]:
    """Return what comes out slower under each start; a call is a pair of a figure and a layer."""
    changes = changes_of(load_profile(product))
    asked = Question("ResNet-50", product, tuple(layers), changes, tuple(starts), doubt=False)
    answer, _ = study_hardware(asked, engine, Budget())
    found = {}
    for start in starts:
        gains = [gain for gain in answer.gains if gain.start == start]
        slower = [one for gain in gains for one in slower_of(product, gain, layers)]
        found[start] = Found(len(changes), sum(len(gain.layers) for gain in gains), tuple(slower))
    return found


COLUMNS = ("figures", "calls", "slower", "most, % of the call")


def page(batch: int, found: dict[str, dict[str, Found]]) -> str:
    """Return the page without its last section: a row for each product, then every case."""
    rows = tuple((product, *one.cells) for product, of in found.items() for one in of.values())
    summary = text_table("", ("product", *COLUMNS), frozenset({0}), rows)
    lines = [HEAD.format(batch=batch), markdown_table(summary)]
    for product, of in found.items():
        slower = [case for one in of.values() for case in one.slower]
        if slower:
            lines += [f"## {product}", markdown_table(_cases(slower))]
    return "\n\n".join(lines) + "\n"


def sample_section(batch: int, found: dict[str, dict[str, Found]]) -> str:
    """Return the last section: a row for each start and product, then every case."""
    rows = tuple(
        (start, product, *of[start].cells) for start in SAMPLE_STARTS for product, of in found.items()
    )
    summary = text_table("", ("L2", "product", *COLUMNS), frozenset({0, 1}), rows)
    lines = [SAMPLE_HEAD.format(batch=batch, layers=", ".join(SAMPLE)), markdown_table(summary)]
    for product, of in found.items():
        slower = [case for one in of.values() for case in one.slower]
        if slower:
            lines += [f"Of {product}:", markdown_table(_cases(slower))]
    return "\n\n".join(lines) + "\n"


def _cases(slower: Sequence[Slower]) -> Table:
    rows = tuple(
        (
            one.change,
            f"{one.layer.layer}, {one.start}",
            f"{one.layer.base_us:.2f} to {one.layer.speed_us:.2f}",
            f"{one.kernel}, {one.before:,} to {one.after:,}",
            f"{100 * one.share:.3f}",
            one.waits,
        )
        for one in sorted(slower, key=lambda one: one.layer.share)
    )
    headings = ("figure", "layer, L2", "call us", "kernel, cycles", "% of it", "where they go")
    return text_table("", headings, frozenset({0, 1, 3, 5}), rows)


HEAD = """\
# Every figure made better

Written by `tools/enlarged.py`: each figure of each product twice as fast or as large, alone, on the 23
layers of ResNet-50 at batch {batch}, both gradients but the first layer's grad_input, L2 handed (other
starts [below](#other-starts-of-l2), of three layers); each gradient under the better of the product's old
and new plan, added sizes left unused where they cost time. Below are all calls that come out slower before
the faster part is held back, as studies do it. The kernel is
the one that loses most, with the cycles of one pipe of the core that ends last: busy, waits and idle add up
to those of the kernel. How a better figure can cost time is said in
[timing.md](../docs/timing.md#a-faster-figure)."""
SAMPLE_TITLE = "## Other starts of L2"
SAMPLE_HEAD = (
    SAMPLE_TITLE
    + """

The same with L2 warm and chained, of three layers alone: {layers}, at batch {batch}. Their kernels are
those of the other layers in kind: pixels without a window, a window, a stride. Warm, a layer that fits L2
misses nothing, so that memory has no say; chained, a kernel finds what those before it have left."""
)


def main() -> None:
    """Study the products and write the page, or its last section alone."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("products", nargs="*", default=PRODUCTS)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--store", type=Path)
    parser.add_argument("--sample", action="store_true", help="only the section on other starts of L2")
    asked = parser.parse_args()
    with Store(asked.store) as store:
        engine = Engine(store, asked.jobs)
        if asked.sample:
            head = PAGE.read_text(encoding="utf-8").partition(SAMPLE_TITLE)[0].rstrip() + "\n"
        else:
            layers = layers_of(asked.batch)
            head = page(asked.batch, {name: studied(name, layers, STARTS, engine) for name in asked.products})
        few = layers_of(asked.batch, SAMPLE)
        sample = {name: studied(name, few, SAMPLE_STARTS, engine) for name in asked.products}
    PAGE.write_text(f"{head}\n{sample_section(asked.batch, sample)}", encoding="utf-8")


if __name__ == "__main__":
    main()
