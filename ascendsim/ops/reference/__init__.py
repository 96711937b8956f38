"""The gradients by definition: the plain ordered computation, and float64."""
