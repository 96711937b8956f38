"""The loop nest of grad_input, and of the forward direction of a transposed convolution."""
