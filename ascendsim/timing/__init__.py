"""Run a kernel for its cycles."""

ENGINES = ("simpy", "compiled")
