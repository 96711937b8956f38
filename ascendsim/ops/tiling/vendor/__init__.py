"""Tilings as the products' operators choose them, one file a generation."""
