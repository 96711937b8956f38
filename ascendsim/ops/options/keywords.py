"""The keywords of operators: what each means, its type and its default, for signatures, flags and pages.

Three words of L2 are of each kernel alike, the others of the call: each kernel finds there what those before
it have left. `step`, the default, is what a training step leaves. The kernel before was the backward pass of
the next layer, and it wrote grad_output. The forward pass used input and weight, and since then a network
larger than L2 has passed through it. Of a matrix product the first operand, a, is what the kernel before has
made.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

from ascendsim.errors import did_you_mean, items, refusal
from ascendsim.frozen import FrozenMap
from ascendsim.numerics.dtypes import FIXPIPE_PRESETS
from ascendsim.rules.typed import INPUTS
from ascendsim.timing import ENGINES
from ascendsim.timing.l2 import CHAINED, L2_NOTES, L2_STARTS, STEP

# The command line reads this to say what its flags mean: what takes long to load is imported for types alone.
if TYPE_CHECKING:
    from ascendsim.numerics.accumulation import AccumulationModel
    from ascendsim.ops.plan import Plan, Tiling
    from ascendsim.ops.tiling.request import PartialPlan
    from ascendsim.profile import Profile
    from ascendsim.program.places import GmTensor
    from ascendsim.timing.l2.account import Start

    Product: TypeAlias = str | Path | Profile
    OnePlan: TypeAlias = Tiling | Plan | PartialPlan | str | Path
    # A mapping holds plans by gradient, or fields of one partial plan.
    Tilings: TypeAlias = OnePlan | Mapping[str, OnePlan | Mapping[str, Any]] | Mapping[str, Any] | None
    Schedules: TypeAlias = str | type | Sequence[str | type] | Mapping[str, str | type] | None

L2Operands = str | Collection[str]


class ProductOptions(TypedDict, total=False):
    """Keywords of every operator.

    Flags and pages say the first sentence of each; what follows is of Python alone. None is as left out,
    unless something else is said.

    product        product or variant by name, or path of a .toml file. Or a loaded Profile
    accumulation   accumulation model, such as block:16:RNE; else the product's for the compute dtype. Or an
                   AccumulationModel
    tiling         who chooses the plans: product (as its operators do, where their rules are known, the
                   default), search (this simulator) or tuned (on 910 and 310P the fastest grid on a part of
                   32 cores); or a file of plans or parts of them. Or a Tiling (or a Plan of another call) for
                   the one product computed on the cube, or {"grad_input": ..., "grad_weight": ...}. In place
                   of a tiling a dict of some of its fields, or of `block_dim`, the blocks that a kernel is
                   launched with: the rules choose the rest
    schedule       loop nest that makes a gradient, by its name; else those of the plans. Or a class derived
                   from ascendsim.Schedule; several in a list, or {"grad_input": ...}
    l2_start       what L2 holds as the call begins, as far as it fits: operands, with commas between;
                   grad_output alone, as in a training step (step); none (chained); or as each kernel begins:
                   what a run of it leaves (warm), nothing (cold), its first input (handed). Operands may be a
                   collection of names, of a matrix product a and b; each later kernel finds what those before
                   it have left
    engine         what finds the cycles, which both find alike; else compiled, which is fast, but for spans
                   simpy, the definition
    most_instructions  refuse a call of more instructions, as reckoned before any is timed. None: no limit
    most_bytes     refuse a call that needs more bytes of memory, as reckoned before any are taken. None: no
                   limit
    """

    product: Product
    accumulation: str | AccumulationModel | None
    tiling: Tilings
    schedule: Schedules
    l2_start: L2Operands
    engine: str | None
    most_instructions: int | None
    most_bytes: int | None


class TbcOptions(ProductOptions, total=False):
    """Keywords of both convolution operators, besides those of every operator.

    deterministic  add the parts of grad_weight in a fixed order; else as the rule set or the product says.
                   Where the rule set says that a product has one order, neither value changes it
    output_dtypes  formats of the three gradients; else those of input, weight and grad_output (or bias)
    output_strides  {"grad_input": ...}: where the elements of gradients are to lie, in elements; else row
                   after row. Others cost a ViewCopy each; the gradients of a result are contiguous anyway
    rules          rule set that says what is accepted and in which type it computes: documented, shipped,
                   hardware, ..., or the path of a .toml file
    fixpipe        which of the vendor's pages says when Fixpipe saturates
    """

    deterministic: bool | None
    output_dtypes: Sequence[str | None] | None
    output_strides: Mapping[str, Sequence[int]] | None
    rules: str | Path
    fixpipe: str


class CallOptions(TbcOptions, total=False):
    """Keywords of convolution backward, besides those of both convolution operators.

    layout         how tensors lie on the device: row after row (NCHW), or packed as the cube reads them
                   (NC1HWC0), so that no TransData runs. Gradients stay packed; shapes and bits are the same
    """

    layout: str


@dataclass(frozen=True)
class Keywords:
    """The values of the keywords, with their defaults."""

    product: Product = "910B"
    accumulation: str | AccumulationModel | None = None
    tiling: Tilings = None
    schedule: Schedules = None
    l2_start: str = STEP
    engine: str | None = None
    # Layers of networks have up to 82 million (a 3-D U-Net at batch 256: 14 s). Twice as many take 2 GiB.
    most_instructions: int | None = 100_000_000
    # 64 GiB, a choice: one built-in layer, of a 3-D U-Net, is reckoned to take more at batch 32: 115 GiB.
    most_bytes: int | None = 2**36
    deterministic: bool | None = None
    output_dtypes: Sequence[str | None] | None = None
    output_strides: Mapping[str, Sequence[int]] | None = None
    rules: str | Path = "documented"
    fixpipe: str = "ctrl48"
    layout: str = "NCHW"


CHOICES = {"fixpipe": FIXPIPE_PRESETS, "engine": ENGINES, "layout": ("NCHW", "NC1HWC0")}


def meanings() -> dict[str, str]:
    """Return the first sentence on each keyword, as its docstring has it."""
    said = "\n".join(each.__doc__ or "" for each in (ProductOptions, TbcOptions, CallOptions))
    found = re.findall(r"^    (\w+) {2,}(.+(?:\n {8}.+)*)", said, re.MULTILINE)
    return {name: " ".join(text.split()).partition(". ")[0] for name, text in found}


def l2_start_given(given: Any, operands: Sequence[str] = INPUTS) -> str:
    """Return a start of L2 as a word, or as names of operands with commas between, each once.

    given      a word, such names in any order, or a collection of them; an empty one is "chained"
    operands   those of the operator, the one that was written last first
    Raises     ConfigError for a name of no operand
    """
    if isinstance(given, str):
        if given in L2_NOTES:
            return given
        names: Sequence[Any] | None = [part.strip() for part in given.split(",")]
    else:
        names = tuple(given) if isinstance(given, Set) else items(given)
    rule = f"one of {', '.join(L2_NOTES)}, or operands with commas between, of {', '.join(operands)}"
    if names is None:
        raise refusal("l2_start", given, rule)
    for name in names:
        if not isinstance(name, str) or name not in operands:
            near = did_you_mean(str(name), (*L2_NOTES, *operands), " ") if isinstance(name, str) else " "
            raise refusal("l2_start", given, f"{rule}; {near}".rstrip("; "))
    return ",".join(name for name in operands if name in names) or CHAINED


def l2_begun(start: Start, operands: Mapping[str, GmTensor], profile: Profile) -> Start:
    """Return the L2 that the first kernel of a call finds, or how each finds it.

    start      as `l2_start_given` returns it, or the content itself
    operands   those of the call, the one that was written last first: it has its place before the others
    """
    if not isinstance(start, str) or start in L2_STARTS:
        return start
    words = {STEP: tuple(operands)[:1], CHAINED: ()}
    names = words[start] if start in words else tuple(start.split(","))
    held, room = {}, profile.l2.capacity_bytes
    for tensor in [tensor for name, tensor in operands.items() if name in names]:
        # Clean and spread evenly, as measured kernels find what another one has handed over.
        if there := min(tensor.size_bytes, room):
            held[tensor.name] = (there, 0, 1)
        room -= there
    return FrozenMap(reversed(held.items()))
