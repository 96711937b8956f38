"""Tables of a rule set that takes whatever the cube of a product multiplies."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from ascendsim.rules.model import DTYPES, REFUSED, Names, RuleSet

if TYPE_CHECKING:
    from ascendsim.profile import Profile


def with_cube(rules: RuleSet, family: str, product: str | Profile) -> RuleSet:
    """Return the rules with the tables of one family replaced by what its cube multiplies.

    A family that the rules do not support stays as it is: it may be one without a product file.
    """
    if family not in (*rules.convolution.products, *rules.tbc.products):
        return rules
    if isinstance(product, str):
        # Variants of a product have one cube; the rules know more names of them than the product files.
        from ascendsim.profile import load_profile

        product = load_profile(family)
    rates = product.cube.rates
    # float32 needs no unit of its own, since cubeMathType 1 and 2 cast it to float16, which every cube has.
    dtypes = tuple(name for name in DTYPES if name in rates or name == "float32")
    given, math = {family: dtypes}, {family: {name: _outcomes(name, rates) for name in dtypes}}
    # No cube reads the bias: it may also have a format that only vector cores know.
    bias = {family: tuple(dict.fromkeys((*rules.tbc.bias_dtypes.get(family, ()), *dtypes)))}
    convolution = rules.convolution._replace(dtypes=given, dtypes_transposed={}, cube_math=math)
    return rules._replace(
        convolution=convolution,
        tbc=rules.tbc._replace(dtypes=given, bias_dtypes=bias, cube_math=math),
    )


def _outcomes(promoted: str, rates: Collection[str]) -> Names:
    """Return what the cube computes in for cubeMathType 0, 1, 2 and 3."""
    wanted = {
        "float32": ("float32", "hf32" if "hf32" in rates else "float16", "float16", "hf32"),
        "bfloat16": ("bfloat16", "bfloat16", "float16", "bfloat16"),
    }.get(promoted, (promoted,) * 4)
    return tuple(name if name in rates else REFUSED for name in wanted)
