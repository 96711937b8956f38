"""Whether a call is small enough: its instructions and bytes, reckoned from sizes before the work."""

from __future__ import annotations

from math import inf, prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ascendsim.errors import BudgetError, refusal, whole
from ascendsim.ops.lowering.call import GRADIENTS, MOST_MACS
from ascendsim.ops.plan import saying_whose
from ascendsim.program import walk as w
from ascendsim.program.program import CHUNK, NestProgram, Program, walk_memory

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ascendsim.ops.lowering.call import Call
    from ascendsim.ops.lowering.graph import Graph
    from ascendsim.profile import Profile
    from ascendsim.program.kernel import Kernel

# Tensors, their float32 carriers and layouts, gradients and float64 references: 13 was measured on large
# layers, and too early a refusal is better than a machine that swaps.
BYTES_PER_ELEMENT = 16
# Of an estimate: nests, tables and the transfers listed for L2. 3 to 13 were measured; rounded up as above.
BYTES_PER_INSTRUCTION = 16
# Sizes alone may be so many times too low, 387 of groups. A call that is small even so is not counted. Nor is
# one of more than QUICKLY_CUT by the least that its sizes allow where these are too many: to cut it into
# tasks takes longer than to say no.
SIZES_TOO_LOW, QUICKLY_CUT = 400, 10**7
# A multiplication and the loads of both its tiles; or of one, where the other is read for a whole sum again,
# and the sum leaves.
FED = 3
# Whole tasks that are walked before the others are taken to be like them.
TASKS_WALKED = 4


def budget_given(name: str, value: Any) -> int | None:
    """Return a budget as a number; None: no limit.

    Raises   ConfigError for anything else
    """
    if value is None:
        return None
    most = whole(value)
    if most is None or most < 1:
        raise refusal(name, value, "a whole number from 1 on, or None")
    return most


def reckoned_bytes(shapes: Iterable[Sequence[int]]) -> int:
    """Return about how many bytes a call needs that reads and makes tensors of these shapes."""
    return BYTES_PER_ELEMENT * sum(map(prod, shapes))


def sized_instructions(kernel: Kernel, profile: Profile) -> int:
    """Return a guess at how many instructions a kernel has, from its sizes alone.

    FED for each base block and K slice, a transfer for each UB full of the tensors' bytes, and one for each
    image: most loops turn image by image. A Cast is that of each of its pieces, which comes and goes.
    """
    tensors = kernel.tensors.values()
    if "pieces" in kernel.facts:
        return 3 * int(kernel.facts["pieces"])
    transfers = sum(tensor.size_bytes for tensor in tensors) // profile.buffers["UB"].capacity_bytes
    activations = (tensor.shape for tensor in tensors if "weight" not in tensor.name)
    images = max((shape[0] for shape in activations if len(shape) > 2), default=0)
    return FED * int(kernel.facts.get("mmads", 0)) + transfers + images


def reckoned_instructions(kernel: Kernel) -> int:
    """Return about how many instructions a kernel has, from its first ones on each core.

    Right for short programs, and within a factor of 2 for long ones.
    """
    return sum(len(cores) * _about(work.build()) for phase in kernel.phases for work, cores in phase.folded())


def _made_bytes(kernel: Kernel) -> int:
    return sum(tensor.size_bytes for tensor in kernel.tensors.values() if tensor.role == "output")


def _about(program: Program) -> int:
    """Return about how many instructions a program has."""
    if not isinstance(program, NestProgram):
        return len(program)
    memory, (at,) = walk_memory([program])
    rows, found = np.empty(2 * CHUNK, np.int64), 0
    while end := w.WALKER(memory, 0, at, rows, 0, len(rows), w.ROWS):
        found += end // 2
        walked = int(memory[at + w.TASK]) - 1  # the last one is under way
        if walked >= TASKS_WALKED:
            return found * len(program.tasks) // walked
    return found


def require_bytes(need: int, most: int | None, what: str) -> None:
    """Refuse a call that needs more memory than is wanted.

    Raises   BudgetError
    """
    if most is not None and need > most:
        raise BudgetError(
            f"about {need:,} bytes for {what} are more than most_bytes, which is {most:,}; take a "
            "smaller batch, or ask for cycles alone (`estimate`, --cycles-only), or raise most_bytes (None: "
            "no limit; --most-bytes 0)"
        )


def require_instructions(
    graph: Graph, profile: Profile, most_instructions: int | None, most_bytes: int | None
) -> None:
    """Refuse a call of more instructions, or of more bytes for them, than are wanted.

    Raises   BudgetError
    """
    most = _most(most_instructions, most_bytes)
    counts = {kernel.name: sized_instructions(kernel, profile) for kernel in graph.kernels}
    about = "about"
    if most <= SIZES_TOO_LOW * sum(counts.values()):
        # As far as it takes to refuse, and those of the least results first: a kernel is cut along its
        # result, which may take seconds.
        for kernel in sorted(graph.kernels, key=_made_bytes):
            if sum(counts.values()) > max(most, QUICKLY_CUT):
                about = "at least about"
                break
            with saying_whose(kernel.name, kernel.facts.get("plan")):
                counts[kernel.name] = reckoned_instructions(kernel)
    _require(counts, about, most_instructions, most_bytes)


def require_products(
    call: Call, wanted: Sequence[bool], most_instructions: int | None, most_bytes: int | None
) -> None:
    """Refuse a large call before it is lowered, if its products alone have more instructions than are wanted.

    Raises   BudgetError
    """
    if call.problem.macs > MOST_MACS:  # others are lowered as fast
        names = [name for name, asked in zip(GRADIENTS, wanted, strict=True) if asked and name in call.plans]
        counts = {name: FED * call.least_mmads(name, call.schedule(name)) for name in names}
        if sum(counts.values()) > max(_most(most_instructions, most_bytes), QUICKLY_CUT):
            _require(counts, "at least about", most_instructions, most_bytes)


def _most(most_instructions: int | None, most_bytes: int | None) -> float:
    """Return how many instructions are wanted, by whichever limit is the lower."""
    return min(
        inf if most_instructions is None else most_instructions,
        inf if most_bytes is None else most_bytes // BYTES_PER_INSTRUCTION,
    )


def _require(
    counts: Mapping[str, int], about: str, most_instructions: int | None, most_bytes: int | None
) -> None:
    total = sum(counts.values())
    if most_instructions is not None and total > most_instructions:
        largest = max(counts, key=lambda name: counts[name])
        raise BudgetError(
            f"{about} {total:,} instructions, {counts[largest]:,} of them in {largest}, are more than "
            f"most_instructions, which is {most_instructions:,}; take a smaller batch or larger base blocks, "
            "or raise most_instructions (None: no limit; --most-instructions 0)"
        )
    require_bytes(BYTES_PER_INSTRUCTION * total, most_bytes, f"{total:,} instructions")
