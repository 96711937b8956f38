"""How fast is each accumulation model?  Run with `python -m benchmarks.accumulation`, or with models to time.

The tile is 128 x 64 x 128 (m, k, n), normal data on the operands' grid, one thread. Every model is timed in
turn with numpy's float32 matmul of the same tile, and the figure that counts is the ratio: both see the same
machine, and the shortest of many runs sees it undisturbed. All checks that a model needs are included, and so
is the call through `accumulate`. Adversarial rows say what happens when the fast proofs fail.

A model that rounds toward zero is timed in turn with its twin that rounds to nearest: the processor's own
mode rounds for it, so it must have 0.6 of the twin's speed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from time import perf_counter, thread_time
from typing import NamedTuple

import numpy as np

from ascendsim.numerics.accumulation import AccumulationModel
from ascendsim.numerics.compiled.accumulate import accumulate

M, K, N = 128, 64, 128
RUNS = 400
LEAST_GMACS = 0.1  # for tiles where no proof holds
LEAST_OF_TWIN = 0.6


class Case(NamedTuple):
    """A model, the operands it is timed on, and the least share of numpy's speed (None: no target)."""

    model: str
    operands: str
    target: float | None


class Row(NamedTuple):
    """One measured model; speeds in 10^9 multiply-adds a second."""

    case: Case
    gmacs: float
    numpy_gmacs: float

    @property
    def ratio(self) -> float:
        """Speed as a share of numpy's in the same run."""
        return self.gmacs / self.numpy_gmacs

    @property
    def met(self) -> bool:
        """Whether the target is met; adversarial tiles have an absolute one."""
        if self.case.operands in ADVERSARIAL:
            return self.gmacs >= LEAST_GMACS
        return self.case.target is None or self.ratio >= self.case.target


CASES = (
    Case("seq:RNE", "float16", 1 / 2),
    Case("block:16:RNE", "float16", 1 / 4),
    Case("tree:16:adjacent:RNE", "float16", 1 / 3),
    Case("tree:16:halves:RNE", "float16", 1 / 3),
    Case("align:16:F24:RZ:acc", "float16", 1 / 8),
    Case("fp16-acc(block:16:RNE)", "float16", 1 / 5),
    Case("fp16-acc(seq:RNE)", "float16", 1 / 12),
    Case("block:4:RNE", "float32", 1 / 8),
    Case("seq:RNE", "float32", 1 / 2),
    Case("block:8:RNE", "hf32", None),
    Case("block:32:RNE", "float8_e4m3fn", None),
    Case("block:16:RNE", "bfloat16", None),
    Case("block:16:RNE", "float16 sparse", None),
    Case("block:16:RZ", "float16", None),
    Case("seq:RZ", "float16", None),
    Case("seq-muladd:RNE", "float32", None),
    Case("block-add:16:RNE:RNE", "float16", None),
    Case("exact:RNE", "float16", None),
    Case("tree:16:adjacent:RZ", "float16", None),
    Case("align:4:F24:RZ:acc", "float32", None),
    Case("block:4:RNE+split3", "float32", None),
    Case("block:2:RNE", "ties", None),
    Case("block:4:RNE", "ties", None),
    Case("block:4:RNE", "bits", None),
    Case("block:16:RNE", "bits", None),
    Case("fp16-acc(block:16:RZ)", "bits", None),
    Case("align:16:F24:RZ:acc", "bits", None),
    Case("fp16-acc(seq:RNE)", "bits", None),
)
ADVERSARIAL = ("ties", "bits")
CUT = [
    Case(wrap.format(model), operands, None)
    for wrap, operands, size in (
        ("{}", "float16", 16),
        ("{}", "float32", 4),
        ("fp16-acc({})", "float16", 16),
        ("{}+split3", "float32", 4),
    )
    for model in (
        "exact:RZ",
        "seq:RZ",
        "seq-muladd:RZ",
        f"block:{size}:RZ",
        f"block-add:{size}:RZ:RZ",
        f"tree:{size}:adjacent:RZ",
        f"tree:{size}:halves:RZ",
        f"align:{size}:F24:RZ",
        f"align:{size}:F24:RZ:acc",
    )
]
CUT += [
    Case("block:4:RZ", "float32 sparse", None),
    Case("seq:RZ+ftz-acc", "float16", None),
    Case("tree:16:halves:RZ+ftz-acc", "float16", None),
]


def operands(name: str, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Return a, b and c of a tile."""
    if name == "bits":
        shapes = (M, K), (K, N), (M, N)
        return tuple(rng.integers(0, 2**32, s, dtype=np.uint32).view(np.float32) for s in shapes)
    if name == "ties":
        # Products near 2^-200 beside others that cancel: too far apart for two doubles, and c is odd.
        a = np.ldexp(rng.choice([-1.0, 1.0], (M, K)), rng.choice([0, -100], (M, K)))
        a[:, 1::2] = -a[:, ::2]
        b = np.ldexp(rng.choice([1.0, 3.0], (K, N)), rng.choice([-25, -100], (K, N)))
        return a.astype(np.float32), b.astype(np.float32), np.full((M, N), 1 + 2**-23, np.float32)
    a, b = rng.standard_normal((M, K)), rng.standard_normal((K, N))
    if name.endswith(" sparse"):
        a *= rng.random((M, K)) < 0.3
    bits = {"float16": 11, "bfloat16": 8, "hf32": 12, "float8_e4m3fn": 4, "float32": 24}[name.split()[0]]
    smallest = {"float16": -24, "float8_e4m3fn": -9}.get(name.split()[0], -149)
    return on_grid(a, bits, smallest), on_grid(b, bits, smallest), np.zeros((M, N), np.float32)


def on_grid(x: np.ndarray, bits: int, smallest: int) -> np.ndarray:
    """Round to so many significant bits, but not below 2^smallest."""
    ulp = np.maximum(np.frexp(x)[1] - bits, smallest)
    return np.ldexp(np.rint(np.ldexp(x, -ulp)), ulp).astype(np.float32)


def measure(case: Case, runs: int = RUNS) -> Row:
    """Time one model and numpy in turn."""
    model = AccumulationModel.parse(case.model)
    a, b, initial = operands(case.operands, np.random.default_rng(1))
    usual = operands("float16", np.random.default_rng(1))[:2]
    c, out = initial.copy(), np.empty_like(initial)
    accumulate(model, a, b, c)  # compiles
    # An absolute target is one of processor time: a call of milliseconds is interrupted too often.
    clock = thread_time if case.operands in ADVERSARIAL else perf_counter
    best = numpy_best = float("inf")
    for _ in range(runs):
        c[:] = initial
        best = min(best, seconds(lambda: accumulate(model, a, b, c), clock))
        numpy_best = min(numpy_best, seconds(lambda: np.matmul(*usual, out=out), clock))
    return Row(case, M * K * N / best / 1e9, M * K * N / numpy_best / 1e9)


def measure_cut(case: Case, runs: int = RUNS) -> Row:
    """Time a model that cuts in turn with its twin, which stands in numpy's place."""
    a, b, initial = operands(case.operands, np.random.default_rng(1))
    models = [AccumulationModel.parse(text) for text in (case.model, case.model.replace("RZ", "RNE"))]
    c, best = initial.copy(), [float("inf")] * 2
    for _ in range(1 + runs):
        for index, model in enumerate(models):
            c[:] = initial
            # One default argument, so that the call sees the model of this turn.
            best[index] = min(
                best[index], seconds(lambda model=model: accumulate(model, a, b, c), thread_time)
            )
    return Row(case._replace(target=LEAST_OF_TWIN), *(M * K * N / time / 1e9 for time in best))


def seconds(call: Callable[[], object], clock: Callable[[], float]) -> float:
    """Return how long one call takes."""
    begin = clock()
    call()
    return clock() - begin


def run(cases: tuple[Case, ...] = CASES) -> list[Row]:
    """Measure all cases."""
    with np.errstate(all="ignore"):
        return [measure(case, RUNS // 10 if case.operands in ADVERSARIAL else RUNS) for case in cases]


def main(models: list[str] | None = None) -> None:
    """Print one line per case, and one per model that cuts."""
    print(f"{'model':32s} {'operands':16s} {'GMAC/s':>8s} {'numpy':>7s} {'ratio':>6s} {'target':>7s}")
    for row in run(tuple(case for case in CASES if not models or case.model in models)):
        case = row.case
        target = f"{LEAST_GMACS} abs" if case.operands in ADVERSARIAL else ""
        print_row(row, f"{case.target:.3f}" if case.target else target)
    print(
        f"\n{'model that cuts':32s} {'operands':16s} {'GMAC/s':>8s} {'twin':>7s} {'ratio':>6s} {'target':>7s}"
    )
    for case in CUT:
        if not models or case.model in models:
            print_row(measure_cut(case, RUNS // 4), f"{LEAST_OF_TWIN}")


def print_row(row: Row, target: str) -> None:
    """Print one measured model."""
    print(
        f"{row.case.model:32s} {row.case.operands:16s} {row.gmacs:8.2f} {row.numpy_gmacs:7.1f} "
        f"{row.ratio:6.2f} {target:>7s}{'' if row.met else '  MISSED'}",
        flush=True,
    )


if __name__ == "__main__":
    # One thread, as the targets are stated; the variable counts only before numpy starts its threads.
    if os.environ.get("OMP_NUM_THREADS") != "1":
        os.environ["OMP_NUM_THREADS"] = "1"
        os.execv(sys.executable, [sys.executable, "-m", "benchmarks.accumulation", *sys.argv[1:]])
    main(sys.argv[1:])
