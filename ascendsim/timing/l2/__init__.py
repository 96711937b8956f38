"""The account of L2: what it holds, decided in one pass over a kernel before that is timed."""
