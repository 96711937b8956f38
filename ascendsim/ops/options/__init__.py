"""The keywords of operators, and what they resolve to."""
