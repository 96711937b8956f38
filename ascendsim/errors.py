"""One error class per kind of mistake a user can make, and checks of arguments as users write them."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Set
from itertools import islice
from operator import index
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


class AscendSimError(ValueError):
    """Base of every error that ascendsim raises for a mistake in its inputs."""


class ConfigError(AscendSimError):
    """A product file, study file or option has a missing or wrong value."""


class ShapeError(AscendSimError):
    """Tensor shapes or convolution attributes do not fit each other."""


class UnsupportedError(AscendSimError):
    """The request is well formed, but this product or this version does not do it."""


class BudgetError(UnsupportedError):
    """A call has more instructions, or needs more bytes, than are wanted of one."""


class CapacityError(AscendSimError):
    """A tiling or a program needs more of an on-chip buffer than there is.

    buffer   the one that is short, such as "L0C"; "" if it is not a single one
    """

    def __init__(self, message: str = "", buffer: str = "") -> None:
        super().__init__(message)
        self.buffer = buffer


class StoppedError(AscendSimError):
    """An estimate was stopped as it had passed the bound that it was given."""


class ProgramError(AscendSimError):
    """A schedule built a program that breaks the rules of the machine."""


class DataError(AscendSimError):
    """A file with the user's data cannot be read in the expected form."""


class WorkerError(AscendSimError):
    """A worker process has ended before its work was done."""


STATUS_NAMES = {
    161001: "ACLNN_ERR_PARAM_NULLPTR",
    161002: "ACLNN_ERR_PARAM_INVALID",
    361001: "ACLNN_ERR_RUNTIME_ERROR",
    561001: "ACLNN_ERR_INNER_INFERSHAPE_ERROR",
    561002: "ACLNN_ERR_INNER_TILING_ERROR",
    561003: "ACLNN_ERR_INNER_FIND_KERNEL_ERROR",
    561101: "ACLNN_ERR_INNER_CREATE_EXECUTOR",
    561103: "ACLNN_ERR_INNER_NULLPTR",
}


class AclnnError(AscendSimError):
    """The two-phase interface answers a call with a status other than success.

    status   the vendor's number; `name` is its vendor name
    check    which check failed: its number in the order of checks, and its name
    reason   what the rule is and what was got
    """

    def __init__(self, status: int, check: str, reason: str) -> None:
        super().__init__(status, check, reason)
        self.status = status
        self.check = check
        self.reason = reason

    @property
    def name(self) -> str:
        """Vendor's name of the status."""
        return STATUS_NAMES[self.status]

    def __str__(self) -> str:
        return f"{self.status} {self.name}, check {self.check}: {self.reason}"


def close_matches(word: str, known: Iterable[str], n: int = 1, cutoff: float = 0.6) -> list[str]:
    """Return at most `n` known words that were probably meant, the nearest first, for a hint."""
    # Imported here: nearly every module may need a hint, and hardly any call does.
    from difflib import get_close_matches

    return get_close_matches(word, list(known), n=n, cutoff=cutoff)


def did_you_mean(word: str, known: Collection[str], otherwise: str = "") -> str:
    """Return the hint about an unknown word: what was probably meant, else `otherwise`, or what there is."""
    near = close_matches(word, known)
    return f"did you mean {near[0]}?" if near else otherwise or f"there is {', '.join(known)}"


def install_hint(extra: str) -> str:
    """Return the command that installs an extra: of a copy from a folder another one than from an index."""
    # Imported here, as above.
    import json
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        # Which folder or address an installer took it from (PEP 610); none of an index.
        told = json.loads(distribution("ascendsim").read_text("direct_url.json") or "{}")
    except PackageNotFoundError:
        # Nobody has installed it: it is run where it lies.
        told = {"dir_info": {"editable": True}, "url": "file://its checkout"}
    if "dir_info" not in told:
        return f"pip install 'ascendsim[{extra}]'"
    editable = "-e " if told["dir_info"].get("editable") else ""
    return f"pip install {editable}'.[{extra}]' in {told['url'].removeprefix('file://')}"


# Longer lists of numbers are nothing that an operator takes; reading them could take for ever.
LONGEST = 64
SHOWN = 60
# Texts and numbers as far as a message takes them; of long lists the beginning.
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = SHOWN


def whole(value: Any) -> int | None:
    """Return an integer of any kind as int; None for anything else, truth values among it."""
    if is_bool(value):
        return None
    try:
        return index(value)
    except Exception:  # whatever a foreign object does when it is asked
        return None


def items(value: Any) -> tuple[Any, ...] | None:
    """Return the items of a list of any kind; None for other values, unordered ones and far too long ones.

    No more is read of it than a list may hold, so that an endless one costs nothing.
    """
    # They have items, but "12" is not (1, 2), and a set has no order.
    if isinstance(value, (str, bytes, bytearray, Mapping, Set)):
        return None
    try:
        found = tuple(islice(value, LONGEST + 1))
    except Exception:  # likewise
        return None
    return None if len(found) > LONGEST else found


def shown(value: Any) -> str:
    """Return a text for any value at all, never long."""
    try:
        text = _SHORT.repr(value)
    except Exception:  # likewise
        text = f"a {type(value).__name__}"
    # An array is written in lines, a message in one.
    text = " ".join(text.split())
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def refusal(name: str, given: object, rule: str) -> ConfigError:
    """Return the error for a meaningless value: its name, the value, and the allowed values."""
    return ConfigError(f"{name} is {shown(given)}; it must be {rule}")


def truth(value: Any) -> bool | None:
    """Return a truth value, or 0 or 1 in its place, as bool; None for anything else."""
    if is_bool(value):
        return bool(value)
    number = whole(value)
    return bool(number) if number in (0, 1) else None


def is_bool(value: Any) -> bool:
    """Return whether a value is a truth value, of Python or numpy, without importing numpy."""
    return type(value).__name__ in ("bool", "bool_")
