"""What L2 holds, decided in one pass over a kernel before it is timed."""
