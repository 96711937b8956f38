"""Name the ways in which a cube product can become a binary32 accumulator.

How the real cube rounds inside its multiply-accumulate is published nowhere, so the rounding is a named,
swappable part. This module holds the names: one frozen record, its text form, and nothing that computes.
The definitions are in `twins`, the compiled versions behind `accumulate`.

    exact:R                        c <- R(sum of all products), once for the whole reduction
    exact-mmad:R                   c <- R(c + sum of all products), once per cube product (Mmad)
    seq:R                          for each k in order: c <- R(c + a*b)              (fused)
    seq-muladd:R                   for each k in order: c <- R(c + R(a*b))
    block:K:R                      per block of K products: c <- R(c + sum)
    block-add:K:R:R2               per block: s <- R(sum); c <- R2(c + s)
    tree:K:adjacent|halves:R       per block: pairwise R(x + y) over leaves R(a*b); c <- R(c + root)
    align:K:Fn:R[:acc]             per block: terms cut n bits below the largest exponent, exact sum, R
    fp16-acc(<one of the above>)   that model with R rounding to binary16

K is a number or `cube_k` (the documented k per cycle of the product and format), R one of RNE (nearest, ties
to even), RNA (nearest, ties away from zero), RZ (toward zero). Options follow the model, in this order:

    +split3        products of 24-bit operands without the product of the two 12-bit low halves; +0 where
                   that leaves nothing (both operands are all low half, so subnormal), whatever their signs
    +ftz-in[:E]    operands below 2^E (the smallest normal of their format; -126 if not said) read as zero
    +ftz-acc       subnormal rounding results and initial accumulators become zero of the same sign
    +saturate      when a cube product is done, infinite accumulators become the largest finite value, NaN +0
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from ascendsim.errors import ConfigError
from ascendsim.numerics.dtypes import FLOAT16, FLOAT32, DType

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Slice = tuple[NDArray[np.float32], NDArray[np.float32]]


ROUNDINGS: Final = ("RNE", "RNA", "RZ")
PAIRINGS: Final = ("adjacent", "halves")
PRODUCTS: Final = ("exact", "split3")
OVERFLOWS: Final = ("ieee", "saturate")
CUBE_K: Final = "cube_k"
BINARY32_MIN_EXPONENT: Final = FLOAT32.min_exponent
# Far above any k of a cube product; trees have a stack for this many leaves, and aligned sums fit a double.
MAX_BLOCK: Final = 65536
# No measured unit has more than 25. With 32 a cut term has 34 bits, and a sum of 2^16 of them fits a double.
MAX_FRACTION_BITS: Final = 32

GRAMMAR: Final = (
    "exact:R, exact-mmad:R, seq:R, seq-muladd:R, block:K:R, block-add:K:R:R2, tree:K:adjacent|halves:R,"
    " align:K:Fn:R[:acc] or fp16-acc(<one of these>), with K a number or cube_k and R one of RNE, RNA, RZ,"
    " then any of +split3 +ftz-in[:E] +ftz-acc +saturate in this order"
)
# The fields that a kind writes into its text, in order; fields it does not name keep their default.
_PARTS: Final[dict[str, tuple[str, ...]]] = {
    "exact": ("rounding",),
    "exact-mmad": ("rounding",),
    "seq": ("rounding",),
    "seq-muladd": ("rounding",),
    "block": ("block", "rounding"),
    "block-add": ("block", "rounding", "add_rounding"),
    "tree": ("block", "pairing", "rounding"),
    "align": ("block", "fraction_bits", "rounding", "with_accumulator"),
}
KINDS: Final = tuple(_PARTS)
# No model has a text so long; a message should stay short.
LONGEST_TEXT: Final = 200
# Only to guess, in an error, which model was meant.
_EXAMPLES: Final = (
    *(f"{kind}:{r}" for kind in ("exact", "exact-mmad", "seq", "seq-muladd") for r in ROUNDINGS),
    *(f"block:{k}:{r}" for k in (1, 4, 8, 16, 32, CUBE_K) for r in ROUNDINGS),
    *(f"block-add:{k}:{r}:{r}" for k in (4, 8, 16, 32, CUBE_K) for r in ROUNDINGS),
    *(f"tree:{k}:{p}:{r}" for k in (4, 8, 16, 32, CUBE_K) for p in PAIRINGS for r in ROUNDINGS),
    *(f"align:{k}:F{f}:RZ{a}" for k in (8, 16, CUBE_K) for f in (23, 24, 25) for a in ("", ":acc")),
)
# Compiled by who reads options: it takes a millisecond, and few models have any.
_OPTIONS: Final = (
    r"(?P<split>\+split3)?(?P<ftz_in>\+ftz-in(:(?P<exponent>-?\d+))?)?"
    r"(?P<ftz_acc>\+ftz-acc)?(?P<sat>\+saturate)?"
)


@dataclass(frozen=True, slots=True)
class AccumulationModel:
    """Say how one cube product is rounded, as a value that can be printed, parsed and compared.

    Fields   as in the module's text; a field that the kind does not use must keep its default, so that equal
             models have equal texts
    Raises   ConfigError for a value outside the grammar
    Source   facts on the cube's parallelism are the vendor's; the models themselves are modelling choices
    """

    kind: str
    block: int | str = 1
    rounding: str = "RNE"
    add_rounding: str = "RNE"
    pairing: str = "adjacent"
    fraction_bits: int = 24
    with_accumulator: bool = False
    half: bool = False
    product: str = "exact"
    ftz_in: bool = False
    ftz_in_exponent: int = BINARY32_MIN_EXPONENT
    ftz_acc: bool = False
    overflow: str = "ieee"

    def __post_init__(self) -> None:
        """Refuse what the grammar cannot say."""
        _one_of("kind", self.kind, KINDS)
        _one_of("rounding", self.rounding, ROUNDINGS)
        _one_of("add_rounding", self.add_rounding, ROUNDINGS)
        _one_of("pairing", self.pairing, PAIRINGS)
        _one_of("product", self.product, PRODUCTS)
        _one_of("overflow", self.overflow, OVERFLOWS)
        if self.block != CUBE_K:
            _between("block", self.block, 1, MAX_BLOCK)
        _between("fraction_bits", self.fraction_bits, 1, MAX_FRACTION_BITS)
        _between("ftz_in_exponent", self.ftz_in_exponent, BINARY32_MIN_EXPONENT, 0)
        # Pairing halves again and again ends in single leaves only from a power of two.
        if self.kind == "tree" and isinstance(self.block, int) and self.block.bit_count() != 1:
            raise ConfigError(f"accumulation model: a tree needs a power of two of leaves, got {self.block}")
        self._refuse_unused_fields()

    def _refuse_unused_fields(self) -> None:
        # Otherwise models that compute the same could differ, and print a text that reads back as another.
        defaults = type(self).__dataclass_fields__
        for field in ("block", "add_rounding", "pairing", "fraction_bits", "with_accumulator"):
            value = getattr(self, field)
            if field not in _PARTS[self.kind] and value != defaults[field].default:
                raise ConfigError(f"accumulation model: {self.kind} has no {field}, got {value!r}")
        if not self.ftz_in and self.ftz_in_exponent != BINARY32_MIN_EXPONENT:
            raise ConfigError("accumulation model: ftz_in_exponent is given, but ftz_in is off")

    @classmethod
    def parse(cls, text: str) -> AccumulationModel:
        """Read a model from its text, `block:16:RNE` for one.

        Raises   ConfigError that quotes the text, says the grammar and names the nearest model
        """
        # No kind has a plus sign in its text, so the first one begins the options.
        base, plus, options = text.strip().partition("+")
        half = base.startswith("fp16-acc(") and base.endswith(")")
        kind, *parts = (base[len("fp16-acc(") : -1] if half else base).split(":")
        fields = _read_parts(kind, parts)
        match = re.fullmatch(_OPTIONS, plus + options) if plus else None
        if fields is None or (plus and match is None):
            raise _unreadable(text, base, half)
        if match is None:
            return cls(kind, **fields, half=half)  # type: ignore[arg-type]
        exponent = match["exponent"]
        return cls(
            kind,
            **fields,  # type: ignore[arg-type]
            half=half,
            product="split3" if match["split"] else "exact",
            ftz_in=bool(match["ftz_in"]),
            ftz_in_exponent=int(exponent) if exponent else BINARY32_MIN_EXPONENT,
            ftz_acc=bool(match["ftz_acc"]),
            overflow="saturate" if match["sat"] else "ieee",
        )

    def __str__(self) -> str:
        """Print the text that `parse` reads back."""
        parts = [self.kind]
        for field in _PARTS[self.kind]:
            value = getattr(self, field)
            if field == "with_accumulator":
                parts += ["acc"] if value else []
            else:
                parts.append(f"F{value}" if field == "fraction_bits" else str(value))
        base = ":".join(parts)
        return (f"fp16-acc({base})" if self.half else base) + self._options_text()

    def _options_text(self) -> str:
        exponent = "" if self.ftz_in_exponent == BINARY32_MIN_EXPONENT else f":{self.ftz_in_exponent}"
        return (
            ("+split3" if self.product == "split3" else "")
            + (f"+ftz-in{exponent}" if self.ftz_in else "")
            + ("+ftz-acc" if self.ftz_acc else "")
            + ("+saturate" if self.overflow == "saturate" else "")
        )

    @property
    def accumulator(self) -> DType:
        """Return the format that accumulators are rounded into."""
        return FLOAT16 if self.half else FLOAT32

    @property
    def resolved(self) -> bool:
        """Return whether the block size is a number."""
        return self.block != CUBE_K

    def resolve(self, cube_k: int, operand_min_exponent: int | None = None) -> AccumulationModel:
        """Fill in what depends on the product and the operand format.

        cube_k                 k per cycle of the cube for this format; replaces `cube_k`
        operand_min_exponent   exponent of the format's smallest normal (float16 -14); with +ftz-in only
        """
        block = cube_k if self.block == CUBE_K else self.block
        if self.ftz_in and operand_min_exponent is not None:
            return replace(self, block=block, ftz_in_exponent=operand_min_exponent)
        return replace(self, block=block)


def _read_parts(kind: str, parts: list[str]) -> dict[str, object] | None:
    """Return the fields of a model's text, or None where a part is not of the grammar."""
    names = _PARTS.get(kind, ())
    optional = int(names[-1:] == ("with_accumulator",))
    if not names or not len(names) - optional <= len(parts) <= len(names):
        return None
    fields: dict[str, object] = {}
    for name, part in zip(names, parts, strict=False):
        value = _read_part(name, part)
        if value is None:
            return None
        fields[name] = value
    return fields


def _read_part(name: str, part: str) -> object | None:
    if name == "block":
        return part if part == CUBE_K else _number(part)
    if name == "fraction_bits":
        return _number(part[1:]) if part.startswith("F") else None
    if name == "with_accumulator":
        return True if part == "acc" else None
    return part if part in (PAIRINGS if name == "pairing" else ROUNDINGS) else None


def _number(text: str) -> int | None:
    # No leading zero and no sign: a number has one text, as a model has.
    return int(text) if re.fullmatch(r"[1-9][0-9]{0,8}", text) else None


def _unreadable(text: str, base: str, half: bool) -> ConfigError:
    found = _nearest(base[len("fp16-acc(") : -1] if half else base)
    hint = f" Did you mean {f'fp16-acc({found})' if half else found}?" if found else ""
    said = repr(text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}...")
    return ConfigError(f"accumulation model: cannot read {said}.{hint} The grammar is {GRAMMAR}")


def _nearest(text: str) -> str:
    """Return the known text that this one begins or most resembles, or nothing when none is alike."""
    # Imported here: who writes a name right asks for none that is like it.
    from difflib import SequenceMatcher

    wanted = text.lower().replace(" ", "")

    def likeness(example: str) -> float:
        begins = len(wanted) > 2 and example.lower().startswith(wanted)
        return 1.0 if begins else SequenceMatcher(None, example.lower(), wanted).ratio()

    best = max(_EXAMPLES, key=likeness)
    return best if likeness(best) > 0.5 else ""


def _one_of(field: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ConfigError(f"accumulation model: {field} must be one of {', '.join(allowed)}, got {value!r}")


def _between(field: str, value: object, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ConfigError(
            f"accumulation model: {field} must be a whole number in {low}..{high}, got {value!r}"
        )


INTEGER_OVERFLOWS = ("wrap", "saturate")


@dataclass(frozen=True, slots=True)
class IntegerSum:
    """An int32 accumulator: it wraps or saturates at its ends. It prints, parses and compares.

    Raises   ConfigError for an overflow that is neither
    """

    overflow: str = "wrap"

    def __post_init__(self) -> None:
        """Refuse fields that have no meaning together."""
        if self.overflow not in INTEGER_OVERFLOWS:
            raise _refusal(str(self))

    @classmethod
    def parse(cls, text: str) -> IntegerSum:
        """Read it from its text.

        Raises   ConfigError that quotes the text
        """
        accumulator, _, overflow = text.strip().partition(":")
        if accumulator != "int32" or overflow not in INTEGER_OVERFLOWS:
            raise _refusal(text)
        return cls(overflow)

    def __str__(self) -> str:
        """Print the text that `parse` reads back."""
        return f"int32:{self.overflow}"

    def accumulate(self, a: NDArray[np.int32], b: NDArray[np.int32], c: NDArray[np.int32]) -> None:
        """Add a product to `c` in place.

        Shapes   a (m, k), b (k, n), c (m, n)
        Types    int32 that hold int8 values; c any int32
        """
        import numpy as np

        # Exact in doubles, whatever order they are added in: no sum is above k 2^14, so k may be 2^39.
        total = (a.astype(np.float64) @ b.astype(np.float64)).astype(np.int64) + c
        # Once, when the product is done, like `+saturate`: so the order inside the product does not matter.
        if self.overflow == "saturate":
            ends = np.iinfo(np.int32)
            np.clip(total, ends.min, ends.max, out=total)
        # From 64 bits numpy keeps the lower 32, which is the sum modulo 2^32 in two's complement.
        c[...] = total.astype(np.int32)


def _refusal(text: str) -> ConfigError:
    return ConfigError(
        f"accumulation model: products of int8 are added in int32, so it must be int32:wrap or "
        f"int32:saturate, got {text!r}"
    )


def rounds_once(model: Accumulation) -> bool:
    """Return whether a model rounds once for a whole reduction, however many Mmads it takes."""
    return getattr(model, "kind", "") == "exact"


def products_of(model: Accumulation, slices: Sequence[Slice]) -> Sequence[Slice]:
    """Return the products that a model adds one after the other for the slices of one reduction.

    Shapes   slices of a (m, k) and b (k, n), each of its own k
    """
    import numpy as np

    if not rounds_once(model) or len(slices) < 2:
        return slices
    lefts, rights = zip(*slices, strict=True)
    return [(np.concatenate(lefts, axis=1), np.concatenate(rights, axis=0))]


Accumulation = AccumulationModel | IntegerSum


@dataclass(frozen=True, slots=True)
class MathSettings:
    """Say with which arithmetic one kernel runs.

    accumulation   how cube products become the accumulator: binary32, or int32 for int8 operands
    hf32_ties      how operands become HF32: RNE, RNA or RZ; it depends on the kernel that a call is lowered
                   to (convolution backward leaves the control bit at RNE, matrix multiplication sets RNA)
    overflow       what conversions out of L0C and vector casts do beyond the largest finite value: "ieee"
                   (Inf, NaN kept) or "saturate" (largest finite value, NaN becomes 0)
    Raises         ConfigError for another value
    """

    accumulation: Accumulation
    hf32_ties: str = "RNE"
    overflow: str = "ieee"

    def __post_init__(self) -> None:
        """Refuse values without a meaning."""
        if self.hf32_ties not in ROUNDINGS:
            raise ConfigError(
                f"math settings: hf32_ties must be one of {', '.join(ROUNDINGS)}, got {self.hf32_ties!r}"
            )
        if self.overflow not in OVERFLOWS:
            raise ConfigError(
                f"math settings: overflow must be one of {', '.join(OVERFLOWS)}, got {self.overflow!r}"
            )

    @property
    def carrier(self) -> str:
        """Name of the numpy type that holds the elements of every tensor while the kernel runs."""
        return "int32" if isinstance(self.accumulation, IntegerSum) else "float32"
