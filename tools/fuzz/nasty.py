"""Whether anything but a result or an AscendSimError comes out of a door, whatever is passed."""

from __future__ import annotations

import numpy as np

import ascendsim
from ascendsim import AscendSimError, ConvProblem, MatmulProblem, Tiling
from ascendsim.aclnn import AclTensor, Out, aclCreateTensor, aclnnConvolutionBackward
from fuzz.judge import must
from fuzz.odd import odd
from fuzz.status import MOST_CHARACTERS, first_phase
from tests.helpers.aclnn_calls import arguments_of
from tests.helpers.rules_calls import conv, tbc

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


def _many(items, **item):
    """Estimate one item twice, once among what may be no items."""
    ascendsim.estimate_many([item], workers=1)
    ascendsim.estimate_many([item, *items] if isinstance(items, list) else items, workers=1)


def _tilings(**arguments):
    """Count tilings, and draw one."""
    found = ascendsim.legal_tilings(**arguments)
    return next(iter(found))


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
    (ascendsim.load_profile, {"name": "910B", "overrides": None}),
    (
        _many,
        {"items": [PROBLEM], "problem": PROBLEM, "product": "910B", "cube_math_type": 0, "rules": "shipped"},
    ),
    (_tilings, {"problem": PROBLEM, "gradient": "grad_input", "profile": ascendsim.load_profile("910B")}),
    (ascendsim.Tiling, dict.fromkeys(Tiling(16, 16, 16).__dataclass_fields__, 16)),
)


def nasty(pick):
    """Pass one to three odd arguments to a door."""
    if pick.random() < 0.1:
        return _in_c(pick)
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
