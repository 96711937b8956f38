"""From a described call to a decision, or to the status the interface answers with."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from ascendsim.rules.arguments import ARGUMENT_CHECKS
from ascendsim.rules.checked import (
    INNER,
    NULL,
    Check,
    CheckedConvolution,
    CheckedTbc,
    contiguous_outputs,
    cube_math,
    cube_math_warnings,
    inner_limits,
    listed,
    run,
    stated_limits,
)
from ascendsim.rules.loader import known_product, load_rules, rule_product
from ascendsim.rules.model import DTYPES, REFUSED, Names, RuleSet
from ascendsim.rules.shapes import (
    EMPTY_CHECKS,
    FIRST_EMPTY_CHECKS,
    INNER_CHECKS,
    RELATED_EMPTY_CHECKS,
    SHAPE_CHECKS,
)
from ascendsim.rules.typed import (
    GRADIENTS,
    Call,
    ConvolutionBackwardCall,
    ConvTbcBackwardCall,
    Decision,
    typed,
)

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
        rule_set = with_cube(rule_set, family, product)
    if isinstance(call, ConvTbcBackwardCall):
        decision = _tbc(CheckedTbc(typed(call), family, rule_set.tbc), rule_set)
    else:
        asked = _DecisionKey(typed(call), family, id(rule_set), rule_set)
        # What has been laid over a rule set for this call comes with no other.
        decision = _decided(asked) if rule_set.from_cube else _remembered(asked)
    # With a table of its own, since that of a remembered decision is everybody's.
    return decision._replace(dtypes=dict(decision.dtypes), direct_outputs=rule_set.direct_outputs)


@dataclass(frozen=True)
class _DecisionKey:
    """A key of a decision; rule sets have no hash, so the key holds the set and compares its number."""

    call: ConvolutionBackwardCall
    family: str
    number: int
    rules: RuleSet = field(compare=False)


def _decided(asked: _DecisionKey) -> Decision:
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
    """Return the output padding that the sizes imply along each axis of a transposed convolution."""
    if not c.call.transposed:
        return (0,) * (c.rank - 2)
    return tuple(c.room(axis) % c.numbers("stride")[axis] for axis in range(c.rank - 2))


def _tbc(c: CheckedTbc, rules: RuleSet) -> Decision:

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
        convolution=convolution, tbc=rules.tbc._replace(dtypes=given, bias_dtypes=bias, cube_math=math)
    )


def _outcomes(promoted: str, rates: Collection[str]) -> Names:
    """Return the formats in which the cube computes for cubeMathType 0, 1, 2 and 3."""
    wanted = {
        "float32": ("float32", "hf32" if "hf32" in rates else "float16", "float16", "hf32"),
        "bfloat16": ("bfloat16", "bfloat16", "float16", "bfloat16"),
    }.get(promoted, (promoted,) * 4)
    return tuple(name if name in rates else REFUSED for name in wanted)


INPUTS = ("grad_output", "input", "weight", "bias")


def null_pointers(c: CheckedTbc) -> str | None:
    """Find a tensor that is not there."""
    for name in (*INPUTS, *GRADIENTS):
        if c.optional(name) is None:
            return f"{name} is null; it must be given"
    return None


def product(c: CheckedTbc) -> str | None:
    """Find a product that is not supported at all."""
    if c.product in c.rules.products:
        return None
    return f"{c.product} does not support conv_tbc backward; supported are {listed(c.rules.products)}"


def dtypes(c: CheckedTbc) -> str | None:
    """Find a tensor whose dtype is not in the product's list; bias has a list of its own."""
    for name in (*INPUTS, *GRADIENTS):
        # bias lends grad_bias its shape and dtype; no kernel reads its values, and the operator takes
        # bfloat16 everywhere.
        lists = c.rules.bias_dtypes if name == "bias" else c.rules.dtypes
        if c.tensor(name).dtype not in lists[c.product]:
            return f"{name} is {c.tensor(name).dtype}; {c.product} takes {listed(lists[c.product])}"
    return None


def equal_inputs(c: CheckedTbc) -> str | None:
    """Find inputs of different dtypes, where the page wants one."""
    kinds = [c.tensor(name).dtype for name in INPUTS]
    if not c.rules.equal_inputs or len(set(kinds)) == 1:
        return None
    return f"grad_output, input, weight and bias are {listed(kinds)}; they must be equal"


def formats(c: CheckedTbc) -> str | None:
    """Find a format that is not allowed."""
    for name in ("grad_output", "input", "weight", "grad_input", "grad_weight", "bias", "grad_bias"):
        allowed = c.rules.bias_formats if "bias" in name else c.rules.formats
        if c.tensor(name).format not in allowed:
            return f"{name} has format {c.tensor(name).format}; it must be {listed(allowed)}"
    return None


def empty_tensors(c: CheckedTbc) -> str | None:
    """Find an empty tensor where there may be none."""
    # Page 003 says both yes (parameter table) and no (note): a rule set has to choose.
    names = {"refused": INPUTS, "only beside grad_output": ("grad_output",), "allowed": ()}[c.rules.empty]
    for name in names:
        if c.tensor(name).is_empty:
            return f"{name} {c.tensor(name).shape} is empty; none of its extents may be 0"
    return None


def shapes(c: CheckedTbc) -> str | None:
    """Find ranks, channels, pad or outputs that do not fit each other."""
    for name, rank in (*((name, 3) for name in INPUTS[:3]), ("bias", 1)):
        if c.tensor(name).rank != rank:
            return f"{name} {c.tensor(name).shape} has rank {c.tensor(name).rank}; it must be {rank}"
    time, batch, channels = c.tensor("input").shape
    # Unlike other layouts, the taps come first and the output channels last.
    taps, taken, given = c.tensor("weight").shape
    if channels != taken:
        return f"input has {channels} channels, but weight.shape[1] is {taken}; they must be equal"
    if c.tensor("bias").shape != (given,):
        return f"bias is {c.tensor('bias').shape}, but weight.shape[2] is {given}; they must be equal"
    if c.call.pad < 0:
        return f"pad is {c.call.pad}; it must be at least 0"
    # Stride and dilation are 1: as many placements as the padded steps leave beside the kernel.
    steps = time + 2 * c.call.pad + 1 - taps
    if c.tensor("grad_output").shape != (steps, batch, given):
        return (
            f"grad_output is {c.tensor('grad_output').shape}, but input {time}, pad {c.call.pad} and kernel "
            f"{taps} give ({steps}, {batch}, {given})"
        )
    for name, like in zip(GRADIENTS, ("input", "weight", "bias"), strict=True):
        if c.tensor(name).shape != c.tensor(like).shape:
            return (
                f"{name} is {c.tensor(name).shape}, but {like} is {c.tensor(like).shape}; they must be equal"
            )
    return None


def output_dtypes(c: CheckedTbc) -> str | None:
    """Find an output that has not the dtype of its tensor, where the rules want that."""
    for name in GRADIENTS:
        for source in c.rules.output_dtypes[c.product].get(name, ()):
            if c.tensor(name).dtype != c.tensor(source).dtype:
                return (
                    f"{name} is {c.tensor(name).dtype}, but {source} is {c.tensor(source).dtype}; "
                    "they must be equal"
                )
    return None


TBC_CHECKS = (
    Check("1", "null pointers", null_pointers, NULL),
    Check("1a", "product", product),
    Check("2", "dtypes", dtypes),
    Check("2a", "equal dtypes", equal_inputs),
    Check("3", "formats", formats),
    Check("3a", "contiguous outputs", contiguous_outputs),
    Check("4", "empty tensors", empty_tensors),
    Check("5", "shapes", shapes),
    Check("5a", "stated limits", stated_limits),
    Check("6", "cube_math_type", cube_math),
    Check("7", "dtypes of the outputs", output_dtypes),
    Check("8", "inner operators", inner_limits, INNER),
)
