"""Run a kernel for its cycles."""
