"""Arithmetics that users compare, one gradient at a time.

formats    formats of the products, and formats that no product here has, named as studies
gpus       tensor cores of other vendors, as instances of `align`
math       an operand format, a model and an output format as one value; gradients under it
errors     how far gradients are from float64, and from what: operands, accumulation or output
trees      the order of a reduction's additions, as a tree
"""
