"""How fast are gradients without timing?  Run with `python -m benchmarks.gradients`.

- a layer (128->128 3x3 @28, batch 4), both cube gradients end to end, under several models: its share of the
  speed of numpy's float32 matmul of a 128x64x128 tile, one thread, timed in the same run
- the same layer with timing, which is the path of instructions: for a call that has been made before, and
  with its kernels lowered, written down and timed anew
- what share bare panels of accumulators have, which no product can exceed (`panels.py`)
- the layer under models that cut: their share of the speed of their twins that round to nearest
- with instructions against without, for layers of several sizes: how many times as long
- a small layer, and the three backward calls of a small network on images of 8x8: milliseconds
- the layer again on two threads: how many times as fast as on one, by seconds of the processor as
  `factor.py` reckons, both in turn, and on the clock

All but the clock's are seconds of the processor, the shortest of several runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from time import perf_counter, thread_time
from typing import NamedTuple
from unittest.mock import patch

import numpy as np

from ascendsim import ConvProblem, convolution_backward
from ascendsim.ops.lowering.kernels import lower
from benchmarks.accumulation import seconds
from benchmarks.panels import panel_gmacs
from benchmarks.threads import on_free_cores
from benchmarks.whole_calls import LAYER, numpy_gmacs

RUNS = 15
SMALL = ConvProblem(input=(64, 32, 4, 4), weight=(64, 32, 3, 3), padding=1)
# A network for digits of 8x8 pixels, at a batch of 64: two poolings halve the images.
DIGITS = (
    ConvProblem(input=(64, 1, 8, 8), weight=(32, 1, 3, 3), padding=1),
    SMALL,
    ConvProblem(input=(64, 64, 2, 2), weight=(64, 64, 3, 3), padding=1),
)
# Layers that are made with instructions and without: of ResNet-50, of CIFAR, and small ones.
BOTH_WAYS = {
    "128->128 3x3 @28, batch 4": LAYER,
    "256->256 3x3 @14, batch 4": ConvProblem((4, 256, 14, 14), (256, 256, 3, 3), padding=1),
    "256->256 3x3 @14, batch 1": ConvProblem((1, 256, 14, 14), (256, 256, 3, 3), padding=1),
    "256->128 1x1 @28, batch 2": ConvProblem((2, 256, 28, 28), (128, 256, 1, 1)),
    "64->64 3x3 @32, batch 8": ConvProblem((8, 64, 32, 32), (64, 64, 3, 3), padding=1),
    "64 groups 3x3 @28, batch 4": ConvProblem((4, 64, 28, 28), (64, 1, 3, 3), padding=1, groups=64),
    "32->64 3x3 @4, batch 64": SMALL,
    "1->32 3x3 @8, batch 64": DIGITS[0],
}


class Case(NamedTuple):
    """Format, model, whether instructions are run, and the least share of numpy's speed."""

    dtype: str
    model: str
    timing: bool
    target: float


CASES = (
    Case("float16", "block:16:RNE", False, 0.45),
    Case("float16", "seq:RNE", False, 0.9),
    Case("float16", "tree:16:adjacent:RNE", False, 0.3),
    Case("float32", "block:4:RNE", False, 0.15),
    Case("float16", "block:16:RNE", True, 0.25),
)
THREADS_TARGET = 1.5
# Models that are timed with RZ as well, which is to be this share as fast as RNE, or more.
CUT, CUT_TARGET = ("seq", "seq-muladd", "block:16", "tree:16:adjacent"), 0.6


class Call(NamedTuple):
    """A backward call on normal data, ready to be made."""

    problem: ConvProblem
    tensors: tuple[np.ndarray, ...]
    mask: tuple[bool, bool, bool]

    @classmethod
    def of(cls, problem: ConvProblem, dtype: str = "float16", *, image: bool = True) -> Call:
        """Draw the tensors."""
        rng = np.random.default_rng(0)
        shapes = problem.grad_output, problem.input, problem.weight
        tensors = tuple(rng.standard_normal(shape).astype(dtype) for shape in shapes)
        return cls(problem, tensors, (image, True, False))

    def __call__(self, **options: object) -> None:
        """Make it."""
        p = self.problem
        rest = p.stride, p.padding, p.dilation, p.transposed, p.output_padding, p.groups, self.mask, 0
        convolution_backward(*self.tensors, None, *rest, product="910B2", **options)  # type: ignore[arg-type]

    def best(self, runs: int = RUNS, clock: Callable[[], float] = thread_time, **options: object) -> float:
        """Return the shortest of several runs, after one that compiles."""
        self(**options)
        return min(seconds(lambda: self(**options), clock) for _ in range(runs))


def print_cut(call: Call) -> None:
    """Print how fast models are that cut, against those that round to nearest; both in turn."""
    for model in CUT:
        names = f"{model}:RNE", f"{model}:RZ"
        times = [[call.best(1, accumulation=name, timing=False) for name in names] for _ in range(RUNS)]
        nearest, cut = (min(column) for column in zip(*times, strict=True))
        met = "" if nearest / cut >= CUT_TARGET else "  MISSED"
        print(f"{model}: RZ {nearest / cut:.2f} times as fast as RNE (target {CUT_TARGET}){met}", flush=True)


def print_both_ways(name: str, problem: ConvProblem) -> None:
    """Print how much longer a call takes that runs instructions and is timed; both in turn."""
    call = Call.of(problem)
    times = [[call.best(1, timing=timing) for timing in (True, False)] for _ in range(RUNS)]
    timed, untimed = (min(column) * 1e3 for column in zip(*times, strict=True))
    print(
        f"{name:27s} with instructions {timed:6.2f} ms, without {untimed:6.2f}: {timed / untimed:.1f} times",
        flush=True,
    )


def print_two_threads(call: Call, model: str) -> None:
    """Print how fast two threads are against one; both in turn."""
    load, options = os.getloadavg()[0], {"accumulation": model, "timing": False}
    alone, shared = (partial(call, threads=count, **options) for count in (1, 2))
    times = [(seconds(alone, thread_time), on_free_cores(shared)) for _ in range(2 * RUNS)]
    one, two = (min(column) for column in zip(*times, strict=True))
    clock = [call.best(RUNS, perf_counter, threads=count, **options) for count in (1, 2)]
    met = "" if one / two >= THREADS_TARGET else "  MISSED"
    print(
        f"two threads, {model}: {one / two:.2f} times one by seconds of the processor "
        f"(target {THREADS_TARGET}), {clock[0] / clock[1]:.2f} on the clock at a load of {load:.1f}{met}",
        flush=True,
    )


def main() -> None:
    """Print one line for each question."""
    for case in CASES:
        call = Call.of(LAYER, case.dtype)
        took = call.best(accumulation=case.model, timing=case.timing)
        gmacs, machine = 2 * LAYER.macs / took / 1e9, numpy_gmacs(0.2)
        path = "instructions" if case.timing else "gradients only"
        met = "" if gmacs / machine >= case.target else "  MISSED"
        print(
            f"{path:15s} {case.dtype:8s} {case.model:22s} {gmacs:6.1f} GMAC/s, numpy {machine:5.1f}, "
            f"ratio {gmacs / machine:.2f} (target {case.target}){met}",
            flush=True,
        )
    # As if nothing were known of the call.
    with patch("ascendsim.ops.convolution_backward.known_graph", lower):
        took = Call.of(LAYER).best(accumulation="block:16:RNE")
    gmacs, machine = 2 * LAYER.macs / took / 1e9, numpy_gmacs(0.2)
    print(f"instructions    written and timed anew: ratio {gmacs / machine:.2f}", flush=True)
    for model in ("seq:RNE", "block:16:RNE"):
        bare, machine = panel_gmacs(model), numpy_gmacs(0.2)
        print(
            f"bare panels     float16  {model:22s} {bare:6.1f} GMAC/s, numpy {machine:5.1f}, "
            f"ratio {bare / machine:.2f}"
        )
    print_cut(Call.of(LAYER))
    for name, problem in BOTH_WAYS.items():
        print_both_ways(name, problem)
    took = Call.of(SMALL).best(20, timing=False) * 1e3
    print(f"small layer: {took:.2f} ms (target 5){'' if took <= 5 else '  MISSED'}")
    calls = [Call.of(problem, image=number > 0) for number, problem in enumerate(DIGITS)]
    took = sum(call.best(20, timing=False) for call in calls) * 1e3
    print(
        f"three layers of a network for digits: {took:.2f} ms (target 15){'' if took <= 15 else '  MISSED'}"
    )
    for model in ("block:16:RNE", "seq:RNE"):
        print_two_threads(Call.of(LAYER), model)


if __name__ == "__main__":
    # One thread, as the targets are stated; the variable counts only before numpy starts its threads.
    if os.environ.get("OMP_NUM_THREADS") != "1":
        os.environ["OMP_NUM_THREADS"] = "1"
        os.execv(sys.executable, [sys.executable, "-m", "benchmarks.gradients", *sys.argv[1:]])
    main()
