"""Plain functions as machine code, and the folders that keep it; the compiler is imported to fill them."""

from typing import TYPE_CHECKING, Any

import ascendsim.native.process  # noqa: F401 - from now on forks wait

if TYPE_CHECKING:
    from ascendsim.native.function import Native

__all__ = ["Native"]


def __getattr__(name: str) -> Any:
    """Import what takes arrays, and so loads numpy, when it is asked for."""
    if name != "Native":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ascendsim.native.function import Native

    return Native
