"""Of which tensors does it count which slice a transfer names, where L2 holds all of them?"""

import pytest

from ascendsim import ConvProblem, load_profile
from ascendsim.program.instruction import Traffic
from ascendsim.program.places import GmTensor
from ascendsim.timing.fast import phase as fast
from ascendsim.timing.l2.account import asks_for_slices
from tests.helpers.random_tilings import random_times

PROBLEM = ConvProblem(input=(3, 32, 20, 20), weight=(48, 32, 3, 3), padding=1)


def test_those_that_are_read_where_cores_lose_by_reading_together():
    read, added, both = (GmTensor.of(name, (8,), "float32") for name in ("read", "added", "both"))
    traffics = [
        *(Traffic(tensor, "read", 32, 64) for tensor in (read, both)),
        Traffic(both, "write", 32, 64),
        Traffic(added, "atomic", 32, 64),
    ]
    assert load_profile("910B2").links["l2_read"].shared_efficiency < 1
    assert asks_for_slices(traffics, load_profile("910B2")) == {"read", "both"}
    assert load_profile("950PR_9589").links["l2_read"].shared_efficiency == 1
    assert asks_for_slices(traffics, load_profile("950PR_9589")) == frozenset()


@pytest.mark.parametrize("product", ["910B2", "950PR_9589", "910A"])
@pytest.mark.parametrize("gradient", ["grad_input", "grad_weight"])
def test_cycles_and_bytes_are_those_with_all_slices_told_apart(product, gradient, monkeypatch):
    profile = load_profile(product)
    asked = []
    only = fast.only_hits
    monkeypatch.setattr(fast, "only_hits", lambda *args: asked.append(only(*args)) or asked[-1])
    few = random_times(PROBLEM, gradient, profile, 4, seed=2)
    # The layer fits in L2, so that the question is worth something.
    assert any(asked)
    monkeypatch.setattr(fast, "only_hits", lambda *_: False)
    assert random_times(PROBLEM, gradient, profile, 4, seed=2) == few
