"""`-v`: what the package tells of its work, on standard error."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

HELP = "say on standard error what is compiled, timed and computed"


@contextmanager
def told(*, wanted: bool) -> Iterator[None]:
    """Write the messages of the package to standard error as long as this lasts, if that is wanted."""
    if not wanted:
        yield
        return
    logger = logging.getLogger("ascendsim")
    # Made here and not at the top: standard error may be another one for each command, as in tests.
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(relativeCreated)8.0f ms  %(name)s: %(message)s"))
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
