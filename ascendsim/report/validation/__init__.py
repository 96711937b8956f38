"""Measured against estimated, as tables, pages and plain values."""
