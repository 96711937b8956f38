"""Constants and enumerations of the vendor's headers, under their names.

Source   public headers of CANN: acl/acl_base.h, acl/acl_rt.h, aclnn/acl_meta.h; statuses: the operator pages
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import IntEnum
from functools import wraps
from operator import index
from typing import TYPE_CHECKING, Any, ParamSpec

from ascendsim.errors import AclnnError, shown

if TYPE_CHECKING:
    from numpy.typing import NDArray


ACL_SUCCESS = ACLNN_SUCCESS = 0
ACL_ERROR_INVALID_PARAM = 100000
ACL_ERROR_BAD_ALLOC = 200000
ACL_ERROR_INTERNAL_ERROR = 500000
ACLNN_ERR_PARAM_NULLPTR = 161001
ACLNN_ERR_PARAM_INVALID = 161002
ACLNN_ERR_RUNTIME_ERROR = 361001
ACLNN_ERR_INNER_INFERSHAPE_ERROR = 561001
ACLNN_ERR_INNER_TILING_ERROR = 561002
ACLNN_ERR_INNER_FIND_KERNEL_ERROR = 561003
ACLNN_ERR_INNER_CREATE_EXECUTOR = 561101
ACLNN_ERR_INNER_NULLPTR = 561103

ACL_MEM_MALLOC_HUGE_FIRST, ACL_MEM_MALLOC_HUGE_ONLY, ACL_MEM_MALLOC_NORMAL_ONLY = 0, 1, 2
ACL_MEMCPY_HOST_TO_HOST, ACL_MEMCPY_HOST_TO_DEVICE = 0, 1
ACL_MEMCPY_DEVICE_TO_HOST, ACL_MEMCPY_DEVICE_TO_DEVICE = 2, 3


class aclDataType(IntEnum):
    """Formats of elements."""

    ACL_DT_UNDEFINED = -1
    ACL_FLOAT = 0
    ACL_FLOAT16 = 1
    ACL_INT8 = 2
    ACL_INT32 = 3
    ACL_UINT8 = 4
    ACL_INT16 = 6
    ACL_UINT16 = 7
    ACL_UINT32 = 8
    ACL_INT64 = 9
    ACL_UINT64 = 10
    ACL_DOUBLE = 11
    ACL_BOOL = 12
    ACL_COMPLEX64 = 16
    ACL_COMPLEX128 = 17
    ACL_BF16 = 27
    ACL_HIFLOAT8 = 34
    ACL_FLOAT8_E5M2 = 35
    ACL_FLOAT8_E4M3FN = 36


class aclFormat(IntEnum):
    """Storage formats."""

    ACL_FORMAT_UNDEFINED = -1
    ACL_FORMAT_NCHW = 0
    ACL_FORMAT_NHWC = 1
    ACL_FORMAT_ND = 2
    ACL_FORMAT_NC1HWC0 = 3
    ACL_FORMAT_FRACTAL_Z = 4
    ACL_FORMAT_NC1HWC0_C04 = 12
    ACL_FORMAT_HWCN = 16
    ACL_FORMAT_NDHWC = 27
    ACL_FORMAT_FRACTAL_NZ = 29
    ACL_FORMAT_NCDHW = 30
    ACL_FORMAT_NDC1HWC0 = 32
    ACL_FORMAT_FRACTAL_Z_3D = 33
    ACL_FORMAT_NC = 35
    ACL_FORMAT_NCL = 47


class aclSysParamOpt(IntEnum):
    """Switches of a context."""

    ACL_OPT_DETERMINISTIC = 0


# C has them without the name of their enumeration too.
ACL_FLOAT, ACL_FLOAT16, ACL_BF16 = aclDataType.ACL_FLOAT, aclDataType.ACL_FLOAT16, aclDataType.ACL_BF16
ACL_HIFLOAT8, ACL_FLOAT8_E4M3FN = aclDataType.ACL_HIFLOAT8, aclDataType.ACL_FLOAT8_E4M3FN
ACL_FORMAT_ND, ACL_FORMAT_NCL = aclFormat.ACL_FORMAT_ND, aclFormat.ACL_FORMAT_NCL
ACL_FORMAT_NCHW, ACL_FORMAT_NCDHW = aclFormat.ACL_FORMAT_NCHW, aclFormat.ACL_FORMAT_NCDHW
ACL_OPT_DETERMINISTIC = aclSysParamOpt.ACL_OPT_DETERMINISTIC

__all__ = [
    "ACLNN_ERR_INNER_CREATE_EXECUTOR",
    "ACLNN_ERR_INNER_FIND_KERNEL_ERROR",
    "ACLNN_ERR_INNER_INFERSHAPE_ERROR",
    "ACLNN_ERR_INNER_NULLPTR",
    "ACLNN_ERR_INNER_TILING_ERROR",
    "ACLNN_ERR_PARAM_INVALID",
    "ACLNN_ERR_PARAM_NULLPTR",
    "ACLNN_ERR_RUNTIME_ERROR",
    "ACLNN_SUCCESS",
    "ACL_BF16",
    "ACL_ERROR_BAD_ALLOC",
    "ACL_ERROR_INTERNAL_ERROR",
    "ACL_ERROR_INVALID_PARAM",
    "ACL_FLOAT",
    "ACL_FLOAT8_E4M3FN",
    "ACL_FLOAT16",
    "ACL_FORMAT_NCDHW",
    "ACL_FORMAT_NCHW",
    "ACL_FORMAT_NCL",
    "ACL_FORMAT_ND",
    "ACL_HIFLOAT8",
    "ACL_MEMCPY_DEVICE_TO_DEVICE",
    "ACL_MEMCPY_DEVICE_TO_HOST",
    "ACL_MEMCPY_HOST_TO_DEVICE",
    "ACL_MEMCPY_HOST_TO_HOST",
    "ACL_MEM_MALLOC_HUGE_FIRST",
    "ACL_MEM_MALLOC_HUGE_ONLY",
    "ACL_MEM_MALLOC_NORMAL_ONLY",
    "ACL_OPT_DETERMINISTIC",
    "ACL_SUCCESS",
    "aclDataType",
    "aclFormat",
    "aclSysParamOpt",
]


Given = ParamSpec("Given")


class Out:
    """A variable that a call writes to, where a C program passes its address.

    value   what has been written; before that, what it was made with
    """

    __slots__ = ("value",)

    def __init__(self, value: Any = None) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"Out({self.value!r})"


@dataclass
class AclContext:
    """The state of one thread: `switches` by their number, and the text of the last error, if any."""

    switches: dict[int, int] = field(default_factory=dict)
    last_error: str | None = None


# The C interface has no handle that could carry this from call to call; as there, each thread has its own.
_CURRENT: ContextVar[AclContext] = ContextVar("context of the C interface")


def current() -> AclContext:
    """Return the context of this thread."""
    try:
        return _CURRENT.get()
    except LookupError:
        made = AclContext()
        _CURRENT.set(made)
        return made


def reset() -> None:
    """Forget the context of this thread."""
    _CURRENT.set(AclContext())


def failed(status: int, text: str) -> int:
    """Note an error and return its status."""
    current().last_error = text
    return status


def answered(call: Callable[Given, None]) -> Callable[Given, int]:
    """Return a call that answers with a status where this one raises an AclnnError."""

    @wraps(call)
    def answering(*args: Given.args, **keywords: Given.kwargs) -> int:
        try:
            call(*args, **keywords)
        except AclnnError as error:
            return failed(error.status, str(error))
        return ACL_SUCCESS

    return answering


class AclStream:
    """A stream that runs its calls at once."""


def aclInit(_configPath: Any = None) -> int:
    """Begin; nothing is read from a configuration."""
    return ACL_SUCCESS


def aclFinalize() -> int:
    """End."""
    return ACL_SUCCESS


def aclrtSetDevice(_deviceId: Any = 0) -> int:
    """Take the device; which product it is, the operator's call says."""
    return ACL_SUCCESS


def aclrtResetDevice(_deviceId: Any = 0) -> int:
    """Leave the device, and forget the switches of its context and the last error."""
    reset()
    return ACL_SUCCESS


def aclrtCreateStream(stream: Out) -> int:
    """Write a stream to `stream`."""
    return _write(stream, AclStream(), "stream")


def aclrtSynchronizeStream(_stream: Any = None) -> int:
    """Wait for a stream: everything on it has run."""
    return ACL_SUCCESS


def aclrtDestroyStream(_stream: Any = None) -> int:
    """Leave a stream."""
    return ACL_SUCCESS


def aclrtMalloc(devPtr: Out, size: Any, _policy: Any = ACL_MEM_MALLOC_HUGE_FIRST) -> int:
    """Write `size` bytes of device memory, a numpy array of uint8, to `devPtr`."""
    import numpy as np

    count = _count(size)
    if count is None or count == 0:
        return failed(ACL_ERROR_INVALID_PARAM, f"aclrtMalloc: size is {shown(size)}; it must be above 0")
    try:
        memory = np.empty(count, np.uint8)
    except (MemoryError, ValueError):
        return failed(ACL_ERROR_BAD_ALLOC, f"aclrtMalloc: there are no {shown(size)} bytes")
    return _write(devPtr, memory, "devPtr")


def aclrtFree(_devPtr: Any) -> int:
    """Leave device memory, which goes when nothing holds it any more."""
    return ACL_SUCCESS


def aclrtMemcpy(dst: Any, destMax: Any, src: Any, count: Any, _kind: Any = 0) -> int:
    """Copy `count` bytes of an array to another one, which holds `destMax` of them."""
    wanted, room = _count(count), _count(destMax)
    if wanted is None or room is None:
        return failed(ACL_ERROR_INVALID_PARAM, f"aclrtMemcpy: count is {shown(count)} of {shown(destMax)}")
    target, source = bytes_of(dst), bytes_of(src)
    if target is None or source is None:
        what = shown(dst if target is None else src)
        return failed(
            ACL_ERROR_INVALID_PARAM, f"aclrtMemcpy: {what} is no memory; pass an array without gaps"
        )
    if wanted > min(room, target.size, source.size) or not target.flags.writeable:
        sizes = f"{min(room, target.size)} bytes from {source.size}"
        return failed(ACL_ERROR_INVALID_PARAM, f"aclrtMemcpy: {wanted} bytes do not fit into {sizes}")
    target[:wanted] = source[:wanted]
    return ACL_SUCCESS


def aclrtCtxSetSysParamOpt(opt: Any, value: Any) -> int:
    """Set a switch of this thread's context: ACL_OPT_DETERMINISTIC, 0 or 1, is the only one that counts."""
    number = _count(value)
    switch = _switch(opt)
    if switch is None or number not in (0, 1):
        what = f"{shown(opt)} = {shown(value)}"
        return failed(
            ACL_ERROR_INVALID_PARAM,
            f"aclrtCtxSetSysParamOpt: {what}; it must be ACL_OPT_DETERMINISTIC = 0 or 1",
        )
    current().switches[switch] = number
    return ACL_SUCCESS


def aclrtCtxGetSysParamOpt(opt: Any, value: Out) -> int:
    """Write a switch to `value`: what was set, else 0."""
    switch = _switch(opt)
    if switch is None:
        return failed(ACL_ERROR_INVALID_PARAM, f"aclrtCtxGetSysParamOpt: there is no switch {shown(opt)}")
    return _write(value, current().switches.get(switch, 0), "value")


def aclGetRecentErrMsg() -> str | None:
    """Return the message of this thread's last failed call, once; None if no call has failed."""
    context = current()
    text, context.last_error = context.last_error, None
    return text


def bytes_of(memory: Any) -> NDArray[Any] | None:
    """Return the bytes of an array without gaps, or of a bytearray, as they lie; None of anything else."""
    import numpy as np

    try:
        # A matrix would stay one of two axes, whatever shape it is given.
        array = np.asarray(memory) if isinstance(memory, np.ndarray) else np.frombuffer(memory, np.uint8)
        return array.reshape(-1).view(np.uint8) if array.flags.c_contiguous else None
    except Exception:  # whatever a foreign object does when it is asked
        return None


def _count(value: Any) -> int | None:
    """Return a number of 0 or more; None for anything else."""
    try:
        number = index(value)
    except Exception:  # likewise
        return None
    return number if number >= 0 else None


def _switch(value: Any) -> int | None:
    """Return the number of a switch; None for what is none, such as an array, which equals many things."""
    number = _count(value)
    return number if number in tuple(aclSysParamOpt) else None


def _write(place: Any, value: Any, name: str) -> int:
    """Write to an Out."""
    if not isinstance(place, Out):
        return failed(ACL_ERROR_INVALID_PARAM, f"{name} is {shown(place)}; pass an Out() to write to")
    place.value = value
    return ACL_SUCCESS
