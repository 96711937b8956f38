"""The instructions of cube, vector units and data movers: what each does to its operands."""
