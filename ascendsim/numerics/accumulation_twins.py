"""Define every accumulation model on exact integers, one output at a time.

These functions define the models' names, and are right where anything else disagrees; the
compiled versions are fast ways to the same bits. Nothing here rounds except `rounded`, and every function
reads like the line it defines.

Exact values. Every finite binary32 is a whole number of 2^-149 and every product of two a whole number of
2^-298, so an exact value is a Python integer that counts 2^-298. A `Term` is this integer when the value
is finite and not zero, and a float when it is a signed zero, an infinity or NaN.

Special values. Any NaN, zero times infinity or infinity minus infinity gives NaN, otherwise infinity wins. An
exact sum of zero is +0 unless every term is -0. A result that underflows to zero keeps its sign.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ascendsim.errors import ConfigError, ShapeError
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.numerics.accumulation import AccumulationModel
from ascendsim.numerics.dtypes import DType

FloatArray = npt.NDArray[np.float32]
Term = int | float
Round = Callable[[Term], float]
Pair = tuple[float, float]

# The smallest subnormal is 2^-149, so a product of two is 2^-298: the finest unit that anything needs.
FRACTION_BITS: Final = 298


def term(x: float) -> Term:
    """Return the exact value of a float."""
    if x == 0 or not math.isfinite(x):
        return x
    numerator, denominator = x.as_integer_ratio()
    return numerator * ((1 << FRACTION_BITS) // denominator)


def exponent(x: Term) -> int:
    """Return floor(log2 |x|) of a finite value other than zero."""
    return abs(int(x)).bit_length() - 1 - FRACTION_BITS


def low_half(x: float) -> float:
    """Return the value of the lower 12 of the 24 significand bits of a binary32."""
    bits = np.float32(x).view(np.uint32)
    return x - float((bits & np.uint32(0xFFFFF000)).view(np.float32))


def product(a: float, b: float, form: str = "exact") -> Term:
    """Return a * b exactly, or with `split3` without the product of the two low halves."""
    # The product in double is exact (48 bits), and zero, infinite or NaN just where the exact one is.
    special = a * b
    if special == 0 or not math.isfinite(special):
        return special
    exact = (int(term(a)) * int(term(b))) >> FRACTION_BITS
    if form == "split3" and low_half(a) and low_half(b):
        exact -= (int(term(low_half(a))) * int(term(low_half(b)))) >> FRACTION_BITS
    # Of two operands that are all low half nothing is left: +0, as of a number less itself.
    return exact or 0.0


def total(terms: Sequence[Term]) -> Term:
    """Return the exact sum of the terms."""
    # Floats only here: IEEE 754 decides what becomes of Inf and NaN, and finite terms change nothing of it.
    specials = [t for t in terms if isinstance(t, float) and t != 0]
    if specials:
        return sum(specials)
    exact = sum(t for t in terms if isinstance(t, int))
    minus_zero = all(isinstance(t, float) and math.copysign(1.0, t) < 0 for t in terms)
    return exact or (-0.0 if minus_zero else 0.0)


def rounded(x: Term, mode: str, fmt: DType, flush: bool = False) -> float:
    """Round an exact value once into a format.

    mode    RNE nearest, ties to even; RNA nearest, ties away from zero; RZ toward zero
    flush   a result below the smallest normal becomes zero of the same sign; otherwise gradual underflow
    Overflow to infinity in RNE and RNA, to the largest finite value in RZ
    """
    if isinstance(x, float):
        return x
    # Below the smallest normal the unit shrinks no more: gradual underflow.
    ulp_exponent = max(exponent(x), fmt.min_exponent) - fmt.mantissa_bits
    ulp = 1 << (ulp_exponent + FRACTION_BITS)
    whole, rest = divmod(abs(x), ulp)
    if mode == "RNE":
        whole += 2 * rest > ulp or (2 * rest == ulp and whole % 2 == 1)
    elif mode == "RNA":
        whole += 2 * rest >= ulp
    # A carry to the next power of two needs no care: `whole` is then 2^24 units, the same value.
    value = math.ldexp(whole, ulp_exponent)
    if value > fmt.max_finite:
        value = fmt.max_finite if mode == "RZ" else math.inf
    if flush and value < math.ldexp(1.0, fmt.min_exponent):
        value = 0.0
    return math.copysign(value, x)


def exact_sum(c: float, products: Sequence[Term], r: Round) -> float:
    """Add all of `exact`, `exact-mmad` or one block of `block`: c <- R(c + sum of the products)."""
    return r(total([term(c), *products]))


def seq(c: float, products: Sequence[Term], r: Round) -> float:
    """Add all of `seq`: for each product in order, c <- R(c + product)."""
    for p in products:
        c = r(total([term(c), p]))
    return c


def seq_muladd(c: float, products: Sequence[Term], r: Round) -> float:
    """Add all of `seq-muladd`: for each product in order, c <- R(c + R(product))."""
    for p in products:
        c = r(total([term(c), term(r(p))]))
    return c


def block_add(c: float, products: Sequence[Term], r: Round, r2: Round) -> float:
    """Add one block of `block-add`: s <- R(sum of the products); c <- R2(c + s)."""
    s = r(total(products))
    return r2(total([term(c), term(s)]))


def tree(c: float, products: Sequence[Term], r: Round, block: int, pairing: str) -> float:
    """Add one block of `tree`: leaves R(product), missing leaves +0, pairwise R(x + y); c <- R(c + root)."""
    # A missing leaf is +0, as an adder without an operand would see it: so -0 in a short block becomes +0.
    leaves = [r(p) for p in products] + [0.0] * (block - len(products))
    while len(leaves) > 1:
        half = len(leaves) // 2
        if pairing == "adjacent":
            pairs = zip(leaves[0::2], leaves[1::2], strict=True)
        else:
            pairs = zip(leaves[:half], leaves[half:], strict=True)
        leaves = [r(total([term(x), term(y)])) for x, y in pairs]
    return r(total([term(c), term(leaves[0])]))


def align(
    c: float, pairs: Sequence[Pair], products: Sequence[Term], r: Round, model: AccumulationModel
) -> float:
    """Add one block of `align`: cut every term toward zero to a multiple of 2^(e - F), sum exactly, R.

    e is the largest exponent(a) + exponent(b) among the products that are finite and not zero (the exponents
    of the operands, not of the product), and with `acc` also exponent(c). Without `acc` c is added uncut.
    """
    exponents = [exponent(term(a)) + exponent(term(b)) for a, b in pairs if _is_number(a) and _is_number(b)]
    if model.with_accumulator and _is_number(c):
        exponents.append(exponent(term(c)))
    # Without a finite product other than zero there is nothing to cut, and any unit does.
    unit = max(exponents, default=0) - model.fraction_bits
    cut = [_truncated(p, unit) for p in products]
    return r(total([_truncated(term(c), unit) if model.with_accumulator else term(c), *cut]))


def _is_number(x: float) -> bool:
    return x != 0 and math.isfinite(x)


def _truncated(x: Term, unit_exponent: int) -> Term:
    # A unit below 2^-298 cuts nothing: every exact value is a multiple of 2^-298.
    shift = unit_exponent + FRACTION_BITS
    if isinstance(x, float) or shift <= 0:
        return x
    magnitude = abs(x) >> shift << shift
    return magnitude if x > 0 else -magnitude


def add_block(model: AccumulationModel, c: float, pairs: Sequence[Pair]) -> float:
    """Add one block of operand pairs to an accumulator; seq and exact take all pairs as one block."""
    fmt = model.accumulator

    def r(x: Term) -> float:
        return rounded(x, model.rounding, fmt, model.ftz_acc)

    def r2(x: Term) -> float:
        return rounded(x, model.add_rounding, fmt, model.ftz_acc)

    products = [product(a, b, model.product) for a, b in pairs]
    match model.kind:
        case "exact" | "exact-mmad" | "block":
            return exact_sum(c, products, r)
        case "seq":
            return seq(c, products, r)
        case "seq-muladd":
            return seq_muladd(c, products, r)
        case "block-add":
            return block_add(c, products, r, r2)
        case "tree":
            return tree(c, products, r, int(model.block), model.pairing)
        case "align":
            return align(c, pairs, products, r, model)
        case _:
            raise AssertionError(f"add_block does not know the accumulation model kind {model.kind!r}")


def output(model: AccumulationModel, c: float, a_row: Sequence[float], b_column: Sequence[float]) -> float:
    """Return one accumulator after one cube product, options of the model included."""
    fmt = model.accumulator
    # A product without terms is no step: c stays, and not even an option touches it.
    if not a_row:
        return c
    if model.ftz_in:
        a_row = [_flushed(x, model.ftz_in_exponent) for x in a_row]
        b_column = [_flushed(x, model.ftz_in_exponent) for x in b_column]
    if model.ftz_acc:
        c = _flushed(c, fmt.min_exponent)
    for pairs in _blocks(model, list(zip(a_row, b_column, strict=True))):
        c = add_block(model, c, pairs)
    if model.overflow == "saturate":
        c = 0.0 if math.isnan(c) else max(-fmt.max_finite, min(c, fmt.max_finite))
    return c


def _flushed(x: float, min_exponent: int) -> float:
    return math.copysign(0.0, x) if abs(x) < math.ldexp(1.0, min_exponent) else x


def _blocks(model: AccumulationModel, pairs: list[Pair]) -> Iterator[list[Pair]]:
    if not isinstance(model.block, int):
        raise ConfigError(f"accumulation model {model}: resolve cube_k to a number before computing")
    # A kind without blocks takes all products as one, and its own loop says where it rounds.
    size = model.block if model.kind in ("block", "block-add", "tree", "align") else len(pairs)
    return (pairs[i : i + size] for i in range(0, len(pairs), size))


@default_arithmetic
def accumulate_twin(
    model: AccumulationModel, a: npt.NDArray[Any], b: npt.NDArray[Any], c: npt.NDArray[Any]
) -> FloatArray:
    """Return the accumulator tile after one cube product under `model`, by definition.

    Shapes   a (m, k), b (k, n), c (m, n) -> (m, n); k = 0 returns c
    Types    binary32 values; the result is float32
    Order    blocks of consecutive k from k = 0 of this call; the last one may be short; `exact` is meant to
             get its whole reduction in one call (`models.products_of`)
    Raises   ShapeError if the sizes differ, ConfigError if the model's block is still `cube_k`
    """
    if a.shape[1] != b.shape[0] or c.shape != (a.shape[0], b.shape[1]):
        raise ShapeError(f"accumulate: a {a.shape}, b {b.shape}, c {c.shape} do not fit (m,k)(k,n)->(m,n)")
    rows, columns = a.astype(np.float32).tolist(), b.astype(np.float32).T.tolist()
    initial = c.astype(np.float32).tolist()
    result = [
        [output(model, initial[i][j], row, columns[j]) for j in range(c.shape[1])]
        for i, row in enumerate(rows)
    ]
    return np.array(result, np.float32).reshape(c.shape)
