"""Machines, products and kernels small enough to reckon by hand."""

from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import numpy as np
import pytest

from ascendsim.errors import ConfigError
from ascendsim.numerics.accumulation import AccumulationModel, MathSettings
from ascendsim.ops.plan import Plan, Tiling
from ascendsim.ops.results import KernelResult, Retimed
from ascendsim.profile import Figure, Profile, list_products, load_profile, profile_from_tree
from ascendsim.profile.memory import Cores, LinkFigures
from ascendsim.program.instruction import Cost, Traffic
from ascendsim.program.kernel import Core, CoreWork, Kernel, Phase
from ascendsim.program.places import CoreMemory, Gm, GmTensor, Slot
from ascendsim.program.program import Program, ProgramBuilder
from ascendsim.program.waits import Derived
from ascendsim.studies.sweep import Sweep
from ascendsim.timing.timeline import CoreTimeline, PhaseTimeline, Timeline, times_of

# --- Tiny products with round figures, for tests: edge cases stay small enough to count by hand. -------
# `toy_split()` has 2 cube cores with 2 vector cores each and Fixpipe to GM; `toy_unified()` has 2 cores
# where results leave through L0C->UB->GM. Any figure can be changed: `toy_split(cube__mmad_head_cycles=0)`
# or `toy_split(**{"paths.GM_L1.bytes_per_cycle": 64})`; a whole path goes with `without=("L0C_L1",)`.

KIB = 1024
BUFFERS = {
    "L1": (8 * KIB, 32),
    "L0A": (2 * KIB, 512),
    "L0B": (2 * KIB, 512),
    "L0C": (4 * KIB, 64),
    "UB": (4 * KIB, 32),
}
# k0 and k per cycle
RATES = {"float16": (16, 16), "bfloat16": (16, 16), "float32": (8, 4), "hf32": (8, 8), "int8": (32, 32)}
FAST_STRIDES = [1, 2, 4, 8]
# pipe, bytes per cycle, head, latency
SPLIT_PATHS = {
    "GM_L1": ("MTE2", 64, 4, 100),
    "GM_UB": ("MTE2", 64, 4, 100),
    "UB_GM": ("MTE3", 64, 4, 50),
    "L1_L0A": ("MTE1", 256, 2, 10),
    "L1_L0B": ("MTE1", 128, 2, 10),
    "L0C_GM": ("FIX", 64, 8, 40),
    "L0C_L1": ("FIX", 64, 8, 10),
}
UNIFIED_PATHS = {name: SPLIT_PATHS[name] for name in ("GM_L1", "GM_UB", "UB_GM", "L1_L0A", "L1_L0B")} | {
    "L0C_UB": ("V", 128, 8, 10),
    "L1_UB": ("MTE1", 64, 4, 10),
    "UB_L1": ("MTE3", 64, 4, 10),
}


def toy_split(*, without=(), **changes) -> Profile:
    """Make the toy product with split cores."""
    paths = {name: path for name, path in SPLIT_PATHS.items() if name not in without}
    tree = _common(paths) | {
        "core_structure": "split",
        "npu_arch": "toy-split",
        "cores": {"cube": 2, "vector": 4},
        "queues": {
            "cube": {"M": 4, "MTE1": 4, "MTE2": 4, "MTE3": 4, "FIX": 4},
            "vector": {"V": 4, "MTE2": 4, "MTE3": 4},
        },
        "fixpipe": {},
    }
    return _make(tree, "toy_split", changes)


def toy_unified(*, without=(), **changes) -> Profile:
    """Make the toy product with unified cores."""
    paths = {name: path for name, path in UNIFIED_PATHS.items() if name not in without}
    tree = _common(paths) | {
        "core_structure": "unified",
        "npu_arch": "toy-unified",
        "cores": {"cube": 2, "vector": 0},
        "queues": {"cube": {"M": 4, "V": 4, "MTE1": 4, "MTE2": 4, "MTE3": 4}},
    }
    return _make(tree, "toy_unified", changes)


def _common(paths: dict) -> dict:
    names = ("pipe", "bytes_per_cycle", "head_cycles", "latency_cycles")
    return {
        "clock": {"cube_mhz": 1000, "vector_mhz": 1000},
        "buffers": {
            b: {"capacity_bytes": size, "alignment_bytes": unit} for b, (size, unit) in BUFFERS.items()
        },
        "cube": {
            "m0": 16,
            "n0": 16,
            "rates": {dtype: {"k0": k0, "block_k": block_k} for dtype, (k0, block_k) in RATES.items()},
            "mmad_head_cycles": 2,
            "mmad_latency_cycles": 20,
            "same_l0c_spacing_cycles": 10,
            "hf32_mantissa_bits": 11,
        },
        "paths": {name: dict(zip(names, path, strict=True)) for name, path in paths.items()},
        "load2d": {"head_cycles": 2, "least_cycles": 0, "issue_cycles": 0},
        "load3d": {"L0A": _load3d(extra=0), "L0B": _load3d(extra=2)},
        # 128, 128 and 64 bytes a cycle for the chip: 0.128 TB/s at 1000 MHz is 128 bytes a cycle
        "links": {"l2_read": _link(0.128), "l2_write": _link(0.128), "memory": _link(0.064, latency=200)},
        "l2": {"capacity_bytes": 1024 * KIB, "line_bytes": 512, "sector_bytes": 128},
        "vector": {
            "bytes_per_cycle": 256,
            "head_cycles": 2,
            "latency_cycles": 10,
            "least_cycles": 0,
            "repeat_cycles": {
                "unary": 1,
                "binary": 2,
                "multiply_add": 4,
                "cast": 1,
                "divide": 4,
                "exp": 4,
                "transpose": 1,
                "reduce_add_16bit": 7,
                "reduce_add_32bit": 3,
            },
        },
        "sync": {"flag_cycles": 10, "barrier_us": 1.0},
        "scalar": {"issue_cycles": 1, "start_us": 0.0},
        "launch": {"base_us": 1.0, "per_core_us": 0.5},
        "accumulation": {
            "float16": "block:16:RNE",
            "bfloat16": "block:16:RNE",
            "float32": "block:4:RNE",
            "hf32": "block:8:RNE",
        },
        "deterministic_default": False,
    }


def _load3d(*, extra: int) -> dict:
    return {
        "fractal_bytes": 512,
        "cycles_per_stride": 2,
        "cycles_per_row": 1,
        "most_cycles": 16,
        "extra_cycles": extra,
        "fast_strides": FAST_STRIDES,
        "command_cycles": 0,
        "command_covers": "matrix",
    }


def _link(tb_per_s: float, latency: int = 0) -> dict:
    return {
        "nominal_tb_per_s": tb_per_s,
        "efficiency": 1.0,
        "per_core_bytes_per_cycle": 64,
        "per_vector_core_bytes_per_cycle": 32,
        "latency_cycles": latency,
    }


def _make(tree: dict, name: str, changes: dict) -> Profile:
    for path, value in changes.items():
        *groups, last = path.replace("__", ".").split(".")
        below = tree
        for group in groups:
            below = below[group]
        below[last] = value  # the reader of profiles refuses a figure that no profile has
    # An AI core of split products is one cube core with two vector cores.
    if tree["core_structure"] == "split" and "cores.cube" in changes and "cores.vector" not in changes:
        tree["cores"]["vector"] = 2 * tree["cores"]["cube"]
    return profile_from_tree(_as_figures(tree), name)


def _as_figures(tree):
    if isinstance(tree, dict):
        return {key: _as_figures(entry) for key, entry in tree.items()}
    return {"value": tree, "source": "toy figure", "confidence": "derived"}


# -------------------------------------------------------------------------------------------------------
# A machine small enough to reckon by hand: instructions that only cost, and a profile with round figures.
# -------------------------------------------------------------------------------------------------------

X = GmTensor("x", (1 << 20,), "float16", 2)
Y = GmTensor("y", (1 << 20,), "float16", 2, role="output")


@dataclass(frozen=True)
class Fake:
    """An instruction with the cost it is given; the tuple of costs is its shape."""

    pipe: str
    cycles: int = 0
    latency: int = 0
    kind: str = ""
    bytes: int = 0
    peak: object = 1000
    tensor: GmTensor = X
    drains: bool = False
    reads: tuple = ()
    writes: tuple = ()
    least: int = 0
    place: object = None  # which tile of the tensor it moves: the whole of it, or a number
    trails: bool = False
    piece: int = 0
    lead: int = 0

    @property
    def shape(self):
        moved = (self.kind, self.bytes, self.peak, self.tensor)
        trailing = (self.trails, self.piece, self.lead)
        return (self.cycles, self.latency, *moved, self.drains, self.least, *trailing)

    @property
    def gm(self):
        return None if self.place is None else Gm(self.tensor, (self.place,))

    def execute(self, memory):
        raise NotImplementedError

    def cost(self, profile):
        del profile
        traffic = Traffic(self.tensor, self.kind, self.bytes, self.peak) if self.kind else None
        return Cost(self.cycles, self.latency, traffic, self.least, 0, self.piece, self.lead)


@dataclass(frozen=True)
class FakeProfile:
    """What timing reads of a profile. Every figure is 0 or does not bind unless a test says so."""

    start_cycles: int = 0
    issue_cycles: int = 0
    flag_cycles: int = 0
    barrier_cycles: int = 0
    depth: int = 1000
    depths: dict = field(default_factory=dict)
    read: tuple = (10**6, 10**6)  # total, per core
    write: tuple = (10**6, 10**6)
    memory: tuple = (10**6, 10**6)
    l2_bytes: int = 1 << 40
    most_fetches: int = 1
    vector_cap: int = 10**6
    vector_total: int = 10**6
    vector_pair: int = 0
    shared_efficiency: float = 1.0
    operands_handed: bool = False
    latency: tuple = (0, 0, 0)  # l2_read, l2_write, memory
    variant: str = "fake"
    cores: Cores = field(default_factory=lambda: Cores(1000, 2000))

    def but(self, **figures):
        return replace(self, **figures)

    @property
    def scalar(self):
        return SimpleNamespace(issue_cycles=self.issue_cycles, start_cycles=self.start_cycles)

    @property
    def sync(self):
        return SimpleNamespace(flag_cycles=self.flag_cycles, barrier_cycles=self.barrier_cycles)

    @property
    def queues(self):
        return {pipe: self.depths.get(pipe, self.depth) for pipe in ("M", "MTE1", "MTE2", "MTE3", "FIX", "V")}

    @property
    def vector_queues(self):
        return {pipe: self.queues[pipe] for pipe in ("V", "MTE2", "MTE3")}

    @property
    def links(self):
        pairs = {"l2_read": self.read, "l2_write": self.write, "memory": self.memory}
        return {
            name: LinkFigures(
                nominal_tb_per_s=1.0,
                efficiency=1.0,
                total_bytes_per_cycle=total,
                vector_total_bytes_per_cycle=self.vector_total,
                per_core_bytes_per_cycle=per_core,
                per_vector_core_bytes_per_cycle=self.vector_cap,
                per_vector_pair_bytes_per_cycle=self.vector_pair,
                shared_efficiency=self.shared_efficiency,
                latency_cycles=latency,
            )
            for (name, (total, per_core)), latency in zip(pairs.items(), self.latency, strict=True)
        }

    @property
    def l2(self):
        return SimpleNamespace(
            capacity_bytes=self.l2_bytes,
            most_fetches=self.most_fetches,
            operands_handed=self.operands_handed,
        )

    @property
    def buffers(self):
        return {"L1": SimpleNamespace(capacity_bytes=1 << 30, alignment_bytes=32)}


def read(size, peak=10, **more):
    """Make an instruction that reads so many bytes."""
    return Fake("MTE2", kind="read", bytes=size, peak=peak, **more)


def program(*rows):
    """Make a program of rows (instruction, after_done, after_end, trailed), the last three being optional.

    Every wait gets a slot of its own, which only these two instructions use in such a way that the wait
    follows: so both engines derive it. What an earlier wait of the same pipe implies is dropped, as ever.
    """
    full = [(*row, (), (), ())[:4] if isinstance(row, tuple) else (row, (), (), ()) for row in rows]
    reads, writes = ([[] for _ in full] for _ in range(2))
    slots = list(dict.fromkeys(slot for row in full for slot in (*row[0].reads, *row[0].writes)))
    for index, (_, done, end, trailed) in enumerate(full):
        waits = [(other, kind) for kind, others in enumerate((done, end, trailed)) for other in others]
        for other, kind in waits:
            assert other < index, "a program of slots waits backwards only; see `circular`"
            slots.append(Slot("L1", 32, f"{index} after {other}", len(slots)))
            # Its result: read after write, but who trails reads what it trails, so there write after write.
            # Its end: write after read. Trailed: read after write.
            (reads if kind == 1 else writes)[other].append(slots[-1])
            (reads if kind == 2 or (kind == 0 and not trailed) else writes)[index].append(slots[-1])
    made = [
        replace(
            row[0],
            reads=(*row[0].reads, *reads[index]),
            writes=(*row[0].writes, *writes[index]),
            trails=row[0].trails or bool(row[3]),
        )
        for index, row in enumerate(full)
    ]
    return Program(made, tuple(slots), {})


def circular(*rows):
    """Make a program of rows (instruction, after_done) whose waits may go in a circle; for SimPy alone."""
    back = tuple(tuple(index - other for other in done) for index, (_, done) in enumerate(rows))
    waits = Derived(back, ((),) * len(rows), {})
    return Program([made for made, _ in rows], (), {}, waits=waits)


def with_instructions(prog, instructions):
    """Return the program with other instructions, which use the same slots."""
    return Program(instructions, prog.slots, prog.buffer_bytes, prog.hazards)


def built(instructions):
    """Let the real builder derive the waits."""
    builder = ProgramBuilder(FakeProfile())
    for instruction in instructions:
        builder.add(instruction)
    return builder.build()


def kernel(*phases, tensors=(X, Y)):
    """Make a kernel; a phase is a list of programs (one per core) or of (signature, program)."""
    made = []
    for number, programs in enumerate(phases):
        work = []
        for index, item in enumerate(programs):
            signature, prog = item if isinstance(item, tuple) else (index, item)
            work.append(CoreWork(Core("cube", index), signature, lambda prog=prog: prog))
        made.append(Phase(f"phase {number}", tuple(work)))
    return Kernel("fake", tuple(made), {tensor.name: tensor for tensor in tensors}, math=None)


def listed(core):
    """The timeline of a core with its cycles in lists, as tests write them."""
    return replace(core, **{name: list(getattr(core, name)) for name in ("issue", "start", "end", "done")})


# -------------------------------------------------------------------------------------------------------
# A kernel of two phases whose every cycle is written down, so that traces and plots are checked by eye.
# -------------------------------------------------------------------------------------------------------
# Two cube cores and one vector core. Entry: cycles 0 to 10. Phase "compute", cycles 10 to 60: core 0 copies
# (MTE2) and multiplies (M), core 1 copies twice. Phase "reduce", cycles 70 to 100: the vector core adds.

CUBE0, CUBE1, VECTOR0 = Core("cube", 0), Core("cube", 1), Core("vector", 0)


def core(cores, instructions, issue, start, end, done=None):
    """One core of a phase; results are visible when the pipe is free unless told otherwise."""
    return CoreTimeline(tuple(cores), program(*instructions), issue, start, end, done or end)


# M is issued in cycle 12, finds its pipe free, and waits until the copy is over in cycle 40.
COMPUTE = core([CUBE0], [Fake("MTE2", 30), (Fake("M", 20), (0,))], [10, 12], [10, 40], [40, 60])
COPIES = core([CUBE1], [Fake("MTE2", 20), Fake("MTE2", 25)], [10, 12], [10, 30], [30, 55])
REDUCE = core([VECTOR0], [Fake("V", 30)], [70], [70], [100])
PHASES = (
    PhaseTimeline("compute", 10, 60, (COMPUTE, COPIES)),
    PhaseTimeline("reduce", 70, 100, (REDUCE,)),
)


def hand_kernel(phases=PHASES, cycles=100, name="grad_weight", time_us=1.1):
    """The kernel; at 1000 MHz its 100 cycles are 0.1 us, so that its launch takes 1 us."""
    timeline = Timeline(name, cycles, tuple(phases), {"l2_read": 64})
    return KernelResult(
        name=name,
        cycles=cycles,
        time_us=time_us,
        launch_us=time_us - cycles / 1000,
        cores_used=3,
        busy={"S": 10, "MTE2": 37.5, "M": 10, "V": 30},
        bound_by="MTE2",
        bytes={"l2_read": 64, "l2_write": 32, "memory": 0},
        macs=0,
        cube_utilisation=0.0,
        times=times_of(timeline),
        engine="simpy",
        kernel=Kernel(name, (), {}, math=None),
        timed=Retimed(None, timeline),
    )


# --- A product of a few figures, and a call that is a formula of them, for studies reckoned by hand. ---


PLAN = Plan("dgrad", Tiling(16, 16, 16), chosen_by="product", rule="a public one")


def made_up_call(monkeypatch, figures, time, sources=()):
    """Return a call for studies, and the overrides and plans that it was asked for.

    `figures` are (value, range) by name; `time` makes microseconds of their values. Cycles are tenths of a
    microsecond. The call has one cube kernel, whose plan is `PLAN`. Each figure has a source of its own,
    unless `sources` says otherwise.
    """
    known = {
        path: Figure(value, dict(sources).get(path, f"source of {path}"), "measured", ends)
        for path, (value, ends) in figures.items()
    }
    asked = []

    def load(_, overrides=None):
        values = {path: value for path, (value, _) in figures.items()} | (overrides or {})
        return SimpleNamespace(values=values, overrides=overrides, figures=known)

    def call(profile, plans):
        asked.append((profile.overrides, plans))
        time_us = time(**profile.values)
        return SimpleNamespace(
            time_us=time_us, cycles=round(10 * time_us), plans={"grad_input": PLAN}, kernels=()
        )

    for module in ("sweep", "uncertainty"):
        monkeypatch.setattr(f"ascendsim.studies.{module}.load_profile", load)
    return call, asked


def made_up_sweep(monkeypatch, figures, time):
    """Return the sweep about such a call."""
    return Sweep.of("toy", made_up_call(monkeypatch, figures, time)[0])


# --- The products that are shipped, and files of one's own beside them; for tests of the profile. ------

# What the plain name of a product means.
PLAIN = {"910B": "910B2", "910_93": "910_9382", "910_95": "950PR_9589", "310P": "310P3", "910": "910A"}
VARIANTS = [variant for product in list_products() for variant in product.variants]
EVERY = pytest.mark.parametrize("variant", VARIANTS)


def write(folder, text, name="mine.toml"):
    """Write a file of a product and return its path."""
    path = folder / name
    path.write_text(text)
    return path


def refusal(name, overrides=None):
    """The error of a product that is not loaded."""
    with pytest.raises(ConfigError) as caught:
        load_profile(name, overrides)
    return str(caught.value)


# --- The memory of a core with values in it, for tests of single instructions. -------------------------

MATH = MathSettings(AccumulationModel.parse("block:16:RNE"))


def memory(math=MATH, **gm):
    """The memory of a core beside these tensors in GM."""
    return CoreMemory(gm, math, {})


def put(mem, slot, values):
    """Fill a slot with a tile of these values."""
    values = np.asarray(values, np.float32)
    mem.new_tile(slot, values.shape)[...] = values


def counted(*shape):
    """Number the elements 1, 2, 3, ..."""
    return np.arange(1, np.prod(shape) + 1, dtype=np.float32).reshape(shape)
