"""Tilings of our own: candidates ranked by what their instructions cost."""
