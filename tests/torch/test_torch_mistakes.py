"""Is every argument of torch's doors taken as it is meant, or refused with a sentence of ours?"""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from ascendsim.errors import AscendSimError  # noqa: E402
from ascendsim.torch import Simulation, convolution, read_network, record  # noqa: E402

IMAGE, WEIGHT = torch.ones(1, 2, 4, 4), torch.ones(3, 2, 3, 3)
MODEL = torch.nn.Sequential(torch.nn.Conv2d(2, 3, 3))
ODD = (3, -1, "x", 1.5, [None], np.ones(2), object(), {"a": 3}, {3: {}}, "\0", range(10**9))
TENSORS = (None, *ODD)
DOORS = {
    "convolution": (convolution, {"input": IMAGE, "weight": WEIGHT}, {"input": TENSORS, "weight": TENSORS}),
    "convolution's options": (
        convolution,
        {"input": IMAGE, "weight": WEIGHT},
        {"bias": ODD, "setting": ODD, "stride": ODD[2:], "groups": ODD[1:], "padding": ODD[1:]},
    ),
    "simulation": (
        Simulation,
        {},
        {
            "per_layer": ODD,
            "passes": ODD,
            "operators": (None, *ODD),
            "errors": (None, *ODD),
            "refused": (None, *ODD),
            "layers": (3, {3: 1}),
        },
    ),
    "network": (
        read_network,
        {"model": MODEL, "image": (2, 8, 8)},
        {"model": TENSORS, "image": (*TENSORS, (2, 2**40, 8), ()), "name": (3, [1])},
    ),
    "record": (
        record,
        {"model": MODEL, "loader": [], "steps": 1},
        {"model": TENSORS, "loader": (3, object()), "steps": TENSORS[2:], "loss": (3,), "optimizer": (3,)},
    ),
}


@pytest.mark.parametrize("door", DOORS)
def test_what_is_odd_is_refused(tmp_path, door):
    function, usual, odd = DOORS[door]
    usual = usual | ({"folder": tmp_path} if function is record else {})
    if function is not convolution:  # its own tests run it
        function(**usual)
    for name, values in odd.items():
        for value in values:
            with pytest.raises(AscendSimError) as caught:
                function(**usual | {name: value})
            assert len(str(caught.value)) < 500, (name, value)
