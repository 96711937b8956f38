"""Functions for `Native`, in a file of their own that other processes import."""

import numpy as np

FACTOR = 3
STEPS = (5, 7)


def scaled(values, index):
    return values[index] * FACTOR + STEPS[1]


def chained(values, index):
    return scaled(values, index) + scaled(values, index + 1)


def fill(numbers, small, codes, rates, count):
    """Write into each kind of array; return a sum that needs all of them."""
    total = 0
    for index in range(count):
        small[index] = numbers[index] - 1
        codes[index] = codes[index] + 250
        rates[index] = rates[index] / 4
        total += chained(numbers, index) + small[index] * codes[index] + int(rates[index] * 8)
    return total


def read_at(numbers, index):
    return numbers[index]


def refuse(count):
    if count < 0:
        raise ValueError("negative")
    return count


def quotient(rates):
    rates[0] = rates[0] / rates[1]
    return 0


def make_array(count):
    return np.zeros(count).size


def length(numbers):
    return len(numbers)


def import_one(count):
    import math

    return math.gcd(count, 4)


def unnamed_helper(numbers, index):
    return read_at(numbers, index)


def many(a, b, c, d, e, f, g, h, i, j):
    return a[0] + b * c[1] - d[0] + e * f + g[0] * h[1] + i - j


def put(wide, narrow, codes, rates):
    """Write numbers that not all of the arrays hold, and one that is converted, into each kind of array."""
    wide[1], narrow[1], codes[1], rates[1] = 2**40, 2**32 + 5, 300, 0.5
    wide[2], narrow[2], codes[2], rates[2] = rates[1] + 2, rates[1] + 2, rates[1] + 2, rates[1] + 2
    return 0
