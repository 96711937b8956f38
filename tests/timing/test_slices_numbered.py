"""Do equal numbers of the compiled engine mean equal slices, as the instructions name them one by one?"""

import random

import numpy as np
import pytest

from ascendsim.timing.fast.forms import FormBook
from ascendsim.timing.fast.programs import PhaseRows
from ascendsim.timing.l2.phase import lanes_of
from ascendsim.timing.times import CostBook
from tests.helpers.engine_samples import random_call, random_matmul, random_tiling
from tests.timing.test_engines import SMALL_PROBLEMS


def numbers(phase, profile):
    """The slices of all transfers of a phase, by the engine's numbers and by those of each instruction."""
    works = [(work.core.kind, work.build()) for work in phase.work]
    book, costs = FormBook(profile), CostBook(profile)
    for kind, program in works:
        book.check(program, kind)
    moved = PhaseRows(book, [program for _, program in works]).transfers(None, apart=False)
    found = [own.slices for own in moved]
    lanes = lanes_of([(1, costs.price(program, kind)) for kind, program in works]).lanes
    none = np.empty(0, np.int64)
    return np.concatenate([none, *found]).tolist(), np.concatenate(
        [none, *(lane.slices for lane in lanes)]
    ).tolist()


def assert_numbered_alike(kernels, profile):
    """Transfers have one number if, and only if, they name one slice; phases that promise it share none."""
    for kernel in kernels:
        for phase in kernel.phases:
            found, named = numbers(phase, profile)
            assert len(found) == len(named)
            assert len(set(zip(found, named, strict=True))) == len(set(found)) == len(set(named))
            assert not phase.apart or len(set(named)) == len(named), phase.name


@pytest.mark.parametrize("seed", range(30))
def test_of_random_calls(seed):
    kernels, profile, _ = random_call(random.Random(1000 + seed))
    assert_numbered_alike(kernels, profile)


@pytest.mark.parametrize("seed", range(30))
def test_of_random_tilings(seed):
    assert_numbered_alike(*random_tiling(random.Random(1000 + seed), SMALL_PROBLEMS))


@pytest.mark.parametrize("seed", range(30))
def test_of_random_matrix_products(seed):
    assert_numbered_alike(*random_matmul(random.Random(1000 + seed)))
