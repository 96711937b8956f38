"""What L2 holds as a call begins: a word, or the names of the operands that are there.

Three words are of each kernel alike, the others of the call: each kernel finds there what those before it
have left. `step`, the default, is what a training step leaves. The kernel before was the backward pass of the
next layer, and it wrote grad_output. The forward pass used input and weight, and since then a network larger
than L2 has passed through it. Of a matrix product the first operand, a, is what the kernel before has made.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

from ascendsim.errors import did_you_mean, items, refusal
from ascendsim.frozen import FrozenMap
from ascendsim.ops.lowering.call import INPUTS
from ascendsim.timing.l2.account import L2_STARTS, Start
from ascendsim.timing.l2.words import CHAINED, L2_NOTES, STEP

if TYPE_CHECKING:
    from ascendsim.profile import Profile
    from ascendsim.program.places import GmTensor

L2Operands = str | Collection[str]


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
