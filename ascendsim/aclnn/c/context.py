"""What a thread of a C program shares between its calls: the switches it has set, and its last error."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, ParamSpec

from ascendsim.aclnn.c.values import ACL_SUCCESS
from ascendsim.errors import AclnnError

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
class Context:
    """The state of one thread: `switches` by their number, and the text of the last error, if any."""

    switches: dict[int, int] = field(default_factory=dict)
    last_error: str | None = None


# The C interface has no handle that could carry this from call to call; as there, each thread has its own.
_CURRENT: ContextVar[Context] = ContextVar("context of the C interface")


def current() -> Context:
    """Return the context of this thread."""
    try:
        return _CURRENT.get()
    except LookupError:
        made = Context()
        _CURRENT.set(made)
        return made


def reset() -> None:
    """Forget the context of this thread."""
    _CURRENT.set(Context())


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
