"""Networks as data."""
