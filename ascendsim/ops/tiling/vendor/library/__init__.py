"""Tilings of the 2-D kernels whose operators come with a library of schedules, as far as it is known."""
