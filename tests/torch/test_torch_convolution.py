"""Are random calls as close to PyTorch in float64 as their arithmetic allows?"""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from ascendsim import ConvProblem
from tests.helpers.call_strategy import calls
from tests.helpers.float64_torch import bounds, torch_gradients
from tests.helpers.operator_calls import GRADIENTS, ApiCall, as_carrier, changed, gradients, on_the_cube

USUAL = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def check_against_float64(case):
    """Compare every gradient of a call with float64 on the operands as the cube multiplies them."""
    case = changed(case, scale=0.25)  # nothing overflows, not even in float8_e4m3fn
    call = case.resolved()
    given_tensors = case.carriers()
    cube = [
        on_the_cube(call, name, carrier)
        for name, carrier in zip(("grad_output", "input", "weight"), given_tensors, strict=True)
    ]
    exact = list(torch_gradients(case.problem, *cube))
    spatial = tuple(range(2, 2 + case.problem.rank))
    exact[2] = given_tensors[0].astype(np.float64).sum(axis=(0, *spatial))
    allowed = bounds(case.problem, call, cube, given_tensors[0])
    for name, got, want, bound in zip(GRADIENTS, gradients(case.run()), exact, allowed, strict=True):
        if got is not None:
            error = np.abs(as_carrier(got).astype(np.float64) - want)
            assert (error <= bound).all(), (name, float((error / bound).max()))


@USUAL
@given(case=calls())
def test_calls_lie_within_the_bound(case):
    check_against_float64(case)


@pytest.mark.slow
@settings(USUAL, max_examples=1500)
@given(case=calls())
def test_calls_lie_within_the_bound_at_length(case):
    check_against_float64(case)


def test_the_bound_would_notice_a_missing_term():
    # Without its largest element of grad_output a float32 call is far outside in all three gradients: one of
    # about 50 terms is missing, and the bound is about 50 * 2**-22 of their sum.
    case = ApiCall(ConvProblem((2, 3, 6, 7), (4, 3, 3, 3), 1, 1), ("float32",) * 3)
    tensors = case.carriers()
    allowed = bounds(case.problem, case.resolved(), tensors, tensors[0])
    less = [array.copy() for array in tensors]
    less[0].flat[np.abs(less[0]).argmax()] = 0
    full, short = (torch_gradients(case.problem, *given_tensors) for given_tensors in (tensors, less))
    for a, b, bound in zip(full, short, allowed, strict=True):
        assert (np.abs(a - b) > 100 * bound).any()


def test_padding_by_hand_is_padding():
    # Equal pads on both sides, once as torch's own and once by hand (four paddings that happen to differ by
    # an extra row of zeros that no tap reads because the stride steps over it).
    two = ApiCall(ConvProblem((1, 2, 6, 6), (3, 2, 2, 2), 2, (0, 0)))
    four = ApiCall(ConvProblem((1, 2, 6, 6), (3, 2, 2, 2), 2, (0, 1, 0, 1)))
    for a, b in zip(*(torch_gradients(c.problem, *c.carriers()) for c in (two, four)), strict=True):
        assert np.allclose(a, b, rtol=1e-14)
