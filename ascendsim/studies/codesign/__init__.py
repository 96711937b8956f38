"""Hardware outside, tuned plans inside: which designs nothing beats at their cost.

records   the question and the answer
designs   every combination of changes, timed under tuned plans
"""
