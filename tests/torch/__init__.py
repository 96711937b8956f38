"""Torch: does an unmodified script of torch run, with the bits of the simulator?"""
