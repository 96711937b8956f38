"""Checks in a row: the first that finds something answers the call."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, TypeVar

from ascendsim.errors import AclnnError

# A check of any call serves in the order of one interface.
SomeChecked = TypeVar("SomeChecked", contravariant=True)
# ACLNN_ERR_PARAM_INVALID, ACLNN_ERR_PARAM_NULLPTR, ACLNN_ERR_INNER_NULLPTR.
INVALID, NULL, INNER = 161002, 161001, 561103


class Check(NamedTuple, Generic[SomeChecked]):
    """One row of the order of checks: `find` returns what is wrong, or None."""

    # A text, since rules that only pages state stand between the operator's own numbers: 3a, 24b.
    number: str
    name: str
    find: Callable[[SomeChecked], str | None]
    status: int = INVALID


def run(checks: Iterable[Check[SomeChecked]], call: SomeChecked) -> None:
    """Run checks in order.

    Raises   AclnnError of the first that finds something
    """
    for check in checks:
        # Later checks rely on what earlier ones have found to hold; so no check runs after a failure.
        reason = check.find(call)
        if reason is not None:
            raise AclnnError(check.status, f"{check.number} ({check.name})", reason)


def listed(values: Iterable[object]) -> str:
    """Join values for a message."""
    return ", ".join(map(str, values))
