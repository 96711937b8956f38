"""Compare formats and cubeMathTypes for given tensors: the gradients' errors in each mode of the interface.

choice     the questions, and of the fastest modes that pass the most accurate
measure    a case under every mode, model and loss scale
losses     what a gradient loses: by which cause, in which decade, in which channel
records    the answers
"""
