"""The gradients without instructions: each product of a call in one go, in the order that its plan fixes.

    layouts    tensors as products take them, gradients as they leave: channels last, padding, formats
    images     grad_input
    filters    grad_weight: directly or by Winograd, whole or in parts
    call       a whole call: the three gradients, and which of them are for the executor

The bits are those of the executor under the same plan; a test compares them on random calls.
"""
