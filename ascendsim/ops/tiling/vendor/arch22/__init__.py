"""The plans of 910B and 910_93, whose vector cores stand apart and whose activations lie in NC1HWC0."""
