"""Plain functions as machine code, and the folders that keep it; the compiler is imported to fill them."""

import ascendsim.native.forks  # noqa: F401 - from now on forks wait
from ascendsim.native.function import Native

__all__ = ["Native"]
