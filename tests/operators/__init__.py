"""Operators: are the gradients of whole calls right, whatever is asked?"""
