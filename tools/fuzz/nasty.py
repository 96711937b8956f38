"""Whether anything but a result or an AscendSimError comes out of a door, whatever is passed."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np

import ascendsim
from ascendsim import AscendSimError, ConvProblem, MatmulProblem, Tiling
from ascendsim.aclnn import AclTensor, Out, aclCreateTensor, aclnnConvolutionBackward
from ascendsim.cli import main
from fuzz.judge import must
from fuzz.odd import odd
from fuzz.status import MOST_CHARACTERS, first_phase
from tests.aclnn_calls import arguments_of
from tests.rules_calls import conv, tbc

ONES = np.ones((1, 2, 4, 4), np.float16)
OPTIONS = {
    "product": "910B",
    "accumulation": None,
    "tiling": None,
    "schedule": None,
    "l2_start": "warm",
    "engine": None,
}
OWN = {"deterministic": None, "output_dtypes": None, "rules": "documented", "fixpipe": "ctrl48"}
CONVOLUTION = {
    "grad_output": np.ones((1, 3, 4, 4), np.float16),
    "input": ONES,
    "weight": np.ones((3, 2, 3, 3), np.float16),
    "bias_sizes": [3],
    "stride": 1,
    "padding": 1,
    "dilation": 1,
    "transposed": False,
    "output_padding": 0,
    "groups": 1,
    "output_mask": (True, True, True),
    "cube_math_type": 0,
}
PROBLEM = ConvProblem((1, 2, 4, 4), (3, 2, 3, 3), 1, 1)
MATRICES = {"a": np.ones((3, 4), np.float16), "b": np.ones((4, 5), np.float16)}
TBC = {
    "grad_output": np.ones((3, 2, 4), np.float16),
    "input": np.ones((3, 2, 3), np.float16),
    "weight": np.ones((1, 3, 4), np.float16),
    "bias": np.ones(4, np.float16),
    "pad": 0,
    "cube_math_type": 0,
}
ESTIMATE = {
    "problem": PROBLEM,
    "dtype": "float16",
    "cube_math_type": 0,
    "output_mask": (True,) * 3,
    "strides": None,
}
GEMM = {"problem": MatmulProblem(3, 4, 5), "dtype": "float16", "cube_math_type": 0, "out_dtype": None}
SHAPES = {
    "input": (1, 2, 4, 4),
    "weight": (3, 2, 3, 3),
    "stride": 1,
    "padding": 1,
    "dilation": 1,
    "transposed": False,
    "output_padding": 0,
    "groups": 1,
}
FLAGS = {"transpose_a": False, "transpose_b": False, "cube_math_type": 0, "out_dtype": None}
DOORS = (
    (ascendsim.convolution_backward, CONVOLUTION | {"order": "program"} | OPTIONS | OWN),
    (ascendsim.conv_tbc_backward, TBC | {"order": "program"} | OPTIONS | OWN),
    (ascendsim.estimate, ESTIMATE | OPTIONS | OWN),
    (ascendsim.matmul, MATRICES | FLAGS | {"order": "program"} | OPTIONS),
    (ascendsim.estimate_matmul, GEMM | OPTIONS),
    (ascendsim.ConvProblem, SHAPES),
    (
        ascendsim.MatmulProblem,
        {"m": 3, "k": 4, "n": 5, "batch": 1, "transpose_a": False, "transpose_b": False},
    ),
    (ascendsim.load_profile, {"name": "910B"}),
    (ascendsim.Tiling, dict.fromkeys(Tiling(16, 16, 16).__dataclass_fields__, 16)),
)
CALL = {
    "name": None,
    "api": "aclnnConvolutionBackward",
    "product": "910B",
    "rules": "documented",
    "tensors": {
        "input": {"shape": [1, 2, 4, 4], "dtype": "float16"},
        "weight": {"shape": [3, 2, 3, 3], "dtype": "float16"},
    },
    "attributes": {"padding": 1},
    "outputs": {},
    "expect": {"status": 0},
}
JSON = (None, True, 0, -1, 1.5, 2**70, "", "x", [], {}, [[]], [1], {"a": 1}, [None] * 100, "a\0", 1e400)


def nasty(pick):
    """Pass one to three odd arguments to a door."""
    if pick.random() < 0.1:
        return _in_c(pick)
    if pick.random() < 0.1:
        return _in_json(pick)
    function, usual = pick.choice(DOORS)
    wrong = {
        name: odd(pick) for name in pick.sample(sorted(usual), min(len(usual), pick.choice((1, 1, 2, 3))))
    }
    try:
        function(**{**usual, **wrong})
    except AscendSimError as error:
        kind, length = type(error).__name__, len(str(error))
    else:
        return "ran"
    # A message that nobody reads to its end helps nobody.
    must(length < MOST_CHARACTERS, f"a message of {length} characters")
    return kind


def _in_c(pick):
    """Pass odd arguments to the C names: they answer with a status, or null."""
    given = {
        "viewDims": [1, 2],
        "viewDimsNum": 2,
        "dataType": 0,
        "stride": [2, 1],
        "offset": 0,
        "format": 2,
        "storageDims": [2],
        "storageDimsNum": 1,
        "tensorData": np.zeros(2, np.float32),
    }
    name = pick.choice(sorted(given))
    made = aclCreateTensor(**{**given, name: odd(pick)})
    must(made is None or isinstance(made, AclTensor), type(made))
    call = conv((1, 2, 4), (2, 2, 1), groups=1, padding=0) if pick.random() < 0.5 else tbc()
    _, executor = first_phase(arguments_of(call, arrays=False), "910B", "documented")
    answer = aclnnConvolutionBackward(*(pick.choice((odd(pick), executor, Out())) for _ in range(4)))
    must(isinstance(answer, int) and answer, f"a status of {answer}")
    return "status"


def _in_json(pick):
    """Spoil one place of a file for `ascendsim check`: it answers with 0, 1 or 2."""
    call = json.loads(json.dumps(CALL))
    table = pick.choice((call, call["tensors"], call["tensors"]["input"], call["attributes"], call["expect"]))
    keys = (*table, "stride", "groups", "grad_output", "shape", "cube_math_type", "bias_sizes", "output_mask")
    table[pick.choice(keys)] = pick.choice(JSON)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "call.json"
        path.write_text(json.dumps(pick.choice((call, [call], pick.choice(JSON)))))
        answer = main(["check", str(path), "--json"])
    must(answer in (0, 1, 2), f"exit status {answer}")
    return f"check {answer}"
