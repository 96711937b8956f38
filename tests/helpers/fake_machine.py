"""A machine small enough to reckon by hand: instructions that only cost, and a profile with round figures."""

from dataclasses import dataclass, field, replace
from types import SimpleNamespace

from ascendsim.profile.memory import LinkFigures
from ascendsim.program.instruction import Cost, Derived, Traffic
from ascendsim.program.kernel import Core, CoreWork, Kernel, Phase
from ascendsim.program.places import Gm, GmTensor, Slot
from ascendsim.program.program import Program, ProgramBuilder

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
