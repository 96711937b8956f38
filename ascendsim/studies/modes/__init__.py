"""Compare formats and cubeMathTypes for given tensors: the gradients' errors in each mode of the interface.

cases      the tensors that are asked about: drawn or recorded, in float64
exponents  where the exponents of a tensor lie, and what of them a format holds
parts      the error of a gradient, split into storage, cast, accumulation and output
failing    why a gradient fails an acceptance rule of the field
point      a case as a point of the engine of studies
measure    a case under every mode, model and loss scale
choice     the cheapest mode that passes
records    the answers
"""
