"""Precision: are errors measured rightly, and are models and intervals told apart?"""
