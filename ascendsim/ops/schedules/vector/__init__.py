"""The loops of the vector cores."""
