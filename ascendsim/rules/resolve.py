"""From a described call to a decision, or to the status the interface answers with."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from ascendsim.rules.checked import CheckedConvolution, CheckedTbc, cube_math_warnings, run
from ascendsim.rules.convolution.arguments import ARGUMENT_CHECKS
from ascendsim.rules.convolution.empty import EMPTY_CHECKS, FIRST_EMPTY_CHECKS, RELATED_EMPTY_CHECKS
from ascendsim.rules.convolution.shapes import INNER_CHECKS, SHAPE_CHECKS
from ascendsim.rules.loader import known_product, load_rules, rule_product
from ascendsim.rules.model import RuleSet
from ascendsim.rules.typed import Call, ConvolutionBackwardCall, ConvTbcBackwardCall, Decision, typed

if TYPE_CHECKING:
    from ascendsim.profile import Profile


def resolve(call: Call, product: str | Profile = "910B", rules: str | Path = "documented") -> Decision:
    """Check a call as the interface would, and decide how it is computed.

    product   name of a product, variant or soc ("910B", "910B3", "Ascend310P", "310B"), or a Profile
    rules     documented, documented-001, documented-002, documented-004, shipped, hardware, or the path of
              a .toml file of one's own
    Raises    AclnnError of the first check that fails (.status, .name, .check); ConfigError for an unknown
              product or rule set
    Source    docs/interface.md, "Order of checks"
    """
    product = known_product(product)
    rule_set, family = load_rules(rules), rule_product(product)
    if rule_set.from_cube:
        # Imported here, as few rule sets take what the cube says.
        from ascendsim.rules.from_cube import with_cube

        rule_set = with_cube(rule_set, family, product)
    if isinstance(call, ConvTbcBackwardCall):
        decision = _tbc(CheckedTbc(typed(call), family, rule_set.tbc), rule_set)
    else:
        asked = _Asked(typed(call), family, id(rule_set), rule_set)
        # What has been laid over a rule set for this call comes with no other.
        decision = _decided(asked) if rule_set.from_cube else _remembered(asked)
    # With a table of its own, since that of a remembered decision is everybody's.
    return decision._replace(dtypes=dict(decision.dtypes), direct_outputs=rule_set.direct_outputs)


@dataclass(frozen=True)
class _Asked:
    """All that a decision follows from; rule sets have no hash, and one that is kept keeps its number."""

    call: ConvolutionBackwardCall
    family: str
    number: int
    rules: RuleSet = field(compare=False)


def _decided(asked: _Asked) -> Decision:
    rules = asked.rules
    return _convolution(CheckedConvolution(asked.call, asked.family, rules.convolution), rules)


# A training run makes the same calls in every step: some for each layer of a large network.
_remembered = lru_cache(maxsize=256)(_decided)


def _convolution(c: CheckedConvolution, rules: RuleSet) -> Decision:
    run(ARGUMENT_CHECKS, c)
    # Check 15: on these products an empty input or weight leaves the checks of shapes out.
    may_skip = c.product in c.rules.empty.products
    skips = may_skip and (c.tensor("input").is_empty or c.tensor("weight").is_empty)
    if not skips:
        run(SHAPE_CHECKS, c)
    # Products that do not skip reach this with an empty input alone: check 17 refuses the others.
    empty = skips or c.tensor("input").is_empty
    if empty:
        run(EMPTY_CHECKS if skips else FIRST_EMPTY_CHECKS, c)
        if skips and c.rules.empty.related:
            run(RELATED_EMPTY_CHECKS, c)
    else:
        run(INNER_CHECKS, c)
    return _decision(c, rules, empty, "zeros", () if empty else _implied_output_padding(c))


def _implied_output_padding(c: CheckedConvolution) -> tuple[int, ...]:
    """Return what the sizes leave over along each axis of a transposed convolution."""
    if not c.call.transposed:
        return (0,) * (c.rank - 2)
    return tuple(c.room(axis) % c.numbers("stride")[axis] for axis in range(c.rank - 2))


def _tbc(c: CheckedTbc, rules: RuleSet) -> Decision:
    # Imported here: no call of the other interface asks for them.
    from ascendsim.rules.tbc import TBC_CHECKS

    run(TBC_CHECKS, c)
    empty = any(c.tensor(name).is_empty for name in ("grad_output", "input", "weight"))
    return _decision(c, rules, empty, c.rules.empty_grad_bias, ())


def _decision(
    c: CheckedConvolution | CheckedTbc, rules: RuleSet, empty: bool, bias: str, spare: tuple[int, ...]
) -> Decision:
    promoted, compute = c.promoted_dtype, c.compute_dtype
    # conv_tbc has no mask: its three outputs are always computed.
    first, second, third = c.mask if isinstance(c, CheckedConvolution) else (True, True, True)
    return Decision(
        c.call.api,
        c.product,
        rules.name,
        promoted,
        compute,
        c.dtypes,
        (first, second, third),
        spare,
        "fixed" if c.product in rules.determinism.fixed_order else rules.determinism.default,
        empty,
        bias if empty else "sum",
        cube_math_warnings(promoted, c.cube_math_type, compute, c.rules.cube_math_warnings),
    )
