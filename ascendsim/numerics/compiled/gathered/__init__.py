"""Long products of matrices whose elements are left where they lie.

factor     one of the two matrices: its elements by places in an array
cuts       where a reduction may be cut into pieces without a change of the bits
product    the one door: add a product, made by many Mmads, to accumulators
"""
