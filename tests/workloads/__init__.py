"""Workloads: are the networks the ones that the literature describes?"""
