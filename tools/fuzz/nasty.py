"""Whether anything but a result or an AscendSimError comes out of a door, whatever is passed."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from inspect import signature

import numpy as np

import ascendsim
from ascendsim import AscendSimError, ConvProblem, MatmulProblem, precision
from ascendsim.aclnn import AclTensor, Out, aclCreateTensor, aclnnConvolutionBackward
from ascendsim.instructions.flags import PipeBarrier
from ascendsim.ops.options.keywords import CallOptions, Keywords, ProductOptions, TbcOptions
from ascendsim.program.program import ProgramBuilder
from fuzz.judge import must
from fuzz.odd import odd
from fuzz.status import MOST_CHARACTERS, first_phase
from tests.helpers.calls import arguments_of, conv, tbc

ONES = np.ones((1, 2, 4, 4), np.float16)
PROBLEM = ConvProblem((1, 2, 4, 4), (3, 2, 3, 3), 1, 1)
TENSORS = {
    "grad_output": np.ones((1, 3, 4, 4), np.float16),
    "input": ONES,
    "weight": np.ones((3, 2, 3, 3), np.float16),
}
CONVOLUTION = TENSORS | {
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
FLAGS = ProgramBuilder(ascendsim.load_profile("910B"))
FLAGS.add(PipeBarrier("V"))
# What each door must be given; the rest has defaults. A door that is not here gets odd values alone.
NEEDED = {
    "convolution_backward": CONVOLUTION,
    "conv_tbc_backward": {
        "grad_output": np.ones((3, 2, 4), np.float16),
        "input": np.ones((3, 2, 3), np.float16),
        "weight": np.ones((1, 3, 4), np.float16),
        "bias": np.ones(4, np.float16),
        "pad": 0,
        "cube_math_type": 0,
    },
    "estimate": {"problem": PROBLEM},
    "estimate_layer": {"problem": PROBLEM},
    "layer_problem": {"kind": "linear", "input": (2, 3), "weight": (4, 3)},
    "product_backward": {
        "grad_output": np.ones((2, 4), np.float16),
        "input": np.ones((2, 3), np.float16),
        "weight": np.ones((4, 3), np.float16),
        "linear": True,
    },
    "matmul": {"a": np.ones((3, 4), np.float16), "b": np.ones((4, 5), np.float16)},
    "estimate_matmul": {"problem": MatmulProblem(3, 4, 5)},
    "ConvProblem": {"input": (1, 2, 4, 4), "weight": (3, 2, 3, 3)},
    "MatmulProblem": {"m": 3, "k": 4, "n": 5},
    "Tiling": {"base_m": 16, "base_n": 16, "base_k": 16},
    "PartialPlan": {"fields": {"base_m": 16}},
    "load_profile": {"name": "910B"},
    "legal_tilings": {
        "problem": PROBLEM,
        "gradient": "grad_input",
        "profile": ascendsim.load_profile("910B"),
    },
    "check_flags": {"program": FLAGS.build(), "profile": "910B"},
    "check_schedule": {"schedule": "dgrad", "problem": PROBLEM, "orders": 0},
    "read_plans": {"path": "plans.toml"},
    "spread": {"problem": PROBLEM, "tensors": TENSORS, "maths": [precision.Math()]},
    "attribute": {"problem": PROBLEM, "tensors": TENSORS, "math": precision.Math()},
    "reduction_tree": {"model": "seq:RNE", "products": 4},
}
# Classes of answers, what others derive from, what goes soon, and torch's own modules; who writes files would
# write them here.
APART = {
    *(
        "CubeMathType",
        "MatmulTiling",
        "Schedule",
        "Item",
        "Plan",
        "Record",
        "Judged",
        "Attribution",
        "Identification",
    ),
    *("Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"),
    *("ErrorMetrics", "GPUS", "as_dot", "as_text", "record", "write_plans", "rank_by_public_figures"),
}


def _usual(function):
    """Return the arguments of a door with their usual values; None: it has to be given one."""
    found = {}
    for name, parameter in signature(function).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            # Its keywords are listed in a TypedDict, and have their defaults in a record.
            kinds = {kind.__name__: kind for kind in (ProductOptions, TbcOptions)}
            text = str(parameter.annotation)
            if "Options" not in text:
                continue
            listed = next((kind for name, kind in kinds.items() if name in text), CallOptions)
            # Results of torch's door are tensors as torch makes them.
            own = function.__module__.startswith("ascendsim.torch")
            names = [name for name in listed.__annotations__ if not (own and name.startswith("output_"))]
            found |= {name: getattr(Keywords, name) for name in names}
        elif name != "self":
            found[name] = None if parameter.default is parameter.empty else parameter.default
    return found | NEEDED.get(function.__name__, {})


def _modules():
    yield from (ascendsim, precision)
    # Without torch there is nothing to draw of its door.
    if find_spec("torch"):
        torch = import_module("torch")
        NEEDED["convolution"] = {"input": torch.ones(1, 2, 4, 4), "weight": torch.ones(3, 2, 3, 3)}
        NEEDED["read_network"] = {"model": torch.nn.Conv2d(2, 3, 3), "image": (2, 8, 8)}
        yield import_module("ascendsim.torch")


def _doors():
    """Yield what is exported, with its usual arguments: a new door is there the day it opens."""
    for module in _modules():
        for name in sorted(set(module.__all__) - APART):
            value = getattr(module, name)
            if not (isinstance(value, type) and issubclass(value, Exception)):
                yield value, _usual(value)


DOORS = tuple(_doors())


def nasty(pick):
    """Pass one to three odd arguments to a door."""
    if pick.random() < 0.1:
        return _in_c(pick)
    function, usual = pick.choice(DOORS)
    wrong = {
        name: odd(pick) for name in pick.sample(sorted(usual), min(len(usual), pick.choice((1, 1, 2, 3))))
    }
    try:
        made = function(**{**usual, **wrong})
        # What is drawn from only when somebody asks.
        if isinstance(made, Iterator):
            next(made, None)
    except AscendSimError as error:
        kind, length = type(error).__name__, len(str(error))
    else:
        return "ran"
    # A message that nobody reads to its end helps nobody.
    must(length < MOST_CHARACTERS, f"{function.__name__}: a message of {length} characters")
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
