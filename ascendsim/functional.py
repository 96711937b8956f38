"""Run a kernel for its results.

Instructions act on a `CoreMemory` by their own meanings; this module only decides the order of the calls. It
knows neither convolution nor time.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ascendsim.errors import ProgramError
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.numerics.casts import rounded
from ascendsim.numerics.dtypes import ELEMENTS, FLOAT_NAMES, Integer
from ascendsim.program.checked import CheckedMemory, PhaseWatch
from ascendsim.program.instruction import Instruction
from ascendsim.program.kernel import Core, Kernel, Phase, require_apart
from ascendsim.program.places import CoreMemory, GmTensor, Storage
from ascendsim.program.program import Program

if TYPE_CHECKING:
    from ascendsim.program.places import Carrier


# The steps of each phase in the order in which to take them: which core, and which instruction of its
# program.
Order = Sequence[Sequence[tuple[Core, int]]]
# Core, number, instruction and its program.
Step = tuple[Core, int, Instruction, Program]
# Instructions that are written out all at once.
SHORT = 2048
Observer = Callable[[Phase, Core, Instruction], None]


@default_arithmetic
def run_kernel(
    kernel: Kernel,
    gm: dict[str, Carrier],
    *,
    order: str | int | Order = "program",
    observe: Observer | None = None,
    at_once: bool = False,
    checked: bool = True,
) -> None:
    """Execute a kernel on tensors in GM, which it changes in place.

    Shapes   `gm`: tensor name -> carrier of the tensor's shape; missing outputs and workspaces are made,
             poisoned with NaN (integers: with its bits)
    Order    "program": core after core; an integer: a random order that respects the waits and the order
             inside every pipe, drawn from that seed; or for every phase its instructions in order, such as
             `timing.timeline.arrivals` returns them
    Observe  is called after each instruction, with its phase and core
    At once  phases that can do their work at once (`Phase.at_once`) do so, unless an order is asked for other
             than that of the program, or somebody observes; otherwise every instruction is executed
    Checked  each instruction is held to what it says of slots, slices, sizes and formats, and each core to
             elements of its own (`program/checked.py`); programs of the package are checked by its tests
    Raises   ProgramError where a program reads what was never written; checked, as `checked.py` says, for an
             input that is missing, of another size, of a type whose values a carrier does not hold, or with a
             value that its format has not, and for an output that nothing writes
    """
    unwritten: set[str] = set()
    if checked:
        _require_given(kernel, gm)
        unwritten = {name for name, each in kernel.tensors.items() if each.role == "output"} - gm.keys()
    # NaN spoils whatever reads it, so an element that nobody wrote shows in the result.
    for name, tensor in kernel.tensors.items():
        if name not in gm:
            poisoned = np.full(tensor.shape, np.nan, dtype=np.float32)
            # What leaves sums of int8 in a float format (DEQF16) is no whole number.
            gm[name] = poisoned if tensor.dtype in FLOAT_NAMES else poisoned.view(kernel.math.carrier)
    shared: dict[Any, Any] = {}
    # In program order a core is done before the next one begins: so they take the same
    # storage in turn, which is in the caches then.
    storage = Storage(kernel.math.carrier)
    at_once = at_once and order == "program" and observe is None
    # Overflow and NaN are results here, as on the device; numpy would warn of them.
    with np.errstate(all="ignore"):
        for number, phase in enumerate(kernel.phases):
            if at_once and phase.at_once is not None:
                phase.at_once(CoreMemory(gm, kernel.math, shared))
                unwritten.clear()
                continue
            # Slots do not outlive a phase: each core begins the next one with a program of its own.
            given = gm, kernel.math, shared, storage if order == "program" else None
            if checked:
                unwritten -= _run_checked(kernel, phase, given, _steps(phase, number, order), observe)
                continue
            memories = {work.core: CoreMemory(*given) for work in phase.work}
            for core, _, instruction, _ in _steps(phase, number, order):
                instruction.execute(memories[core])
                if observe is not None:
                    observe(phase, core, instruction)
    if unwritten:
        raise ProgramError(
            f"{kernel.name}: nothing writes {', '.join(sorted(unwritten))}; store a result there, or give it "
            "another role than that of an output"
        )


def _require_given(kernel: Kernel, gm: dict[str, Carrier]) -> None:
    """Refuse tensors that are missing, of another size, or of a type whose values a carrier does not hold."""
    carrier = kernel.math.carrier
    for name, tensor in kernel.tensors.items():
        array, wants = gm.get(name), f"{kernel.name} takes {name} of shape {tensor.shape} in {carrier}; given"
        if array is None and tensor.role == "input":
            raise ProgramError(f"{wants} are only: {', '.join(gm) or 'none'}")
        size = prod(tensor.shape if tensor.permuted is None else tensor.permuted[0])
        if array is not None and array.size != size:
            raise ProgramError(f"{wants} is one of shape {array.shape}, {array.size} elements, not {size}")
        if array is not None and not np.can_cast(array.dtype, carrier):
            raise ProgramError(f"{wants} is {array.dtype}, of which that holds not all values")
        if array is not None and tensor.role == "input":
            _require_values(kernel.name, tensor, array)


def _require_values(kernel: str, tensor: GmTensor, array: Carrier) -> None:
    """Refuse an element that is no value of its tensor's format."""
    exact = values = array.astype(np.float32, copy=False)
    # None for the words of a table, as the scales of a Fixpipe are: they have no format of elements.
    fmt = next((one for one in ELEMENTS if one.name == tensor.dtype), None)
    is_whole, mend = isinstance(fmt, Integer), "round it before (`round_to` of ascendsim.numerics.casts)"
    if isinstance(fmt, Integer):
        end = 2 ** (fmt.bits - 1)
        exact = values.clip(-float(end), float(end - 1)).round()
        mend = f"give whole numbers from {-end:,} to {end - 1:,}"
    elif fmt:
        exact = rounded(values, tensor.dtype)
    for at in np.argwhere((exact != values) & (is_whole | ~np.isnan(values)))[:1].tolist():
        raise ProgramError(
            f"{kernel} takes {tensor.name} of {tensor.dtype}; given is {array[tuple(at)]!s} at {at}, which "
            f"is no value of it; {mend}"
        )


def _run_checked(
    kernel: Kernel, phase: Phase, given: Any, steps: Iterator[Step], observe: Observer | None
) -> set[str]:
    """Run a phase, each instruction held to what it says, and return the names of the tensors it writes."""
    require_apart(phase)
    watch = PhaseWatch(phase, kernel)
    memories = {work.core: CheckedMemory(watch, core, *given) for core, work in enumerate(phase.work)}
    for core, at, instruction, program in steps:
        memories[core].run(at, instruction, program)
        if observe is not None:
            observe(phase, core, instruction)
    watch.check()
    return {name for name, own in watch.touched.items() if any(kind != "read" for *_, kind in own)}


def _steps(phase: Phase, number: int, order: str | int | Order) -> Iterator[Step]:
    """Yield the instructions of a phase in the asked order."""
    # Core after core is legal: inside a phase cores share nothing but atomic additions.
    if order == "program":
        for work in phase.work:
            program = work.build()
            # A short program may be kept by its kernel for another run, and its instructions with it.
            short = len(program) <= SHORT
            for at, made in enumerate(program.instructions if short else program.expanded()):
                yield work.core, at, made, program
        return
    if isinstance(order, str):
        raise ProgramError(f'order is {order!r}; it must be "program", a seed, or the steps of every phase')
    programs = {work.core: work.build() for work in phase.work}
    steps = _random_order(programs, random.Random(order)) if isinstance(order, int) else order[number]
    for core, at in steps:
        yield core, at, programs[core].instructions[at], programs[core]


def _random_order(programs: dict[Core, Program], rng: random.Random) -> Iterator[tuple[Core, int]]:
    """Yield a random order in which every pipe stays in order and every wait is respected."""
    queues: dict[Core, dict[str, list[int]]] = {}
    for core, program in programs.items():
        # Reversed, since taking from the end of a list is cheap.
        pipes: dict[str, list[int]] = {}
        for index, pipe in enumerate(program.pipes):
            pipes.setdefault(pipe, []).append(index)
        queues[core] = {pipe: indices[::-1] for pipe, indices in pipes.items()}
    finished = {core: bytearray(len(program)) for core, program in programs.items()}
    heads = [(core, pipe) for core, pipes in queues.items() for pipe in pipes]
    while heads:
        # Favouring one end of the list at random makes some pipes run far ahead, which is what finds gaps.
        at = rng.randrange(len(heads))
        core, pipe = heads[at]
        for _ in range(rng.randrange(1, 8)):
            if not _ready(programs[core], finished[core], queues[core][pipe][-1]):
                break
            index = queues[core][pipe].pop()
            finished[core][index] = 1
            yield core, index
            if not queues[core][pipe]:
                heads.pop(at)
                break


def _ready(program: Program, finished: bytearray, index: int) -> bool:
    waits = *program.after_done[index], *program.after_end[index], *program.trailed(index)
    return all(finished[i] for i in waits)
