"""May kernel calls take their memory in turn?  What an earlier call has left there changes no bit."""

from threading import Thread

import numpy as np
import pytest

from ascendsim.numerics.accumulation.models import AccumulationModel
from ascendsim.numerics.compiled.accumulate import accumulate
from ascendsim.numerics.compiled.packing import MOST_KEPT, SCRATCH, Scratch
from ascendsim.numerics.compiled.panels import LANES

MODELS = [
    *("seq:RNE", "seq:RNA", "seq-muladd:RZ", "block:16:RNE", "block:16:RZ", "block:4:RNE+split3"),
    *("block-add:8:RNE:RZ", "tree:16:adjacent:RNE", "tree:8:halves:RNA", "align:16:F24:RZ:acc"),
    *("exact-mmad:RNE", "fp16-acc(seq:RNE)", "fp16-acc(block:4:RNE)"),
]


def operands(spread):
    rng = np.random.default_rng(spread)
    a, b = rng.standard_normal((10, 37)), rng.standard_normal((37, LANES + 3))
    a *= 2.0 ** rng.integers(-spread, spread + 1, a.shape)
    return a.astype(np.float32), b.astype(np.float32)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("spread", [0, 60])  # proven at once; summed with errors and as long integers
def test_what_another_call_has_left_changes_nothing(model, spread):
    a, b = operands(spread)
    results = []
    for left in (np.nan, 0.0, -1e30):
        c = np.zeros((len(a), b.shape[1]), np.float32)
        for element in (np.float64, np.float32):
            SCRATCH.lend(1, element).fill(left)
        accumulate(AccumulationModel.parse(model), a, b, c)
        results.append(c.tobytes())
    assert len(set(results)) == 1


def test_a_thread_never_gets_the_memory_of_another():
    ours, theirs = SCRATCH.lend(8, np.float64), []
    thread = Thread(target=lambda: theirs.append(SCRATCH.lend(8, np.float64)))
    thread.start()
    thread.join()
    assert not np.shares_memory(ours, theirs[0])


def test_memory_is_kept_unless_it_is_too_small_or_the_call_is_large():
    scratch = Scratch()
    first = scratch.lend(100, np.float64)
    assert scratch.lend(50, np.float64) is first
    assert scratch.lend(101, np.float64).size >= 101
    assert scratch.lend(7, np.float32).dtype == np.float32
    assert scratch.lend(MOST_KEPT + 1, np.float64).size > MOST_KEPT
    assert scratch.lend(100, np.float64).size <= MOST_KEPT
