"""What a simulation has seen of each pass of each layer: calls, errors and special elements."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.numerics.casts import decode
from ascendsim.numerics.dtypes import dtype as lookup_dtype
from ascendsim.numerics.metrics import Specials, specials_of
from ascendsim.ops.problems.matmul import MatmulProblem
from ascendsim.ops.results import Estimate
from ascendsim.studies.records import JudgedGradient
from ascendsim.studies.sweep import float64_references, judge
from ascendsim.torch.passes import OUTPUT_ALONE, LayerPass, Setting, costs, mirrored, parts_of
from ascendsim.torch.products import ProductCall, with_terms
from ascendsim.torch.tbc import TbcBackward

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.ops.lowering.call import Mask
    from ascendsim.ops.problems.convolution import ConvProblem
    from ascendsim.ops.results import ConvolutionBackwardResult


@default_arithmetic
def judged_forward(
    problem: ConvProblem,
    input: NDArray[Any],
    weight: NDArray[Any],
    bias: Any,
    result: ConvolutionBackwardResult,
) -> tuple[JudgedGradient, ...]:
    """Return the error of an output, which is the grad_input of the result."""
    other = mirrored(problem)
    shape_only = np.zeros(problem.grad_output, input.dtype)
    references = float64_references(other, input, shape_only, weight, OUTPUT_ALONE)
    if bias is not None:
        more = decode(bias, lookup_dtype(bias.dtype)).astype(np.float64)
        references["grad_input"] = references["grad_input"] + more.reshape(-1, *(1,) * problem.rank)
    (output,) = judge(result, references)
    return (replace(output, name="output"),)


def judged_backward(
    problem: ConvProblem,
    given: tuple[NDArray[Any], NDArray[Any], NDArray[Any]],
    mask: Mask,
    result: ConvolutionBackwardResult,
) -> tuple[JudgedGradient, ...]:
    """Return the errors of the gradients that were asked for; `given` are grad_output, input and weight."""
    references = float64_references(problem, *given, mask)
    return tuple(
        with_terms(one, given[0], references["grad_bias"], result.grad_bias)
        if one.name == "grad_bias"
        else one
        for one in judge(result, references)
    )


@dataclass(frozen=True)
class Record:
    """One pass of one layer: its number of runs, its cost each time, and its errors.

    layer     its name, direction, convolution and formats
    setting   the setting of the simulation
    calls     times that it ran
    estimate  cycles and times of its kernels, on contiguous tensors; None where it was refused. Casts into
              the `operands` of a setting and the addition of a forward's bias are not among them
    specials  of each result ("output", or the gradients), over all calls: Inf, NaN, largest values, ...
    overflowed  kernels that saturated a value in any call; the device's float status tells of them
    errors    for each call that was judged, its results against float64 ones of the tensors as torch had them
    refused   why the interface refuses it, where torch has computed it instead; None: it was simulated
    """

    layer: LayerPass
    setting: Setting
    calls: int
    estimate: Estimate | None
    specials: Mapping[str, Specials]
    overflowed: tuple[str, ...]
    errors: tuple[tuple[JudgedGradient, ...], ...]
    refused: str | None

    @property
    def cycles(self) -> int:
        """Cube-clock cycles of one call; 0 where it was refused."""
        return self.estimate.cycles if self.estimate else 0

    @property
    def time_us(self) -> float:
        """Microseconds of one call, launches included; 0 where it was refused."""
        return self.estimate.time_us if self.estimate else 0.0


HEADS = ("layer", "pass", "calls", "in the cube", "cycles", "us", "shares of elements", "mean relative error")


def table(records: Sequence[Record]) -> str:
    """Return the records as lines of text: costs of one call, errors of the last that was judged; the sum."""
    rows = [HEADS, *(_row(record) for record in records)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(HEADS))]
    lines = [
        "  ".join(
            cell.rjust(width) if head in ("calls", "cycles", "us") else cell.ljust(width)
            for head, cell, width in zip(HEADS, row, widths, strict=True)
        ).rstrip()
        for row in rows
    ]
    passes = {
        direction: sum(record.time_us for record in records if record.layer.direction == direction)
        for direction in ("forward", "backward")
    }
    times = ", ".join(f"{direction} {time:.2f} us" for direction, time in passes.items())
    return "\n".join([*lines, f"one call of each: {times}, launches included"])


def _row(record: Record) -> tuple[str, ...]:
    first = (record.layer.name, record.layer.direction, str(record.calls))
    if record.estimate is None:
        return (*first, "(torch)", "", "", "", f"refused: {record.refused}")
    shares = [f"{name} {text}" for name, one in record.specials.items() if (text := str(one))]
    if record.overflowed:
        shares.append(f"float status: {', '.join(record.overflowed)}")
    errors = ", ".join(map(_error, record.errors[-1] if record.errors else ()))
    costs = record.estimate.compute_dtype, f"{record.cycles:,}", f"{record.time_us:.2f}"
    return (*first, *costs, "; ".join(shares), errors)


def _error(one: JudgedGradient) -> str:
    """Return the error of a result in words; a mean over what an overflow left says nothing of the result."""
    found = one.errors
    if found.compared < found.count or found.overflow_share:
        return f"{one.name} none (overflow)"
    if one.cancels:
        return f"{one.name} cancels (error {found.mean_of_terms:.1e} of its terms)"
    return f"{one.name} {found.mere:.1e}"


@dataclass
class PassEntry:
    """The calls of one pass of one layer so far."""

    layer: LayerPass
    setting: Setting
    calls: int = 0
    specials: dict[str, Specials] = field(default_factory=dict)
    overflowed: set[str] = field(default_factory=set)
    judged: list[tuple[JudgedGradient, ...]] = field(default_factory=list)
    refused: str | None = None

    def note(self, made: Mapping[str, Any], cut: Collection[str]) -> None:
        """Count the special elements of a call's results by name, and the kernels that saturated a value."""
        for name, values in made.items():
            if values is not None:
                known, found = self.specials.get(name), specials_of(values)
                self.specials[name] = known + found if known else found
        self.overflowed.update(cut)


class Ledger:
    """Entries in the order in which their layers first ran."""

    def __init__(self) -> None:
        self._entries: dict[tuple[LayerPass, Setting], PassEntry] = {}
        self._estimates: dict[object, Estimate] = {}

    def entry(self, layer: LayerPass, setting: Setting) -> PassEntry:
        """Return the entry of a layer, a new one for a layer that has not run."""
        known = self._entries.get((layer, setting))
        return known or self._entries.setdefault((layer, setting), PassEntry(layer, setting))

    def records(self) -> tuple[Record, ...]:
        """Return the layers that have run; equal layers share one estimate."""
        return tuple(self._record(entry) for entry in self._entries.values())

    def _record(self, entry: PassEntry) -> Record:
        estimate = None if entry.refused else self._estimate(entry)
        return Record(
            entry.layer,
            entry.setting,
            entry.calls,
            estimate,
            dict(entry.specials),
            tuple(sorted(entry.overflowed)),
            tuple(entry.judged),
            entry.refused,
        )

    def _estimate(self, entry: PassEntry) -> Estimate:
        layer, setting = entry.layer, entry.setting
        key: Any
        if isinstance(layer.problem, MatmulProblem):
            product = ProductCall.of(layer, setting)
            # Settings compare as the objects they are: those of one simulation are made once.
            key, make = (product, setting), partial(product.costs, setting)
        elif isinstance(layer, TbcBackward):
            key, make = (layer, setting), partial(layer.costs, setting)
        else:
            parts = parts_of(layer, setting)
            key, make = (parts, setting), partial(costs, parts, setting)
        if key not in self._estimates:
            self._estimates[key] = make().without_timelines()
        return self._estimates[key]
