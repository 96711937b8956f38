"""From a call to the graph of kernels that the device runs."""
