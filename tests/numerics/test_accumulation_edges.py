"""Are the compiled models right where a proof only just fails to hold?

Each case is one accumulator and its products, made so that a bound that is wider by a few bits than the true
one gives another answer; the answer is derived beside it, and must be the twin's as well.
"""

import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pytest

from ascendsim.numerics.accumulation import AccumulationModel, IntegerSum
from ascendsim.numerics.accumulation_twins import accumulate_twin
from ascendsim.numerics.compiled.accumulate import accumulate

Pairs = list[tuple[float, float]]
SMALLEST, LARGEST = 2.0**-149, float(np.finfo(np.float32).max)


class Case(NamedTuple):
    """A model, an accumulator, its operand pairs and what they make."""

    model: str
    c: float
    pairs: Pairs
    answer: float


def compiled(text: str, c: float, pairs: Pairs) -> float:
    """Return what compiled model and twin agree on, bit for bit."""
    model = AccumulationModel.parse(text)
    both = np.array(pairs, np.float32)
    a, b, found = both[:, :1].T.copy(), both[:, 1:].copy(), np.full((1, 1), c, np.float32)
    expected = accumulate_twin(model, a, b, found)
    with np.errstate(all="ignore"):
        accumulate(model, a, b, found)
    assert found.tobytes() == expected.tobytes() or (np.isnan(found) & np.isnan(expected)).all()
    return float(found[0, 0])


def same(x: float, y: float) -> bool:
    return x == y and math.copysign(1, x) == math.copysign(1, y)


SUMS = {
    # 2^53 + 2^29 + 1 is a hair above the tie between 2^53 and its upper neighbour, 2^30 away; a double drops
    # the 1 and then sees the tie, which goes to the even 2^53.
    "a sum one unit beyond what a double holds": Case(
        "block:2:RNE", 2.0**53, [(2.0**15, 2.0**14), (1, 1)], 2.0**53 + 2.0**30
    ),
    # c has bits down to 2^-23, beside 2^40 a double has them down to 2^-12: what is proven of the products
    # alone says nothing of the sum.
    "an accumulator finer than the products": Case(
        "block:2:RNE", 1 + 2.0**-23, [(2.0**20, 2.0**20), (-(2.0**20), 2.0**20)], 1 + 2.0**-23
    ),
    # 1 + 2^-24 is the tie above 1. Two products of 15/32 of a double's ulp take it above; each is lost alone.
    "what two additions lose together": Case(
        "block:3:RNE", 1.0, [(2.0**-12, 2.0**-12), *[(2.0**-27, 1.875 * 2.0**-27)] * 2], 1 + 2.0**-23
    ),
    # Tie 2^-150 between 0 and the smallest single, and 2^-210 above it. Singles hold neither product, so a
    # bound that is summed in singles says that nothing can be lost.
    "products that singles cannot hold": Case(
        "block:2:RNE", 0.0, [(2.0**-75, 2.0**-75), (2.0**-105, 2.0**-105)], SMALLEST
    ),
    "the same below zero": Case(
        "block:2:RNE", 0.0, [(-(2.0**-75), 2.0**-75), (2.0**-105, -(2.0**-105))], -SMALLEST
    ),
    # Toward zero, even 2^-298 below 1 counts: three terms, 298 binades apart, the large ones cancel.
    "the smallest product beside the largest": Case(
        "block:4:RZ", 1.0, [(LARGEST, LARGEST), (SMALLEST, -SMALLEST), (-LARGEST, LARGEST)], 1 - 2.0**-24
    ),
    # Cut, 1 - 2^-120 is 1 - 2^-53, and what that lacks, 2^-53 - 2^-120, takes 67 bits: an error of a sum is a
    # double only where sums round to nearest.
    "an error that no double holds when sums are cut": Case(
        "block:4:RZ", 0.0, [(1, 1), (-(2.0**-60), 2.0**-60), (-1, 1)], -(2.0**-120)
    ),
    "the smallest product alone is a zero with its sign": Case(
        "block:2:RNE", 0.0, [(SMALLEST, -SMALLEST)], -0.0
    ),
    "the largest products overflow": Case("block:2:RNE", 0.0, [(LARGEST, LARGEST)] * 2, math.inf),
    "toward zero they do not": Case("block:2:RZ", 0.0, [(LARGEST, -LARGEST)] * 2, -LARGEST),
    # 2^17 overflows toward zero to 65504 = 2^16 - 2^5. Then 2^58 is there for a moment, beside which a double
    # has bits down to 2^6 only: 65504 would become 65536. All products are multiples of 128.
    "an overflow toward zero leaves a unit of 32": Case(
        "fp16-acc(block:3:RZ)", 0.0,
        [(2.0**9, 2.0**8), (0, 0), (0, 0), (2.0**29, 2.0**29), (-(2.0**29), 2.0**29), (-16, 8)], 65376.0,
    ),
    # Every block adds 8 and a little to a half whose units are 16: rounded up to the next one, 1024 times,
    # from 16384 to 32768, where magnitudes alone add up to 24608. Then 16 + 2^-38 is a hair above the tie
    # between 32768 and 32800, and 2^15 + 2^-38 takes 54 bits.
    "rounding up makes accumulators larger than all terms together": Case(
        "fp16-acc(block:2:RNE)", 16384.0,
        [(2, 2), (2, 2 + 2.0**-9)] * 1024 + [(4, 4), (2.0**-14, 2.0**-24)], 32800.0,
    ),
    # The same among subnormal halves, whose units are 2^-24: 96 times a little above 2^-25, rounded up, make
    # 1.5 * 2^-18 of half as much. Then a tie of 2^-25, and 2^-71 above it.
    "rounding up subnormals does, too": Case(
        "fp16-acc(block:2:RNE)", 0.0,
        [(2.0**-13, 2.0**-13), (2.0**-13, 2.0**-13 * (1 + 2.0**-10))] * 96
        + [(2.0**-12, 2.0**-13), (2.0**-35, 2.0**-36)], 97 * 2.0**-24,
    ),
    # Binary16 in singles: 2^-25 is the tie below the smallest half, and the product 2^-150 is no single.
    "a product below the singles breaks a tie of halves": Case(
        "fp16-acc(seq:RNE)", 2.0**-25, [(2.0**-75, 2.0**-75)], 2.0**-24
    ),
    "in a chain of rounded products it is gone": Case(
        "fp16-acc(seq-muladd:RNE)", 2.0**-25, [(2.0**-75, 2.0**-75)], 0.0
    ),
}  # fmt: skip

ALIGNED = {
    # Four fraction bits below 2^-92 keep 2^-96; below an exponent taken for -89 it would be cut.
    "products below the smallest exponent of the integer form": Case(
        "align:2:F4:RZ", 0.0, [(2.0**-46, 2.0**-46), (2.0**-48, 2.0**-48)], 2.0**-92 + 2.0**-96
    ),
    # One fraction bit below 2^-90 keeps all of 3 * 2^-91.
    "an accumulator below it": Case("align:2:F1:RZ:acc", 3 * 2.0**-91, [(0, 1)], 3 * 2.0**-91),
    "a subnormal accumulator, which has no exponent field": Case(
        "align:2:F1:RZ:acc", 3 * SMALLEST, [(0, 1)], 3 * SMALLEST
    ),
    # Toward zero, the smallest product takes 1 to its lower neighbour, unless it is cut.
    "the smallest product": Case("align:4:F4:RZ", 1.0, [(SMALLEST, -SMALLEST)], 1 - 2.0**-24),
    "the same beside c is cut": Case("align:4:F4:RZ:acc", 1.0, [(SMALLEST, -SMALLEST)], 1.0),
    # A zero of each sign make +0, also where -0 comes first.
    "two zeros are no minus zero": Case(
        "align:2:F1:RZ:acc", -0.0, [(1, 0), (-0.0, 1)], 0.0
    ),
    "only minus zeros are one": Case("align:2:F1:RZ:acc", -0.0, [(-1, 0), (-0.0, 1)], -0.0),
}  # fmt: skip


@pytest.mark.parametrize("name", [*SUMS, *ALIGNED])
def test_a_bound_that_is_nearly_met_gives_the_exact_answer(name: str) -> None:
    case = {**SUMS, **ALIGNED}[name]
    assert same(compiled(case.model, case.c, case.pairs), case.answer)


@pytest.mark.parametrize("power", [6, 10, 11, 12, 17, 23, 29])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_what_cancellation_takes_from_a_double_is_not_overlooked(power: int, sign: float) -> None:
    # While 2^power is there, a double has the unit u = 2^(power - 52): 3/8 u are lost, and 1/4 u that come
    # when it is gone are not. So the double is u/4 below the tie above 1, and the exact sum u/8 above it.
    unit = 2.0 ** (power - 52)
    terms = 2.0**power, 3 / 8 * unit, -(2.0**power), 2.0**-24 - unit / 4
    # Whole panels: a row or column of zeros beside these would be looked at more closely, and they with it.
    a, b = np.tile(np.float32(terms) * sign, (8, 1)), np.ones((4, 64), np.float32)
    found = np.full((8, 64), sign, np.float32)
    accumulate(AccumulationModel.parse("block:4:RNE"), a, b, found)
    assert (found == sign * (1 + 2.0**-23)).all()


def test_a_sum_in_double_that_is_cut_loses_up_to_two_units_a_step() -> None:
    # Beside 1 a double has the unit u = 2^-52. x y is a multiple of u and 0.999 u, the product of the low
    # halves 2^-74: added and taken away, each is cut by nearly u. After 24 of them the double is 48 u below
    # the exact sum 1 + 2^-23 + 2 u; the 3 * 26 + 8 roundings that a bound for nearest counts are 43 u.
    x, y = (Fraction(high * 2**12 + 1, 2**37) for high in (3071, 2048))
    rest = Fraction(1, 2**23) + 2 * Fraction(1, 2**52) - 24 * (x * y - Fraction(1, 2**74))
    most = Fraction(int(rest * 2**46), 2**46)  # 24 bits of it, and 24 bits of what is left
    little = Fraction(round((rest - most) * 2**53), 2**53)
    pairs = [*[(float(x), float(y))] * 24, (float(most), 1.0), (float(little), 1.0)]
    assert compiled("block:26:RZ+split3", 1.0, pairs) == 1 + 2.0**-23


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_cut_keeps_an_accumulator_when_all_products_are_zero(sign: float) -> None:
    # Whatever is taken off 1 + 2^-23 for an error that cannot be there would cut it to 1.
    c = sign * (1 + 2.0**-23)
    assert compiled("block:4:RZ", c, [(1.5, 2.0**-30), (-1.5, 2.0**-30)] + [(0.0, 1.0)] * 6) == c


# Blocks of K and F fraction bits: products just below 4 and c just below 2 add up to (4 K + 2) 2^F units.
# On the left the last F for which that stays below 2^31, on the right the first for which it does not.
@pytest.mark.parametrize(
    ("block", "bits"),
    [(1, 28), (1, 29), (4, 26), (4, 27), (8, 25), (8, 26), (16, 24), (16, 25), (32, 23), (32, 24)],
)
@pytest.mark.parametrize("acc", ["", ":acc"])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_aligned_sums_do_not_wrap_round(block: int, bits: int, acc: str, sign: float) -> None:
    near_two = 2 - 2.0**-11  # twelve bits, so that products are exact in singles
    found = compiled(
        f"align:{block}:F{bits}:RZ{acc}", sign * (2 - 2.0**-23), [(sign * near_two, near_two)] * block
    )
    # Nothing is cut but what c has below 2^-F, and one rounding loses less than an ulp of 4 K + 2.
    exact = sign * (block * near_two**2 + 2 - 2.0**-23)
    assert abs(found - exact) <= np.spacing(np.float32(4 * block + 2))


@pytest.mark.parametrize("rounding", ["RNE", "RNA", "RZ"])
@pytest.mark.parametrize("wrap", ["{}", "fp16-acc({})"])
def test_a_block_of_one_is_what_its_formula_says(rounding: str, wrap: str) -> None:
    # Products and sums that lose bits in every step, so that one rounding more or fewer shows.
    rng = np.random.default_rng(8)
    for _ in range(20):
        pairs = [tuple(map(float, row)) for row in rng.uniform(1, 2, (5, 2)).astype(np.float32)]
        seq = compiled(wrap.format(f"seq:{rounding}"), 1.0, pairs)
        muladd = compiled(wrap.format(f"seq-muladd:{rounding}"), 1.0, pairs)
        assert compiled(wrap.format(f"block:1:{rounding}"), 1.0, pairs) == seq
        for pairing in ("adjacent", "halves"):
            assert compiled(wrap.format(f"tree:1:{pairing}:{rounding}"), 1.0, pairs) == muladd
        assert compiled(wrap.format(f"block-add:1:{rounding}:{rounding}"), 1.0, pairs) == muladd


@pytest.mark.slow
@pytest.mark.parametrize("pairing", ["adjacent", "halves"])
def test_the_largest_tree_has_room_on_its_stack(pairing: str) -> None:
    # 2^16 leaves of which four are there. Toward zero 2^24 + 1 is 2^24: adjacent leaves add the ones one by
    # one, halves meet as (0, 2) and (1, 3), so that both ones make 2 first.
    pairs = [(2.0**24, 1), (1, 1), (0, 1), (1, 1)]
    lost = {"adjacent": 2, "halves": 0}[pairing]
    assert compiled(f"tree:65536:{pairing}:RZ", 0.0, pairs) == 2.0**24 + 2 - lost


ZEROS = [-0.0, 0.0]
KINDS = [
    "exact",
    "exact-mmad",
    "seq",
    "seq-muladd",
    "block:2",
    "block-add:2",
    "tree:2:adjacent",
    "align:2:F8",
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("c", ZEROS)
@pytest.mark.parametrize("product", ZEROS)
def test_a_zero_is_minus_zero_only_when_every_term_is(kind: str, c: float, product: float) -> None:
    text = f"{kind}:RNE:RNE" if kind.startswith("block-add") else f"{kind}:RNE"
    minus = math.copysign(1, c) + math.copysign(1, product) == -2
    # Two products, so that no block is short: a tree would fill that up with +0.
    assert same(compiled(text, c, [(1.0, product)] * 2), -0.0 if minus else 0.0)
    # Terms that cancel make +0 in all of them, whatever the zeros beside them.
    assert same(compiled(text, c, [(1.0, 1.0), (-1.0, 1.0)]), 0.0)


@pytest.mark.parametrize(("wrap", "normal"), [("{}", 2.0**-126), ("fp16-acc({})", 2.0**-14)])
@pytest.mark.parametrize("kind", ["seq:RNE", "block:2:RNE", "tree:2:halves:RNE", "align:2:F24:RZ:acc"])
def test_flushing_spares_the_smallest_normal_number(kind: str, wrap: str, normal: float) -> None:
    text, below = wrap.format(kind) + "+ftz-acc", normal * (1 - 2.0**-10)
    # As an accumulator that is read, and as a sum that is made.
    assert compiled(text, normal, [(0.0, 1.0)]) == normal
    assert same(compiled(text, -below, [(-0.0, 1.0)] * 2), -0.0)
    assert compiled(text, 0.0, [(normal, 1.0)]) == normal
    # Two halves of it, because a tree flushes leaves as well.
    assert same(compiled(text, -0.0, [(-below / 2, 1.0)] * 2), -0.0)


@pytest.mark.parametrize("exponent", [-126, -14, -6])
def test_flushed_operands_are_those_below_the_stated_power(exponent: int) -> None:
    power = 2.0**exponent
    text = f"block:2:RNE+ftz-in:{exponent}" if exponent > -126 else "block:2:RNE+ftz-in"
    below = float(np.nextafter(np.float32(power), np.float32(0)))
    assert compiled(text, 0.0, [(power, 1.0)]) == power
    assert same(compiled(text, -0.0, [(-below, 1.0)]), -0.0)
    # A flushed operand is a zero of its sign: with Inf it makes NaN.
    assert math.isnan(compiled(text, 0.0, [(below, math.inf)]))


@pytest.mark.parametrize(("wrap", "largest"), [("{}", LARGEST), ("fp16-acc({})", 65504.0)])
def test_saturation_stops_at_the_largest_value_of_the_accumulator(wrap: str, largest: float) -> None:
    for kind in ("seq:RNE", "block:4:RNE", "block:4:RZ"):
        text = wrap.format(kind) + "+saturate"
        assert compiled(text, largest, [(largest, 2.0)]) == largest
        assert compiled(text, -math.inf, [(1.0, 1.0)]) == -largest
        assert same(compiled(text, 0.0, [(-0.0, math.inf)]), 0.0)


def test_subnormal_operands_are_all_low_half_under_split3() -> None:
    # 3 * 2^-149 is below the twelve upper bits, so with another such operand nothing is left, and +0 at that.
    assert same(
        compiled("block:2:RNE+split3", -0.0, [(-3 * SMALLEST, 2.0**126 * (1 + 2.0**-23))]), -(3 * 2.0**-23)
    )
    assert same(compiled("seq:RZ+split3", 1.0, [(-3 * SMALLEST, 3 * SMALLEST)]), 1.0)


@pytest.mark.parametrize("low", [2.0**-23, 2.0**-12])
@pytest.mark.parametrize("kind", ["seq:RNE", "block:2:RNE"])
def test_split3_sees_the_lowest_and_the_highest_bit_of_a_low_half(kind: str, low: float) -> None:
    # (1 + u)^2 = 1 + 2 u + u^2, of which the low halves make u^2: beside -(1 + 2 u) that is all that is left.
    pairs = [(1 + low, 1 + low)]
    assert compiled(kind, -(1 + 2 * low), pairs) == low**2
    assert same(compiled(f"{kind}+split3", -(1 + 2 * low), pairs), 0.0)
    # One bit further up there is no low half.
    high = 2.0**-11
    assert compiled(f"{kind}+split3", -(1 + 2 * high), [(1 + high, 1 + high)]) == high**2


@pytest.mark.parametrize("overflow", ["wrap", "saturate"])
def test_an_int32_sum_is_exact_up_to_both_ends_and_then_as_it_is_called(overflow: str) -> None:
    ends = np.iinfo(np.int32)
    for step, end, other in ((1, ends.max, ends.min), (-1, ends.min, ends.max)):
        c = np.array([[end - 2 * step]], np.int32)
        factors = np.array([[step, step]], np.int32), np.ones((2, 1), np.int32)
        IntegerSum(overflow).accumulate(*factors, c)
        assert c.item() == end
        IntegerSum(overflow).accumulate(*factors, c)
        # Two further: modulo 2^32 the first step lands on the other end.
        assert c.item() == (other + step if overflow == "wrap" else end)
