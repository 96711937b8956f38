"""The calls of the runtime around an operator: set up, memory, switches, streams, the text of the last error.

There is one device, whose memory is the process's own, and a stream has nothing to wait for: an operator has
run when its call returns.
"""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING, Any

from ascendsim.aclnn.c.context import Out, current, failed, reset
from ascendsim.aclnn.c.values import (
    ACL_ERROR_BAD_ALLOC,
    ACL_ERROR_INVALID_PARAM,
    ACL_MEM_MALLOC_HUGE_FIRST,
    ACL_SUCCESS,
    aclSysParamOpt,
)
from ascendsim.arguments import shown

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Stream:
    """A stream, which runs what it gets at once."""


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
    return _write(stream, Stream(), "stream")


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
    if opt not in tuple(aclSysParamOpt) or number not in (0, 1):
        what = f"{shown(opt)} = {shown(value)}"
        return failed(
            ACL_ERROR_INVALID_PARAM,
            f"aclrtCtxSetSysParamOpt: {what}; it must be ACL_OPT_DETERMINISTIC = 0 or 1",
        )
    current().switches[index(opt)] = number
    return ACL_SUCCESS


def aclrtCtxGetSysParamOpt(opt: Any, value: Out) -> int:
    """Write a switch to `value`: what was set, else 0."""
    if opt not in tuple(aclSysParamOpt):
        return failed(ACL_ERROR_INVALID_PARAM, f"aclrtCtxGetSysParamOpt: there is no switch {shown(opt)}")
    return _write(value, current().switches.get(index(opt), 0), "value")


def aclGetRecentErrMsg() -> str | None:
    """Return what the last call that failed in this thread had to say, once; None if none has."""
    context = current()
    text, context.last_error = context.last_error, None
    return text


def bytes_of(memory: Any) -> NDArray[Any] | None:
    """Return the bytes of an array without gaps, or of a bytearray, as they lie; None of anything else."""
    import numpy as np

    try:
        array = memory if isinstance(memory, np.ndarray) else np.frombuffer(memory, np.uint8)
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


def _write(place: Any, value: Any, name: str) -> int:
    """Write to an Out."""
    if not isinstance(place, Out):
        return failed(ACL_ERROR_INVALID_PARAM, f"{name} is {shown(place)}; pass an Out() to write to")
    place.value = value
    return ACL_SUCCESS
