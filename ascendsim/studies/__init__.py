"""Questions asked of many calls at once; each answers with frozen records, for reports to render.

precision    how far gradients are from float64 ones of the same tensors
sweep        every assumed figure of a product at both ends of its range, one by one
sensitivity  a sweep of the main job
interval     a sweep of any call, and the times with all figures at once
arithmetic   operand formats, accumulation models and output formats side by side
modes        which format and cubeMathType for given tensors, and where its error comes from
identify     which accumulation model a device has, from its answers
engine       points, their answers in a store, and who computes them
records      the answers
"""
