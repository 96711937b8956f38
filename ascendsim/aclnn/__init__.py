"""The two-phase interface: first ask for the workspace, which checks everything, then run.

`convolution_backward_get_workspace_size` and `conv_tbc_backward_get_workspace_size` take their arguments in
the vendor's order; docs/interface.md describes each. Every failure is an AclnnError with the vendor's status.
The vendor's own spelling, with statuses for results, is here as well: `aclnnConvolutionBackward`,
`aclCreateTensor`, `aclrtMalloc` and all that a program around the operator calls.
"""

from ascendsim.aclnn import c_values as values
from ascendsim.aclnn.c_calls import (
    aclCreateBoolArray,
    aclCreateIntArray,
    aclCreateTensor,
    aclDestroyAclOpExecutor,
    aclDestroyBoolArray,
    aclDestroyIntArray,
    aclDestroyTensor,
    aclnnConvolutionBackward,
    aclnnConvolutionBackwardGetWorkspaceSize,
    aclnnConvTbcBackward,
    aclnnConvTbcBackwardGetWorkspaceSize,
    aclSetAclOpExecutorRepeatable,
    aclSetInputTensorAddr,
    aclSetOutputTensorAddr,
    aclSetTensorAddr,
)
from ascendsim.aclnn.c_values import *  # noqa: F403  # constants alone
from ascendsim.aclnn.c_values import (
    Out,
    aclFinalize,
    aclGetRecentErrMsg,
    aclInit,
    aclrtCreateStream,
    aclrtCtxGetSysParamOpt,
    aclrtCtxSetSysParamOpt,
    aclrtDestroyStream,
    aclrtFree,
    aclrtMalloc,
    aclrtMemcpy,
    aclrtResetDevice,
    aclrtSetDevice,
    aclrtSynchronizeStream,
)
from ascendsim.aclnn.handles import AclTensor, Executor
from ascendsim.aclnn.interface import (
    conv_tbc_backward_get_workspace_size,
    convolution_backward_get_workspace_size,
)
from ascendsim.errors import AclnnError
from ascendsim.rules import CubeMathType

__all__ = [
    "AclTensor",
    "AclnnError",
    "CubeMathType",
    "Executor",
    "Out",
    "aclCreateBoolArray",
    "aclCreateIntArray",
    "aclCreateTensor",
    "aclDestroyAclOpExecutor",
    "aclDestroyBoolArray",
    "aclDestroyIntArray",
    "aclDestroyTensor",
    "aclFinalize",
    "aclGetRecentErrMsg",
    "aclInit",
    "aclSetAclOpExecutorRepeatable",
    "aclSetInputTensorAddr",
    "aclSetOutputTensorAddr",
    "aclSetTensorAddr",
    "aclnnConvTbcBackward",
    "aclnnConvTbcBackwardGetWorkspaceSize",
    "aclnnConvolutionBackward",
    "aclnnConvolutionBackwardGetWorkspaceSize",
    "aclrtCreateStream",
    "aclrtCtxGetSysParamOpt",
    "aclrtCtxSetSysParamOpt",
    "aclrtDestroyStream",
    "aclrtFree",
    "aclrtMalloc",
    "aclrtMemcpy",
    "aclrtResetDevice",
    "aclrtSetDevice",
    "aclrtSynchronizeStream",
    "conv_tbc_backward_get_workspace_size",
    "convolution_backward_get_workspace_size",
]
__all__ += values.__all__
