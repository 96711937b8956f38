"""Questions asked of many calls at once; each answers with frozen records, for reports to render.

precision    how far gradients are from float64 ones of the same tensors
sweep        every figure of a product that has a range at both ends of it, one by one
uncertainty  between what times a call lies: by its figures, its plans, and the model's own error
ratios       which of two calls takes longer, and how sure that is
arithmetic   operand formats, accumulation models and output formats side by side
modes        which format and cubeMathType for given tensors, and where its error comes from
identify     which accumulation model a device has, from its answers
engine       points, their answers in a store, and who computes them
records      the answers
"""
