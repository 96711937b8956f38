"""What the sources of measured cases say in words, as columns."""
