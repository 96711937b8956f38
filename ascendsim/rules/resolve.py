"""From a described call to a decision, or to the status the interface answers with."""

from __future__ import annotations

from pathlib import Path

from ascendsim.rules.calls import Call, ConvTbcBackwardCall
from ascendsim.rules.conv_arguments import ARGUMENT_CHECKS
from ascendsim.rules.conv_empty import EMPTY_CHECKS, FIRST_EMPTY_CHECKS
from ascendsim.rules.conv_inner import INNER_CHECKS
from ascendsim.rules.conv_shapes import SHAPE_CHECKS
from ascendsim.rules.cube_math import cube_dtype, cube_math_warnings, promote
from ascendsim.rules.decision import Decision
from ascendsim.rules.loader import load_rules
from ascendsim.rules.order import run
from ascendsim.rules.products import HasProduct, rule_product
from ascendsim.rules.tbc import TBC_CHECKS, promoted_dtype
from ascendsim.rules.typed import typed
from ascendsim.rules.view import CheckedConvolution, CheckedTbc


def resolve(call: Call, product: str | HasProduct = "910B", rules: str | Path = "documented") -> Decision:
    """Check a call as the interface would, and decide how it is computed.

    product   name of a product, variant or soc ("910B", "910B3", "Ascend310P", "310B"), or a Profile
    rules     documented, documented-001, documented-002, documented-004, shipped, hardware, or the path of
              a .toml file of one's own
    Raises    AclnnError of the first check that fails (.status, .name, .check); ConfigError for an unknown
              product or rule set
    Source    docs/interface.md, "Order of checks"
    """
    rule_set, family = load_rules(rules), rule_product(product)
    if isinstance(call, ConvTbcBackwardCall):
        return _tbc(CheckedTbc(typed(call), family, rule_set.tbc), rule_set.name)
    return _convolution(CheckedConvolution(typed(call), family, rule_set.convolution), rule_set.name)


def _convolution(v: CheckedConvolution, rules: str) -> Decision:
    run(ARGUMENT_CHECKS, v)
    # Check 15: on these products an empty input or weight leaves the checks of shapes out.
    may_skip = v.product in v.rules.empty.products
    skips = may_skip and (v.tensor("input").is_empty or v.tensor("weight").is_empty)
    if not skips:
        run(SHAPE_CHECKS, v)
    empty = skips or v.tensor("input").is_empty
    if empty:
        run(EMPTY_CHECKS if skips else FIRST_EMPTY_CHECKS, v)
    else:
        run(INNER_CHECKS, v)
    promoted = promote(v.input_dtypes, v.rules.eight_bit.mixed)
    return _decision(v, rules, promoted, empty, "zeros", () if empty else _implied_output_padding(v))


def _implied_output_padding(v: CheckedConvolution) -> tuple[int, ...]:
    """Return what the sizes leave over along each axis of a transposed convolution."""
    if not v.call.transposed:
        return (0,) * (v.rank - 2)
    return tuple(v.room(axis) % v.numbers("stride")[axis] for axis in range(v.rank - 2))


def _tbc(v: CheckedTbc, rules: str) -> Decision:
    run(TBC_CHECKS, v)
    empty = any(v.tensor(name).is_empty for name in ("grad_output", "input", "weight"))
    return _decision(v, rules, promoted_dtype(v), empty, v.rules.empty_grad_bias, ())


def _decision(
    v: CheckedConvolution | CheckedTbc,
    rules: str,
    promoted: str,
    empty: bool,
    bias: str,
    spare: tuple[int, ...],
) -> Decision:
    compute = cube_dtype(promoted, v.cube_math_type, v.rules.cube_math[v.product])
    first, second, third = v.mask if isinstance(v, CheckedConvolution) else (True, True, True)
    return Decision(
        v.call.api,
        v.product,
        rules,
        promoted,
        compute,
        v.dtypes,
        (first, second, third),
        spare,
        empty,
        bias if empty else "sum",
        cube_math_warnings(promoted, v.cube_math_type, compute, v.rules.cube_math_warnings),
    )
