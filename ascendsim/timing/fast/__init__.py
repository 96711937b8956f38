"""The compiled engine: programs as tables for the loops of `compiled`, and what these find."""
