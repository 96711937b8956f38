"""The two-phase interface: first ask for the workspace, which checks everything, then run.

`convolution_backward_get_workspace_size` and `conv_tbc_backward_get_workspace_size` take their arguments in
the vendor's order; docs/interface.md describes each. Every failure is an AclnnError with the vendor's status.
"""

from ascendsim.aclnn.executor import Executor
from ascendsim.aclnn.interface import (
    conv_tbc_backward_get_workspace_size,
    convolution_backward_get_workspace_size,
)
from ascendsim.aclnn.tensor import AclTensor
from ascendsim.errors import AclnnError

__all__ = [
    "AclTensor",
    "AclnnError",
    "Executor",
    "conv_tbc_backward_get_workspace_size",
    "convolution_backward_get_workspace_size",
]
