"""Are the sums of a probe those that its questions say, place by place, wherever they are made anew?

A device's answers are held against sums that are made again when they come back, so none of them may change.
"""

import numpy as np
import pytest

from ascendsim.numerics.dtypes import dtype
from ascendsim.studies.identify.vectors import vectors_of

FORMATS = ("float16", "bfloat16", "float32")
LARGE = 2.0**26  # its last bit in float32 is 8
SIGNS = (1, -1)


def asked(fmt):
    """Return what each question asks: the products of the first column, place -> value."""
    v, found = vectors_of(dtype(fmt)), {}
    for question, row in zip(v.questions, v.a.astype(np.float64), strict=True):
        found.setdefault(question, []).append({int(at): float(row[at] * 4096) for at in np.flatnonzero(row)})
    return found


def negative(sums):
    return {place: -value for place, value in sums.items()}


def blocks():
    # Half a last bit beside a large product that is cancelled far away or at once, before it, and two of them
    # in places that meet first in a block that holds both.
    for far in (1, 2, 3, 4, 5, 7, 8, 12, 15, 16, 24, 31, 32, 48, 63):
        yield {0: LARGE, far: 4, 80: -LARGE}
        yield {0: LARGE, far: 4, far + 1: -LARGE}
        yield {0: 4, far: LARGE, 80: -LARGE}
        yield {0: LARGE, 32: 4, 32 + far % 32: 4, 80: -LARGE}
    # Quarters of a last bit.
    for count in (2, 3, 4, 5, 8, 9, 16, 17, 31):
        yield {0: LARGE, **{32 + at: 2 for at in range(count)}, 80: -LARGE}


def pairings():
    # (the large one, what cancels it, a small one) among the first places.
    for large, other, small in ((0, 1, 2), (0, 2, 1), (0, 3, 1), (0, 4, 2), (0, 8, 1), (0, 8, 4), (1, 3, 2)):
        yield {large: LARGE, other: -LARGE, small: 4, 64: 1}


def cuts():
    # Two equal terms 2^-20 to 2^-28 of the largest, in its block, and beside an accumulator that has it.
    for small in (64, 32, 16, 8, 4, 2, 1, 0.5, 0.25):
        for place in (1, 64):
            term = {0: LARGE, place: small, place + 1: small, place + 2: -LARGE}
            yield from (term, negative(term))
        yield {0: LARGE, 32: small, 33: small, 80: -LARGE}


def ties():
    # Of a last bit of 8 the halves are 4, of an even value and of an odd one; beside them less and more.
    for sign in SIGNS:
        for odd in (0, 8):
            for part in (1, 3, 4, 4.25, 5, 7):
                for near in SIGNS:
                    begin = {0: LARGE, 1: odd} if odd else {0: LARGE}
                    plain = {**begin, 32: near * part, 80: -LARGE}
                    beside = {**begin, 32: near * part, 33: 0.25, 80: -LARGE}
                    for one in (plain, beside):
                        yield one if sign > 0 else negative(one)


@pytest.mark.parametrize("fmt", FORMATS)
def test_what_is_asked_of_float32_accumulators_is_asked_in_every_format(fmt):
    found = asked(fmt)
    assert found["block"] == list(blocks())
    assert found["pairing"] == list(pairings())
    assert found["cut"] == list(cuts())
    assert found["tie"] == list(ties())


@pytest.mark.parametrize(("fmt", "fraction"), [("float16", 10), ("bfloat16", 7), ("float32", 23)])
def test_the_last_rounding_is_asked_beside_a_tie_of_the_format(fmt, fraction):
    # 2^15 in the second column, of ones: 2^27 in the first. Half a last bit of float32 is 2^27 x 2^-24 = 8.
    large, tie, want = 2.0**27, 2.0 ** (27 - fraction - 1), []
    for sign in SIGNS:
        for odd in (0, 2 * tie):
            for part in (8, -4, 8.5, 4):
                begin = {0: large} if fmt == "float32" else {0: large + odd, 1: tie}
                one = {**begin, 2: part}
                want.append(one if sign > 0 else negative(one))
    assert asked(fmt)["last rounding"] == want


@pytest.mark.parametrize(("fmt", "fraction"), [("float16", 10), ("bfloat16", 7), ("float32", 23)])
def test_each_bit_of_an_operand_from_the_eighth_on_is_asked_for(fmt, fraction):
    want = []
    for low in range(8, fraction + 1):
        bit, last = 2.0**-low, 2.0**-fraction
        for value in (1 + bit, 1 + 3 * bit, 1 + bit + last):
            want += [{0: value, 64: -1}, {0: -value, 64: 1}]
    assert asked(fmt).get("operand", []) == want


@pytest.mark.parametrize(("fmt", "least"), [("float16", -14), ("bfloat16", -126), ("float32", -126)])
def test_the_ends_of_the_range_are_asked_for(fmt, least):
    # Operands of four, of one and of three quarters of half the smallest normal.
    half = 2.0 ** (least - 1) * 4096
    small = [{0: 4 * half}, {0: half}, {0: 4, 1: -0.75 * half}]
    large = [{0: 2.0**16, 64: -(2.0**16), 65: 3}]
    if fmt != "float16":
        # Times 2^-60, 2^12 less than in the first column: sums from 2^-126 down to 2^-130 of normal operands.
        for sum_ in (2.0**-66, 2.0**-67, 2.0**-68, 2.0**-70):
            small += [{0: sum_ * 4096}, {0: 2.0**-65 * 4096, 64: (sum_ - 2.0**-65) * 4096}]
        most = 2.0**127
        large = [{0: 0.75 * most, 64: most}, {0: most, 1: most, 64: -most}, *large]
    assert asked(fmt)["subnormal"] == small
    assert asked(fmt)["overflow"] == large


@pytest.mark.parametrize(("fmt", "fraction"), [("float16", 10), ("bfloat16", 7), ("float32", 23)])
def test_what_is_drawn_is_drawn_alike_everywhere(fmt, fraction):
    found, draw = asked(fmt), np.random.default_rng(0)
    assert len(found["cancelling"]) == 48
    for number, one in enumerate(found["cancelling"]):
        # Eight bits times 2^2 to 2^23, and the same again to be taken away: in order, or mixed.
        half = int(draw.integers(4, 32))
        sizes = draw.integers(128, 256, half) / 128 * 2.0 ** draw.integers(2, 24, half)
        terms = np.r_[sizes, -sizes] * draw.choice([-1, 1])
        places = draw.permutation(2 * half) if number % 2 else range(2 * half)
        assert one == dict(sorted(zip(map(int, places), map(float, terms), strict=True)))
    draw, bits = np.random.default_rng(2), 2.0**fraction
    for one in found["products"]:
        full = np.floor(draw.uniform(1, 2, 8) * bits) / bits
        assert one == dict(enumerate((64 * full * draw.choice([-1, 1], 8)).tolist()))
    assert len(found["products"]) == 16


@pytest.mark.parametrize(("fmt", "fraction"), [("float16", 10), ("bfloat16", 7), ("float32", 23)])
def test_the_columns_have_three_sizes_signs_and_full_significands(fmt, fraction):
    b, draw, bits = vectors_of(dtype(fmt)).b.astype(np.float64), np.random.default_rng(1), 2.0**fraction
    assert b.shape == (128, 8)
    sizes = 4096, 1, 2.0**-12 if fmt == "float16" else 2.0**-60
    assert (b[:, :3] == sizes).all()
    signs = np.where(draw.random(128) < 0.5, -4096, 4096)
    assert (b[:, 3] == signs).all()
    # All bits of the significand set, and the first and last of them.
    assert (b[:, 4] == 2048 * (2 - 1 / bits)).all()
    assert (b[:, 5] == 4096 * (1 + 1 / bits)).all()
    assert (b[:, 6:] == 4096 * np.floor(draw.uniform(1, 2, (128, 2)) * bits) / bits).all()


def test_the_questions_come_in_one_order():
    v = vectors_of(dtype("float32"))
    order = ("block", "pairing", "block", "cut", "tie", "cancelling", "last rounding", "products")
    order += ("subnormal", "overflow", "operand")
    changes = [name for at, name in enumerate(v.questions) if at == 0 or name != v.questions[at - 1]]
    assert tuple(changes) == order
    # Another seed draws other sums, of the same questions.
    other = vectors_of(dtype("float32"), seed=5)
    assert other.questions == v.questions
    differs = (other.a != v.a).any(axis=1)
    assert {v.questions[at] for at in np.flatnonzero(differs)} == {"cancelling", "products"}
