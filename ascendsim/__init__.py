"""Bit-exact, cycle-approximate simulator of convolution backward on the Ascend AI core."""

__version__ = "0.1.0"
