"""Numerics: are the bits of formats, casts and accumulation right?"""
