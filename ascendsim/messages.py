"""The messages of this package go through Python's logging."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from logging import Logger


def logger_of(name: str) -> Logger | None:
    """Return the logger of a module; None where nobody in this process has imported logging.

    Who wants to hear messages imports it. To import it for nobody would take 3 ms.
    """
    logging = sys.modules.get("logging")
    if logging is None:
        return None
    package = logging.getLogger("ascendsim")
    # Who imports a library decides what becomes of its messages.
    if not package.handlers:
        package.addHandler(logging.NullHandler())
    found: Logger = logging.getLogger(name)
    return found
