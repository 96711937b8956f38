"""Helpers: nothing: slow definitions, samples, machines small enough to reckon by hand, which tests share"""
