"""Gains in time by changes of the hardware.

records   the question and the answer
enlarging every figure of a product made better, each alone
plans     which plans are new, the better one of each gradient, and what new ones save without the change
gains     a change on each layer: under the same plan, planned anew, the better of both
tuned     a call with each gradient under the best plan that the tuner finds
doubt     between what the gain lies if figures with a range lie anywhere in it
"""
