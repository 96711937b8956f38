"""The results of the operators: plain records, from which every report is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from ascendsim.errors import ConfigError
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.ops.plan import Plan
from ascendsim.program.instruction import PIPES
from ascendsim.program.kernel import Kernel
from ascendsim.timing.l2.account import Start
from ascendsim.timing.times import KernelTimes

if TYPE_CHECKING:
    from ascendsim.timing.timeline import Timeline


# Where the bytes of a kernel come from and go to.
SOURCES = ("l2_read", "l2_write", "memory", "memory_read", "memory_write")


class Retimed:
    """A timeline, and how it was worked out.

    The timeline of a large call holds every instruction of its cores: hundreds of megabytes. A pickle holds
    how it was worked out instead, and whoever looks at the timeline again has it worked out again, alike.
    """

    __slots__ = ("_made", "_make")

    def __init__(self, make: Callable[[], Timeline], made: Timeline | None = None) -> None:
        self._make, self._made = make, made

    def __reduce__(self) -> tuple[Any, ...]:
        return Retimed, (self._make,)

    def forgotten(self) -> Retimed:
        """Return a copy without its computed timeline, like the copy that a pickle brings back."""
        return Retimed(self._make)

    @property
    def timeline(self) -> Timeline:
        """The timeline, which is kept once somebody has looked at it."""
        if self._made is None:
            self._made = self._make()
        return self._made


@dataclass(frozen=True, slots=True)
class KernelResult:
    """The cycles of one kernel.

    Two are equal if these fields are; their programs and spans are not compared.

    cycles            of the cube clock, from the entry of the first core to the end of the last, no launch
    time_us           with launch: what msprof calls the task duration
    launch_us         of it what starting the kernel takes, beside the work of its cores
    cores_used        cores with work in at least one phase
    busy              pipe -> cycles, averaged over the used cores that have the pipe; where cube and vector
                      cores both have it, over those that are busier with it
    bound_by          the busiest pipe apart from S
    bytes             source -> bytes moved: "l2_read", "l2_write" (all traffic of the cores with L2) and
                      "memory" (what crosses the link to main memory): "memory_read" (what L2 does not hold)
                      and "memory_write" (dirty bytes that leave L2 to make room)
    macs              multiply-adds the problem asks for (by Winograd: that make it); 0 for a vector kernel
    cube_utilisation  macs / (cycles x cube cores of the product x multiply-adds per cycle); 0: vector kernel
    times             busy and waiting cycles of every core
    engine            which of the two engines found the cycles: "compiled" or "simpy"
    kernel, timeline  the program and its spans, for traces and plots
    timed             gives the timeline, which is worked out when it is asked for
    l2_start          what it found in L2
    plan              of a product of the cube: its schedule and tiling; None: a vector kernel
    """

    name: str
    cycles: int
    time_us: float
    launch_us: float
    cores_used: int
    busy: Mapping[str, float]
    bound_by: str
    bytes: Mapping[str, int]
    macs: int
    cube_utilisation: float
    times: KernelTimes = field(compare=False, repr=False)
    engine: str = field(compare=False)
    # Not in the repr: its programs are megabytes of text.
    kernel: Kernel = field(compare=False, repr=False)
    timed: Retimed = field(compare=False, repr=False)
    l2_start: Start = field(default="warm", compare=False, repr=False)

    @property
    def timeline(self) -> Timeline:
        """The spans of the kernel's instructions."""
        return self.timed.timeline

    @property
    def plan(self) -> Plan | None:
        """The plan that the kernel follows."""
        return self.kernel.facts.get("plan")

    def to_record(self) -> dict[str, Any]:
        """Return the figures of the kernel as plain values; `Estimate.to_records` describes them."""
        return {
            "kernel": self.name,
            "cycles": self.cycles,
            "time_us": self.time_us,
            "cores_used": self.cores_used,
            "bound_by": self.bound_by,
            "macs": self.macs,
            "cube_utilisation": self.cube_utilisation,
            **{f"bytes_{source}": self.bytes.get(source, 0) for source in SOURCES},
            **{f"busy_{pipe}": float(self.busy.get(pipe, 0)) for pipe in PIPES},
            "schedule": self.plan.nest if self.plan else "",
            "chosen_by": self.plan.chosen_by if self.plan else "",
        }


class LevelBytes(NamedTuple):
    """Bytes of one operand that a kernel reads and writes at one level, over all cores.

    operand    name of the tensor; several with + between them where tiles are of several
    footprint  bytes of the tensor; 0 where it is not one tensor
    """

    level: str
    operand: str
    read: int
    written: int
    footprint: int

    @property
    @default_arithmetic
    def reads_per_byte(self) -> float | None:
        """How often each byte of the operand is read at the level; None without a footprint."""
        return self.read / self.footprint if self.footprint else None


class KernelTraffic(NamedTuple):
    """The bytes of one kernel by level and operand, and what its cube multiplies.

    held  level -> (bytes that it takes there, bytes that there are): of a core's buffer the most that a core
          reserves; of L2 all tensors
    macs  format -> multiply-adds that the cube makes, repeated ones with them
    """

    kernel: str
    moves: tuple[LevelBytes, ...]
    held: Mapping[str, tuple[int, int]]
    macs: Mapping[str, int]

    def at(self, level: str) -> tuple[int, int]:
        """Return the bytes that are read and written at a level."""
        own = [move for move in self.moves if move.level == level]
        return sum(move.read for move in own), sum(move.written for move in own)


@dataclass(frozen=True, slots=True)
class Estimate:
    """The cycles of a whole call, kernel after kernel.

    `notes` are the sentences a reader must know: what is assumed, and what is not modelled.
    """

    product: str
    variant: str
    compute_dtype: str
    accumulation: str
    kernels: tuple[KernelResult, ...]
    notes: tuple[str, ...]

    @property
    def cycles(self) -> int:
        """Cube-clock cycles of all kernels, without launches."""
        return sum(kernel.cycles for kernel in self._timed("cycles"))

    @property
    @default_arithmetic
    def time_us(self) -> float:
        """Microseconds of all kernels, launches included."""
        return sum(kernel.time_us for kernel in self._timed("time_us"))

    @property
    def plans(self) -> dict[str, Plan]:
        """The plan of each kernel that the cube makes, by the kernel's name, as `tiling=` takes them."""
        return {kernel.name: kernel.plan for kernel in self.kernels if kernel.plan is not None}

    def _timed(self, name: str) -> tuple[KernelResult, ...]:
        """Return the kernels whose cycles add up to the total `name`."""
        # The sum over no kernels would be a number too, 0.
        if getattr(self, "timing", True):
            return self.kernels
        raise ConfigError(
            f"{type(self).__name__}: {name} is not known, as the call was made with timing=False; leave that "
            "out, or ask for an estimate of the problem"
        )

    def to_records(self) -> list[dict[str, Any]]:
        """Return a record of plain values for each kernel, all with the same names: rows of a table.

        `busy_PIPE` are cycles averaged over the used cores, as in `KernelResult.busy`; 0 for a pipe that the
        kernel does not use. `bytes_SOURCE` are those of `KernelResult.bytes`; `schedule` and `chosen_by` are
        those of its plan, empty for a vector kernel.
        """
        own = {
            "product": self.product,
            "variant": self.variant,
            "compute_dtype": self.compute_dtype,
            "accumulation": self.accumulation,
        }
        return [own | kernel.to_record() for kernel in self.kernels]

    def __str__(self) -> str:
        """Return a line for the call and one for each kernel; all fields are in the `repr`."""
        lines = [
            f"{self.variant}: {self.compute_dtype} in the cube, {self.accumulation}",
            *self._gradient_lines(),
        ]
        for kernel in self.kernels:
            bound = f", bound by {kernel.bound_by}" if kernel.bound_by else ""
            lines.append(f"{kernel.name}: {kernel.cycles:,} cycles, {kernel.time_us:,.2f} us{bound}")
        return "\n".join(lines)

    def _gradient_lines(self) -> tuple[str, ...]:
        """Return a line for each gradient; an estimate has none."""
        return ()

    def _repr_html_(self) -> str:
        """Return the HTML for a notebook: the time, a row for each kernel, and the notes to unfold."""
        return self._html()

    @default_arithmetic
    def _html(self, *more: str, timing: bool = True) -> str:
        title = self.variant
        if timing:
            title += f": {self.cycles:,} cycles, {self.time_us:,.2f} us with launches"
        lines = (f"{self.compute_dtype} in the cube, accumulation model {self.accumulation}", *more)

        return result_html(title, lines, [kernel.to_record() for kernel in self.kernels], self.notes)

    def without_timelines(self) -> Self:
        """Return the result in little memory: each timeline is computed again when it is asked for."""
        kernels = tuple(replace(kernel, timed=kernel.timed.forgotten()) for kernel in self.kernels)
        return replace(self, kernels=kernels)


@dataclass(frozen=True, slots=True)
class ConvolutionBackwardResult(Estimate):
    """Gradients and cycles of one call; a masked gradient is None.

    order    in which order the instructions were executed ("program", "arrival" or "seed N")
    timing   whether cycles were asked for; without, there are no kernels, and to ask for cycles is a
             ConfigError
    overflowed  kernels whose conversions saturated a value: NaN, Inf or one that is too large, as the float
             status of such a device tells; products with Inf and NaN in results have none. None: not known,
             as instructions were executed
    """

    grad_input: Any
    grad_weight: Any
    grad_bias: Any
    order: str
    timing: bool = True
    overflowed: tuple[str, ...] | None = None

    def _repr_html_(self) -> str:
        """Return the HTML for a notebook: also the gradients, and no time where none was asked for."""
        order = f"executed in {self.order} order" if self.timing else "no instructions executed"
        return self._html(*self._gradient_lines(), order, timing=self.timing)

    def _gradient_lines(self) -> tuple[str, ...]:
        return tuple(
            f"{name}: {'x'.join(map(str, made.shape))}, {made.dtype}"
            for name in ("grad_input", "grad_weight", "grad_bias")
            if (made := getattr(self, name)) is not None
        )


_HEADINGS = ("kernel", "cycles", "us", "cores", "busiest pipe", "cube", "plan")


def result_html(
    title: str, lines: Sequence[str], records: Sequence[dict[str, Any]], notes: Sequence[str]
) -> str:
    """Return a title, lines below it, a row for each record of a kernel, and the notes to unfold."""
    parts = [f"<p><b>{escape(title)}</b></p>", *(f"<p>{escape(line)}</p>" for line in lines)]
    if records:
        rows = [_row(_HEADINGS, "th"), *(_row(_cells(record), "td") for record in records)]
        parts.append(f"<table>{''.join(rows)}</table>")
    if notes:
        listed = "".join(f"<li>{escape(note)}</li>" for note in notes)
        parts.append(f"<details><summary>Notes</summary><ul>{listed}</ul></details>")
    return f"<div>{''.join(parts)}</div>"


def _cells(record: dict[str, Any]) -> tuple[str, ...]:
    """Return the table cells of a record of `KernelResult.to_record`."""
    cycles = max(record["cycles"], 1)
    busy = record[f"busy_{record['bound_by']}"] / cycles if record["bound_by"] else 0.0
    plan = f"{record['schedule']} ({record['chosen_by']})" if record["schedule"] else ""
    return (
        record["kernel"],
        f"{record['cycles']:,}",
        f"{record['time_us']:,.2f}",
        str(record["cores_used"]),
        f"{record['bound_by']} {busy:.0%}",
        f"{record['cube_utilisation']:.0%}" if record["macs"] else "",
        plan,
    )


def _row(cells: Sequence[str], tag: str) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"
