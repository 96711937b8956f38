"""Bit-exact, cycle-approximate simulator of convolution backward on the Ascend AI core.

`convolution_backward` computes gradients with cycles, `estimate` cycles alone. Both are imported when first
used, so that `import ascendsim` costs nothing.
"""

import logging
from typing import TYPE_CHECKING, Any

from ascendsim.errors import (
    AclnnError,
    AscendSimError,
    CapacityError,
    ConfigError,
    DataError,
    ProgramError,
    ShapeError,
    StoppedError,
    UnsupportedError,
    WorkerError,
)

if TYPE_CHECKING:
    from ascendsim.ops.checks import check_flags, check_schedule
    from ascendsim.ops.convolution_backward import conv_tbc_backward, convolution_backward, estimate
    from ascendsim.ops.layers import estimate_layer, product_backward
    from ascendsim.ops.many import Item, estimate_many
    from ascendsim.ops.matmul import MatmulTiling, estimate_matmul, matmul
    from ascendsim.ops.plan import Plan, Tiling
    from ascendsim.ops.problems.convolution import ConvProblem
    from ascendsim.ops.problems.layers import layer_problem
    from ascendsim.ops.problems.matmul import MatmulProblem
    from ascendsim.ops.schedules.base import Schedule
    from ascendsim.ops.tiling.legal_tilings import legal_tilings
    from ascendsim.ops.tiling.plan_files import read_plans, write_plans
    from ascendsim.ops.tiling.request import PartialPlan
    from ascendsim.profile import load_profile
    from ascendsim.rules.typed import CubeMathType

# Who imports a library decides what becomes of its messages.
logging.getLogger(__name__).addHandler(logging.NullHandler())

__version__ = "0.1.0"
__all__ = [
    "AclnnError",
    "AscendSimError",
    "CapacityError",
    "ConfigError",
    "ConvProblem",
    "CubeMathType",
    "DataError",
    "Item",
    "MatmulProblem",
    "MatmulTiling",
    "PartialPlan",
    "Plan",
    "ProgramError",
    "Schedule",
    "ShapeError",
    "StoppedError",
    "Tiling",
    "UnsupportedError",
    "WorkerError",
    "check_flags",
    "check_schedule",
    "conv_tbc_backward",
    "convolution_backward",
    "estimate",
    "estimate_layer",
    "estimate_many",
    "estimate_matmul",
    "layer_problem",
    "legal_tilings",
    "load_profile",
    "matmul",
    "product_backward",
    "read_plans",
    "write_plans",
]

_HOMES = {
    "ConvProblem": "ascendsim.ops.problems.convolution",
    "CubeMathType": "ascendsim.rules.typed",
    "Item": "ascendsim.ops.many",
    "MatmulProblem": "ascendsim.ops.problems.matmul",
    "MatmulTiling": "ascendsim.ops.matmul",
    "PartialPlan": "ascendsim.ops.tiling.request",
    "Plan": "ascendsim.ops.plan",
    "Schedule": "ascendsim.ops.schedules.base",
    "Tiling": "ascendsim.ops.plan",
    "check_flags": "ascendsim.ops.checks",
    "check_schedule": "ascendsim.ops.checks",
    "conv_tbc_backward": "ascendsim.ops.convolution_backward",
    "convolution_backward": "ascendsim.ops.convolution_backward",
    "estimate": "ascendsim.ops.convolution_backward",
    "estimate_layer": "ascendsim.ops.layers",
    "estimate_many": "ascendsim.ops.many",
    "estimate_matmul": "ascendsim.ops.matmul",
    "layer_problem": "ascendsim.ops.problems.layers",
    "legal_tilings": "ascendsim.ops.tiling.legal_tilings",
    "load_profile": "ascendsim.profile",
    "matmul": "ascendsim.ops.matmul",
    "product_backward": "ascendsim.ops.layers",
    "read_plans": "ascendsim.ops.tiling.plan_files",
    "write_plans": "ascendsim.ops.tiling.plan_files",
}


def __getattr__(name: str) -> Any:
    """Import a public name from its home."""
    if name not in _HOMES:
        raise AttributeError(f"module 'ascendsim' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)
