"""Tilings of convolutions as the operators of the first generation (910, 310P) choose them.

Blocks take whole images, L0 is cut by divisors with the least traffic, and L1 holds what it can of both
operands. The source is the operators' code and measured kernels of a 30-core 910; the operators' tables of
tuned shapes are not public.
"""
