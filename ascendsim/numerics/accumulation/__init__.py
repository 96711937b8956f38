"""Accumulation models and their exact definitions."""
