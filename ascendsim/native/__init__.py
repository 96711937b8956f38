"""Plain functions as machine code, and the folders that keep it; the compiler is imported to fill them."""

from ascendsim.native.function import Native

__all__ = ["Native"]
