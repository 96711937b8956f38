"""The plans of 910_95, whose kernels read user tensors as they lie."""
