"""Timing: are cycles and bytes right, and both engines equal?"""
