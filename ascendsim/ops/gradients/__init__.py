"""The gradients without instructions: each product of a call in one go, in the order that its plan fixes.

    planes     images with their padding, and where a kernel that slides over them reads
    kernels    the weights as grad_input multiplies them
    images     grad_input
    reductions the parts of a grad_weight: what they multiply, where they are cut
    filters    grad_weight
    bias       grad_bias
    orders     which orders of additions can be followed here
    formats    tensors as they come in, gradients as they go out
    call       a whole call: the three gradients, and the executor for what cannot be followed

The bits are those of the executor under the same plan; a test compares them on random calls.
"""
