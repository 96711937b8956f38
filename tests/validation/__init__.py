"""Validation: how near do the estimates come to measurements, and are these read as they are?"""
