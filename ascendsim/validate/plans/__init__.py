"""Measured plans of one gradient against the model: what a search of tilings lives on."""
