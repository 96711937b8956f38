"""Programs in PTO's textual form, `.pto` files, as kernels of this simulator."""

from ascendsim.pto.kernel import read_pto

__all__ = ["read_pto"]
