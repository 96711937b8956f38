"""What a fuzzer says when something is wrong."""

from __future__ import annotations


class WrongError(Exception):
    """A call had an outcome that it must not have."""


def must(holds: object, text: object) -> None:
    """Refuse an outcome.

    Raises   WrongError unless something holds
    """
    if not holds:
        raise WrongError(str(text))
