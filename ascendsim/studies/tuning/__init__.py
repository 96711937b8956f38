"""Tilings that beat the product's choice, and why they do.

study     the answer: the best plan, why it is faster, how sure that is
records   the question and the answer
space     legal tilings near another one, each in one spelling
moves     the neighbours of a plan
operators plans of the operators' nests, and their neighbours
tune      plans timed, each once
search    steps from the product's plan, then Optuna
waits     where the cycles of two plans go, and differ
courses   how two plans run: stages, critical paths, what buffers hold
"""
