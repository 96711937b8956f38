"""Kernels, points and documents made by hand, how a page shows them, and when two objects are alike."""

import array
import os
import shutil
import subprocess
import time
from dataclasses import fields, is_dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType

import numpy as np
import pytest

from ascendsim import ConvProblem, estimate, load_profile
from ascendsim.numerics.metrics import error_metrics
from ascendsim.ops.graph_times import summarise
from ascendsim.ops.results import ConvolutionBackwardResult, Retimed
from ascendsim.ops.running import KeptProgram
from ascendsim.profile import parse_changes
from ascendsim.program.kernel import Deferred
from ascendsim.program.places import GmTensor, Slot
from ascendsim.program.program import Program
from ascendsim.report.document import CallReport
from ascendsim.studies.engine.measure import PointAnswer, measure
from ascendsim.studies.engine.point import StudyPoint
from ascendsim.studies.engine.run import Budget, Engine, Store
from ascendsim.studies.hardware.gains import study_hardware
from ascendsim.studies.hardware.records import Question, StudiedLayer
from ascendsim.studies.records import FigureEffect, Interval, JudgedGradient
from ascendsim.timing.kernel import time_kernel
from ascendsim.timing.timeline import times_of
from tests.helpers.toy_machines import Fake, FakeProfile, kernel, program

# --- A kernel small enough to reckon by hand, as the reports see it. -----------------------------------

# A call says what its kernels note.
NOTES = ("nothing is real", "one core in two")


def summarised(one, profile, machine):
    """The result of a kernel that was timed on one machine and is reported as on another."""
    timed = Retimed(partial(time_kernel, one, machine))
    return summarise(one, profile, times_of(timed.timeline), timed, "simpy")


def timed_kernel(profile):
    """Two equal cube cores: MTE2 takes 30 cycles, then M 50 cycles while MTE2 does 20 more: 80 cycles."""
    core = program(Fake("MTE2", 30), (Fake("M", 50), (0,)), Fake("MTE2", 20))
    one = kernel([("same", core), ("same", core)])
    one = replace(one, name="grad_weight", macs=1000, compute_dtype="float16", note="one core in two")
    return summarised(one, profile, FakeProfile())


def entered_kernel(profile):
    """An entry of 20 cycles, then on both cores MTE2 for 30 and M for 50; each takes one to be issued."""
    core = program(Fake("MTE2", 30), (Fake("M", 50), (0,)))
    one = replace(kernel([("same", core), ("same", core)]), compute_dtype="float16")
    return summarised(one, profile, FakeProfile(start_cycles=20, issue_cycles=1))


def judged_gradient(gradient, exact):
    """A gradient with the errors that it has against exact values; nobody has computed it."""
    errors = error_metrics(gradient, np.array(exact, np.float64), str(gradient.dtype))
    return JudgedGradient("grad_weight", gradient.shape, str(gradient.dtype), "0123456789abcdef", errors)


def timed_run(profile):
    """A call of twice the same kernel, with a note, and one gradient that is wrong in one element of four."""
    timed = timed_kernel(profile)
    gradient = np.array([[1, 2], [3, 4.5]], np.float16)
    result = ConvolutionBackwardResult(
        *("toy", "toy_split", "float16", "block:16:RNE", (timed, timed), NOTES),
        *(None, gradient, None, "program"),
    )
    return CallReport(result, profile, (judged_gradient(gradient, [[1, 2], [3, 4]]),))


def made_up_interval():
    """An interval about 4.16 us in which one figure of two does almost everything."""
    effects = (
        FigureEffect("paths.GM_L1.bytes_per_cycle", 64, 32, 128, 4.16, 5.16, 3.66),
        FigureEffect("sync.flag_cycles", 10, 0, 10, 4.16, 4.06, 4.16),
    )
    return Interval(3, 4.16, 3.56, 5.16, 120, 210, effects)


# -------------------------------------------------------------------------------------------------------
# Entries of documents made by hand, as no run would give them: edge cases for tables, pages and words.
# -------------------------------------------------------------------------------------------------------

COPIES = {"al1_buffers": 2, "bl1_buffers": 1, "al0_buffers": 2, "bl0_buffers": 2, "cl0_buffers": 1}
BASE = {"base_m": 128, "base_n": 64, "base_k": 32, "step_ka": 2, "step_kb": 4, "used_cores": 2}
PLAN = {"schedule": "dgrad", **BASE, **COPIES, "chosen_by": "search"}
KERNEL = {
    "name": "grad_input",
    "cycles": 1000,
    "time_us": 3.0,
    "launch_us": 1.0,
    "entry_us": 0.5,
    "entry_cycles": 250,
    "core_us": 1.5,
    "blocks": 2,
    "cores_used": 2,
    "cubes_used": 2,
    "cube_utilisation": 0.5,
    "busy": {"S": 0.001, "MTE2": 0.25, "M": 0.5},
    "op_type": "Conv2DBackpropInput",
    "engine": "compiled",
    "bound_by": "M",
    "occupation": {
        "M": {"entry": 0.25, "busy": 0.5, "waiting": {"MTE2": 0.25}, "idle": 0.0},
        "MTE2": {"entry": 0.25, "busy": 0.25, "waiting": {}, "idle": 0.5},
    },
    "critical_path": {"M": 500, "entry": 250, "MTE2": 250, "flag": 0},
    "macs": 4096,
    "bytes": {"l2_read": 2048, "l2_write": 100, "memory": 0},
    "note": "",
    "plan": PLAN,
}
CAST = KERNEL | {
    "name": "cast",
    "op_type": "Cast",
    "plan": None,
    "macs": 0,
    "cubes_used": 0,
    "cube_utilisation": 0.0,
    "busy": {"V": 1.0},
    "bound_by": "V",
}
VERDICTS = [
    {"standard": "st", "passed": True, "rule": "R"},
    {"standard": "mixed", "passed": False, "rule": "S"},
]
GRADIENT = {
    "name": "grad_weight",
    "shape": [2, 2],
    "stored": "float16",
    "sha256": "0123456789abcdef",
    "mere": 1.5e-4,
    "mare": 0.25,
    "share_above_1e3": 0.125,
    "max_ulp": 2.0,
    "equal_bits_share": 1.0,
    "verdicts": VERDICTS,
}
PRODUCT = {
    "product": "toy",
    "variant": "toy1",
    "core_structure": "split",
    "cores": {"cube": 2, "vector": 4},
    "cube_mhz": 1000,
    "evidence": "",
    "figures": {"measured": 3, "assumed": 1},
    "assumed_figures": {
        "sync.flag_cycles": {"value": 10, "range": [0, 20], "source": "a | guess", "confidence": "assumed"}
    },
    "compute_dtype": "float16",
    "accumulation": "block:16:RNE",
    "order": None,
    "cycles": 1000,
    "time_us": 3.0,
    "launch_us": 1.0,
    "entry_us": 0.5,
    "core_us": 1.5,
    "kernels": [KERNEL],
    "interval": None,
    "gradients": [],
    "notes": [],
}
LAYERS = [
    {"name": "a", "count": 3, "time_us": 3.0, "total_us": 9.0, "share": 0.75, "kernels": [KERNEL, CAST]},
    {"name": "b", "count": 1, "time_us": 3.0, "total_us": 3.0, "share": 0.25, "kernels": [KERNEL]},
]
NETWORK = {key: value for key, value in PRODUCT.items() if key not in ("kernels", "gradients", "interval")}
NETWORK |= {"layers": LAYERS, "time_us": 12.0}


def document(*products, title="a test", **more):
    """A document of these products; columns are defined where a test needs them."""
    head = {"schema": "test 1", "ascendsim": "0", "command": ["run", "x"], "title": title}
    return head | {"problem": {"input": (1, 2)}, "products": list(products), "definitions": {}} | more


# --- A page as a browser without a window shows it. ----------------------------------------------------

needs_chromium = pytest.mark.skipif(
    not shutil.which("chromium"), reason="no chromium: pages are not opened in a browser"
)


def opened(text, folder):
    """Return the page as it stands after its scripts have run, and what the browser's log says.

    text     HTML
    folder   an empty one, for the page and for what the browser keeps
    """
    path = folder / "page.html"
    path.write_text(text)
    words = [
        "chromium",
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--dump-dom",
        "--enable-logging=stderr",
    ]
    done = subprocess.run(
        [*words, f"--user-data-dir={folder / 'profile'}", path.as_uri()],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return done.stdout, done.stderr


# --- Points and functions of the tests of studies, which other processes import from here. -------------

SMALL = ConvProblem((1, 16, 6, 6), (32, 16, 3, 3), padding=1)
HUGE = 1 << 40


def points(count=6, **options):
    """Calls that all differ in one figure."""
    return [
        StudyPoint(SMALL, "910B2", {"scalar.issue_cycles": 1 + at}, label=f"point {at}", **options)
        for at in range(count)
    ]


def counted(point):
    """Answer at once, and write down that it was asked; by whom, too."""
    with Path(os.environ["STUDY_LOG"]).open("a") as log:
        log.write(f"{point.label}\n")
    time.sleep(0.01)
    return PointAnswer(
        f'{{"records": [{{"cycles": {point.changes["scalar.issue_cycles"]}, "time_us": 0.5}}]}}'
    )


def placed(_):
    """Answer with the process that was asked in place of cycles."""
    return PointAnswer(f'{{"records": [{{"cycles": {os.getpid()}, "time_us": 0.5}}]}}')


def measured(point):
    """The true answer, and a line in the same log."""
    with Path(os.environ["STUDY_LOG"]).open("a") as log:
        log.write(f"{point.label}\n")
    return measure(point)


# --- Layers and questions of the study of changes, and its answer to one of them, for all tests of it. -

# A layer whose tensors pass L2 once: with nothing in it, memory decides.
STREAM = ConvProblem((8, 64, 28, 28), (64, 64, 1, 1))
# Matrix products: of these, what no kernel before has written is read as it lies, from memory.
DENSE = ConvProblem((256, 2048, 1, 1), (4096, 2048, 1, 1))
BOTH = (True, True, False)
CORES = "cores.cube=x2"
MEMORY = "links.memory.nominal_tb_per_s=x1.5"
L0C = "buffers.L0C.capacity_bytes=x0.25"


STUDIED_LAYERS = (StudiedLayer("stream", STREAM, BOTH),)
SMALL_LAYERS = (StudiedLayer("small", SMALL, BOTH),)


def question(*changes, layers=STUDIED_LAYERS, **options):
    parsed = tuple(change for text in changes for change in parse_changes(text))
    return Question("a test", "910B2", layers, parsed, **({"doubt": False} | options))


def answered(asked, store=None):
    answer, _ = study_hardware(asked, Engine(store or Store(), 1), Budget())
    return answer


def time_us(changes, start, tiling="product", problem=STREAM, mask=BOTH):
    profile = load_profile("910B2", overrides=changes)
    return estimate(problem, product=profile, output_mask=mask, l2_start=start, tiling=tiling)


# --- Two objects are alike if nobody could tell them apart but by their addresses. ---------------------
# Many of ours are compared by identity (kernels, tensors in GM, slots, profiles), so that `==` says little
# of what comes out of a pickle. Here both are walked side by side: types, values, and for slots and tensors
# that one object on the left is always the same one on the right.

PLAIN = (int, float, str, bytes, Fraction, Path, type(None), range, slice, np.dtype)
CODE = (type, FunctionType, BuiltinFunctionType)


def assert_alike(one, other):
    """Fail with the place of the first difference."""
    partner, seen = {}, {}
    queue = [("it", one, other)]
    while queue:
        where, a, b = queue.pop()
        # A nest is made of functions, so that what comes back is its instructions.
        assert type(a) is type(b) or (isinstance(a, Program) and isinstance(b, Program)), where
        if isinstance(a, PLAIN):
            assert a == b, (where, a, b)
            continue
        if isinstance(a, CODE):
            assert a is b, where
            continue
        if isinstance(a, Slot | GmTensor):
            assert partner.setdefault(id(a), id(b)) == id(b), f"{where}: {a} has become two"
            assert partner.setdefault(("back", id(b)), id(a)) == id(a), f"{where}: two have become {b}"
        if (id(a), id(b)) in seen:
            continue
        seen[id(a), id(b)] = a, b  # kept, so that no address is used again
        parts, others = dict(parts_of(a)), dict(parts_of(b))
        assert list(parts) == list(others), where
        queue += [(f"{where}.{name}", part, others[name]) for name, part in parts.items()]


def parts_of(value):
    """Yield (name, part) of all that makes a value what it is; what it works out when asked, too."""
    if isinstance(value, Retimed):
        yield "timeline", value.timeline
    elif isinstance(value, KeptProgram):
        # Whether the program has been written by now is no part of it.
        yield "build", value._build
    elif isinstance(value, np.ndarray):
        yield from (("dtype", value.dtype), ("shape", value.shape), ("bytes", value.tobytes()))
    elif isinstance(value, bytearray):
        yield "bytes", bytes(value)
    elif isinstance(value, frozenset | set):
        yield "items", tuple(sorted(value))
    elif isinstance(value, list | tuple | array.array | Deferred):
        yield from ((str(index), part) for index, part in enumerate(value))
    elif isinstance(value, dict):
        # By number: a key may be compared by identity. Their order counts, since reports follow it.
        yield from ((f"key {index}", key) for index, key in enumerate(value))
        yield from ((f"value {index}", part) for index, part in enumerate(value.values()))
    elif isinstance(value, partial):
        yield from (("func", value.func), ("args", value.args), ("keywords", value.keywords))
    elif isinstance(value, MethodType):
        yield from (("of", value.__self__), ("function", value.__func__))
    elif isinstance(value, Program):
        # Without what it has worked out already because somebody asked.
        names = ("slots", "buffer_bytes", "hazards", "instructions", "posts")
        waits = ("done_back", "end_back", "trail_back")
        yield from ((name, getattr(value, name)) for name in (*names, *waits))
    elif is_dataclass(value):
        names = [field.name for field in fields(value)]
        yield from ((name, getattr(value, name)) for name in names)
    else:
        names = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
        names += list(getattr(value, "__dict__", ()))
        assert names, f"how is a {type(value).__name__} taken apart?"
        yield from ((name, getattr(value, name)) for name in names)
