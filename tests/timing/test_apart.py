"""Do phases keep the promise that no two transfers name the same slice? Are times the same without it?"""

import random
from dataclasses import replace

import pytest

from ascendsim import ConvProblem, estimate, load_profile
from ascendsim.timing.kernel import measure_kernel
from ascendsim.timing.l2.phase import comparable
from tests.helpers.engine_samples import PRODUCTS, random_call

LAYER = ConvProblem((2, 40, 9, 11), (48, 40, 3, 3), padding=1)
STRIDED = ConvProblem((3, 64, 12, 12), (32, 64, 3, 3), stride=2, padding=1)
GROUPS = ConvProblem((2, 24, 10, 10), (48, 3, 3, 3), padding=1, groups=8)
SMALL_L2 = {"l2.capacity_bytes": 60_000}
# What is not row after row is gathered first.
VIEWS = {"grad_output": (48 * 99, 1, 48 * 11, 48)}
# Problem, format, options.
CALLS = [
    (LAYER, "float16", {}),
    (LAYER, "float16", {"strides": VIEWS}),
    (LAYER, "float32", {"cube_math_type": 1, "deterministic": True}),
    (STRIDED, "float16", {}),
    (STRIDED, "float16", {"deterministic": True}),
    (GROUPS, "float16", {}),
]


def kernels_of_calls(profile):
    """Return the kernels of all calls."""
    made = [estimate(problem, dtype, product=profile, **options) for problem, dtype, options in CALLS]
    return [result.kernel for estimated in made for result in estimated.kernels]


def random_kernels():
    """Return the kernels of random calls, with their profiles."""
    rng = random.Random(11)
    calls = [random_call(rng) for _ in range(60)]
    return [(kernel, profile) for kernels, profile, _ in calls for kernel in kernels]


def slices(phase):
    """Return the slices that all transfers of a phase name."""
    made = [instruction for work in phase.work for instruction in work.build().instructions]
    return [(gm.tensor.name, tuple(map(comparable, gm.index))) for one in made if (gm := one.gm) is not None]


def test_no_slice_is_named_twice():
    told = random_kernels()
    told += [(kernel, None) for product in PRODUCTS for kernel in kernels_of_calls(load_profile(product))]
    met = set()
    for kernel, _ in told:
        for phase in kernel.phases:
            if phase.apart:
                met.add(phase.name)
                found = slices(phase)
                assert len(found) == len(set(found)), (kernel.name, phase.name)
    names = {
        "zero fill",
        "cast",
        "gather",
        "ordered sum",
        "dilation",
        "transdata",
        "turned weights",
        "regroup",
    }
    assert met == names


@pytest.mark.parametrize("start", ["warm", "cold", "handed"])
def test_times_are_those_with_slices_found(start):
    small = load_profile("910B2", overrides=SMALL_L2)
    told = [*random_kernels(), *[(kernel, small) for kernel in kernels_of_calls(small)]]
    promised = [(kernel, profile) for kernel, profile in told if any(p.apart for p in kernel.phases)]
    assert promised
    for kernel, profile in promised:
        asked = replace(kernel, phases=tuple([phase._replace(apart=False) for phase in kernel.phases]))
        for folded in (True, False):
            options = {"folded": folded, "l2_start": start}
            assert measure_kernel(kernel, profile, **options) == measure_kernel(asked, profile, **options)
