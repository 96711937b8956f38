"""Measured cases held against the model: read them, run the model on each, compare."""
