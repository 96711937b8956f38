"""Write the kernels of a call as msprof lists those of a device: op_summary.csv, in its columns.

What reads a device's profile reads this as well, `ascendsim validate --msprof` among it. Columns that only a
device can fill (hit rates, frequencies, instruction caches) are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from ascendsim.files import csv_text
from ascendsim.program.places import bare, core_of
from ascendsim.timing.timeline import CoreTimeline, issue_cycles

if TYPE_CHECKING:
    from ascendsim.ops.results import KernelResult
    from ascendsim.profile import Profile
    from ascendsim.program.kernel import Core
    from ascendsim.program.places import GmTensor

Shape = tuple[int, ...]
Cells = dict[str, Any]

# What msprof calls a pipe, by the kind of its core.
_UNITS = {
    "cube": {"M": "mac", "S": "scalar", "MTE1": "mte1", "MTE2": "mte2", "FIX": "fixpipe"},
    "vector": {"V": "vec", "S": "scalar", "MTE2": "mte2", "MTE3": "mte3"},
}
# A core that has both units has these, too.
_UNIFIED = {"V": "vec", "MTE3": "mte3"}
_PREFIX = {"cube": "aic", "vector": "aiv"}
_DTYPES = {"float16": "FLOAT16", "bfloat16": "DT_BF16", "float32": "FLOAT"}
# Whose shape a tensor has: that of the problem's tensor which it is, or is the gradient of.
_OF = {"grad_input": "input", "grad_weight": "weight"}
# In which order the operators take their inputs.
_ORDER = ("input", "weight", "grad_output")


class Listed(NamedTuple):
    """A line of the file, without its number and start, and the microseconds that it takes."""

    cells: Cells
    time_us: float


def op_summary(kernels: Sequence[KernelResult], profile: Profile, shapes: Mapping[str, Shape]) -> str:
    """Return op_summary.csv of the kernels of a call: a line each, in the order in which they run.

    shapes   of "input", "weight" and "grad_output", as the call was given them: NCHW, NCDHW or NCL
    """
    return summary_text(listed(kernels, profile, shapes))


def listed(
    kernels: Sequence[KernelResult], profile: Profile, shapes: Mapping[str, Shape], prefix: str = ""
) -> list[Listed]:
    """Return a line for each kernel of a call; their names begin with a prefix, such as that of a layer."""
    # Even where the product's kernels read rows, ours count them in blocks.
    tell = partial(
        _told, blocked=profile.generation.changes_layouts, shapes=shapes, c0=_channels_of_a_group(kernels)
    )
    rows = [(_row(kernel, profile, tell), kernel.time_us) for kernel in kernels]
    return [Listed(cells | {"Op Name": prefix + cells["Op Name"]}, us) for cells, us in rows]


def summary_text(lines: Sequence[Listed]) -> str:
    """Return op_summary.csv of lines: kernels that run one after the other."""
    rows, begin = [], 0.0
    for number, (cells, time_us) in enumerate(lines):
        rows.append({"Task ID": number, "Task Start Time(us)": f"{begin:.3f}"} | cells)
        begin += time_us
    names = list(dict.fromkeys([name for row in rows for name in row]))
    return csv_text(names, rows, missing="N/A")


def _row(kernel: KernelResult, profile: Profile, tell: Callable[..., list[tuple[str, str, str]]]) -> Cells:
    tensors = [tensor for tensor in kernel.kernel.tensors.values() if tensor.role != "workspace"]
    inputs = sorted((t for t in tensors if t.role == "input"), key=_place)
    outputs = [tensor for tensor in tensors if tensor.role == "output"]
    told = [tell(side) for side in (inputs, outputs)]
    float32 = "float32" in {tensor.dtype for tensor in inputs}
    return {
        "Op Name": kernel.name,
        "OP Type": kernel.kernel.op_type or "N/A",
        "Task Type": _task_type(kernel, profile),
        "Task Duration(us)": f"{kernel.time_us:.3f}",
        "Task Wait Time(us)": "0",
        "Block Dim": kernel.kernel.blocks,
        "HF32 Eligible": "YES" if float32 and kernel.kernel.compute_dtype == "hf32" else "NO",
        **{
            f"{side} {what}": ";".join(part[at] for part in parts)
            for side, parts in zip(("Input", "Output"), told, strict=True)
            for at, what in enumerate(("Shapes", "Data Types", "Formats"))
        },
        **dict(_counters(kernel, profile)),
    }


def _task_type(kernel: KernelResult, profile: Profile) -> str:
    kinds = {core.kind for phase in kernel.times.phases for work in phase.cores for core in work.cores}
    if profile.core_structure == "unified":
        return "AI_CORE"
    return "MIX_AIC" if len(kinds) > 1 else "AI_VECTOR_CORE" if kinds == {"vector"} else "AI_CORE"


def _counters(kernel: KernelResult, profile: Profile) -> Iterator[tuple[str, str]]:
    """Yield how long each kind of core ran, and its pipes were at work: means over its cores with work."""
    mhz, total_us = profile.clock.cube_mhz, kernel.cycles / profile.clock.cube_mhz
    active, cores = _active(kernel)
    for kind, units in _UNITS.items():
        prefix, count = _PREFIX[kind], len(cores[kind])
        yield ("aicore_time(us)" if kind == "cube" else "aiv_time(us)"), f"{total_us if count else 0:.3f}"
        yield f"{prefix}_total_cycles", str(kernel.cycles * count)
        unified = kind == "cube" and profile.core_structure == "unified"
        for pipe, unit in (units | (_UNIFIED if unified else {})).items():
            mean = active[kind].get(pipe, 0) / max(count, 1)
            yield f"{prefix}_{unit}_time(us)", f"{mean / mhz:.3f}"
            yield f"{prefix}_{unit}_ratio", f"{mean / max(kernel.cycles, 1):.3f}"


def _active(kernel: KernelResult) -> tuple[dict[str, dict[str, int]], dict[str, set[Core]]]:
    """Return by kind of core the cycles in which pipes were at work, summed over cores, and the cores.

    As a profiler counts: an instruction is under way until its result is visible. A scalar unit is at work at
    the entry of the kernel, and while it issues.
    """
    active: dict[str, dict[str, int]] = {kind: {} for kind in _UNITS}
    cores: dict[str, set[Core]] = {kind: set() for kind in _UNITS}
    for phase in kernel.timeline.phases:
        for work in phase.cores:
            each = issue_cycles(work, phase.begin)
            for number, size in enumerate(work.program.sizes):
                one = work.cores[0].beside(number)
                cores[one.kind].update(core.beside(number) for core in work.cores)
                for pipe, cycles in (_under_way(work, number) | {"S": size * each}).items():
                    known = active[one.kind].get(pipe, 0)
                    active[one.kind][pipe] = known + cycles * len(work.cores)
    for kind, used in cores.items():
        if used:
            active[kind]["S"] += kernel.timeline.entry_cycles * len(used)
    return active, cores


def _under_way(work: CoreTimeline, number: int) -> dict[str, int]:
    """Return in how many cycles each pipe of one core of a program had something under way."""
    cycles: dict[str, int] = {}
    until: dict[str, int] = {}
    # The spans of a pipe are in the order of their starts, so that one pass finds what was not covered yet.
    for name, start, done in zip(work.program.pipes, work.start, work.done, strict=True):
        if core_of(name) == number:
            pipe = bare(name)
            begin = max(start, until.get(pipe, start))
            cycles[pipe] = cycles.get(pipe, 0) + max(done - begin, 0)
            until[pipe] = max(done, begin)
    return cycles


def _place(tensor: GmTensor) -> int:
    name = _base(tensor)
    return _ORDER.index(name) if name in _ORDER else len(_ORDER)


def _base(tensor: GmTensor) -> str:
    """Return the name that a tensor has in the call, without the ending that says how it is stored."""
    return tensor.name.split()[0]


def _told(
    tensors: Sequence[GmTensor], blocked: bool, shapes: Mapping[str, Shape], c0: int
) -> list[tuple[str, str, str]]:
    """Return shape, type and format of each tensor, in msprof's words."""
    made = []
    for tensor in tensors:
        whole = shapes.get(_OF.get(_base(tensor), _base(tensor)))
        shape, layout = _stored(tensor, whole, blocked and tensor.layout != "ND", c0)
        made.append((",".join(map(str, shape)), _DTYPES.get(tensor.dtype, tensor.dtype.upper()), layout))
    return made


def _stored(tensor: GmTensor, whole: Shape | None, blocked: bool, c0: int) -> tuple[Shape, str]:
    """Return the shape and the format of a tensor as a device has them.

    A kernel of ours sees a tensor in the shape that its loops need, which folds axes.
    """
    if whole is None or len(whole) < 4:
        return tensor.shape if whole is None else whole, "ND"
    if not blocked:
        return whole, "NCHW" if len(whole) == 4 else "NCDHW"
    first, channels, *sizes = whole
    groups, depth = -(-channels // c0), sizes[:-2]
    if tensor.layout == "NDC1HWC0":
        return (first, *depth, groups, *sizes[-2:], c0), "NDC1HWC0" if depth else "NC1HWC0"
    shape = groups * prod(sizes), -(-first // 16), 16, c0
    return shape, "FRACTAL_Z_3D" if depth else "FRACTAL_Z"


def _channels_of_a_group(kernels: Sequence[KernelResult]) -> int:
    """Return C0, which all blocked tensors of a call have in common."""
    tensors = [tensor for kernel in kernels for tensor in kernel.kernel.tensors.values()]
    return next((tensor.shape[-1] for tensor in tensors if tensor.layout == "NDC1HWC0"), 16)
