"""The keywords of operators, and their resolved values."""
