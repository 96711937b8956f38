"""Slow definitions of what timing and traffic must give: longest paths, ticks, memory that is watched."""

from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, floor
from typing import NamedTuple

import numpy as np

from ascendsim.functional import run_kernel
from ascendsim.instructions.cube import Mmad
from ascendsim.instructions.movers import CopyGmToL1, CopyL0cToUb, FillL1, Fixpipe, LoadL0A
from ascendsim.instructions.relayout import CopyUbToL1
from ascendsim.instructions.vector import (
    Add,
    AddLanes,
    AddRows,
    Cast,
    CopyGmToUb,
    CopyUbToGm,
    Fill,
    SumLanes,
    SumPixels,
)
from ascendsim.numerics.dtypes import ELEMENTS, find
from ascendsim.program.places import CoreMemory, Gm
from ascendsim.program.program import Program
from ascendsim.timing.l2.phase import HIT
from tests.helpers.conv_cases import kernels_with_inputs

# -------------------------------------------------------------------------------------------------------
# Slow definitions of what timing must give: the longest path of a graph, and a machine that is ticked.
# -------------------------------------------------------------------------------------------------------

UNITS = 2**20  # in a byte


def up(size):
    return ceil(Fraction(size) * UNITS)


def down(rate):
    return max(1, floor(Fraction(rate) * UNITS))


def spans_of(core):
    """The four lists of a CoreTimeline, to compare with an oracle's."""
    return tuple(list(cycles) for cycles in (core.issue, core.start, core.end, core.done))


def unfolded_spans(timeline):
    """The same by phase and core, whatever core stood for it."""
    return {
        (phase.name, core): spans_of(work)
        for phase in timeline.phases
        for work in phase.cores
        for core in work.cores
    }


def links_of(instruction):
    """The link that an instruction's bytes take to or from L2, and how many."""
    if not instruction.kind or not instruction.bytes:
        return {}
    return {"l2_read" if instruction.kind == "read" else "l2_write": instruction.bytes}


def flows_of(instruction, outcome, profile):
    """All that an instruction's bytes have to do: (link, size, cap, peak, whether they cross the link)."""
    caps = {link: down(figures.per_core_bytes_per_cycle) for link, figures in profile.links.items()}
    flows = [
        (link, up(size), caps[link], down(instruction.peak), True)
        for link, size in links_of(instruction).items()
    ]
    if not flows:
        return flows
    fetched, pushed, readers, _ = outcome
    waits = [instruction.bytes * fetched * readers, instruction.bytes * pushed]
    flows += [("memory", up(size), caps["memory"], None, False) for size in waits if size]
    if fetched or pushed:
        flows.append(("memory", up(instruction.bytes * (fetched + pushed)), caps["memory"], None, True))
    return flows


def rates_of(flows, total):
    """Rates of the active flows of one link, each (core, weight, pipe, cap, peak, whether it crosses)."""
    pipes = {core: len({flow[2] for flow in flows if flow[0] == core}) for core, *_ in flows}
    limits = [min(cap // pipes[core], peak or cap) for core, _, _, cap, peak, _ in flows]
    crossing = [number for number, flow in enumerate(flows) if flow[5]]
    weights = {flows[number][0]: flows[number][1] for number in crossing}
    demands = {core: sum(limits[n] for n in crossing if flows[n][0] == core) for core in weights}
    parts = filled([(demands[core], weights[core], core) for core in demands], total)
    for core in demands:
        mine = filled([(limits[n], 1, n) for n in crossing if flows[n][0] == core], parts[core])
        for number, part in mine.items():
            limits[number] = part
    return [max(1, limit) for limit in limits]


def filled(demands, total):
    """What each of (demand, weight, name) gets of a total: the smallest is asked first whether it fits."""
    if sum(demand * weight for demand, weight, _ in demands) <= total:
        return {name: demand for demand, _, name in demands}
    left, weights, parts = total, sum(weight for _, weight, _ in demands), {}
    for demand, weight, name in sorted(demands, key=lambda item: item[0]):
        parts[name] = min(demand, left // weights)
        # Who gets less than asked for has what all that follow have.
        if parts[name] == demand:
            left -= demand * weight
            weights -= weight
    return parts


# --- the longest path --------------------------------------------------------------------------------------


def edges_of(program, profile, cores=1):
    """Edges (from, to, at least so many cycles later) between the events of one of equal cores.

    No two of its pipes may use one link.
    """
    step, flag = profile.scalar.issue_cycles, profile.sync.flag_cycles
    edges, last = [("begin", ("issue", 0), step)], {}
    for i, ins in enumerate(program.instructions):
        on_pipe = last.setdefault(ins.pipe, [])
        flows = [
            ceil(Fraction(size, min(cap, peak, down(profile.links[link].total_bytes_per_cycle) // cores)))
            for link, size, cap, peak, _ in flows_of(ins, HIT, profile)
        ]
        extra = max((profile.links[link].latency_cycles for link in links_of(ins)), default=0)
        if i:
            edges.append((("issue", i - 1), ("issue", i), step))
        if len(on_pipe) >= profile.queues[ins.pipe]:
            edges.append((("start", on_pipe[-profile.queues[ins.pipe]]), ("issue", i), 0))
        edges.append((("issue", i), ("start", i), 0))
        if on_pipe:
            edges.append((("end", on_pipe[-1]), ("start", i), 0))
            edges.append((("done", on_pipe[-1]), ("done", i), 0))
            if ins.drains:
                edges.append((("done", on_pipe[-1]), ("start", i), 0))
        edges += [(("done", j), ("start", i), flag) for j in program.after_done[i]]
        edges += [(("end", j), ("start", i), flag) for j in program.after_end[i]]
        # Work begins with the first piece of what is trailed, and ends a piece after its result is visible.
        edges.append((("start", i), ("begin", i), 0))
        edges += [(("start", j), ("begin", i), program.instructions[j].lead) for j in program.trailed(i)]
        edges.append((("begin", i), ("last", i), ins.cycles + max(flows, default=0)))
        edges += [(("done", j), ("last", i), ins.piece) for j in program.trailed(i)]
        edges.append((("begin", i), ("end", i), ins.least))
        edges.append((("last", i), ("end", i), 0))
        edges.append((("last", i), ("done", i), ins.latency + extra))
        edges.append((("end", i), ("done", i), 0))
        on_pipe.append(i)
    return edges


def longest_path(program, profile, cores=1):
    """Spans as the longest paths to every event: relax all edges until nothing changes."""
    edges = edges_of(program, profile, cores)
    time = {"begin": 0}
    changed = True
    while changed:
        changed = False
        for a, b, cycles in edges:
            if a in time and time.get(b, -1) < time[a] + cycles:
                time[b] = time[a] + cycles
                changed = True
    count = len(program.instructions)
    return tuple([time[what, i] for i in range(count)] for what in ("issue", "start", "end", "done"))


# --- a machine that is ticked ------------------------------------------------------------------------------


class TickedCore:
    """One core, looked at in every cycle; nothing of the future is known but when a result is visible."""

    def __init__(self, program, profile, outcomes):
        self.program, self.profile, self.outcomes = program, profile, outcomes
        count = len(program.instructions)
        self.issue, self.start, self.end, self.done = ([None] * count for _ in range(4))
        self.begin = [None] * count
        self.orders = {}
        for i, ins in enumerate(program.instructions):
            self.orders.setdefault(ins.pipe, []).append(i)
        # (instruction, number of the flow) -> the flow, its bytes that have not arrived, and which flow now.
        self.flows = {
            (i, number): flow
            for i, ins in enumerate(program.instructions)
            for number, flow in enumerate(flows_of(ins, outcomes.get(i, HIT), profile))
        }
        self.left = {place: flow[1] for place, flow in self.flows.items()}
        self.flowing = set()

    def look(self, now):
        """Do one thing that can be done in this cycle; tell whether there was one."""
        return self._issue(now) or any(self._pipe(order, now) for order in self.orders.values())

    def _issue(self, now):
        if None not in self.issue:
            return False
        i = self.issue.index(None)
        order = self.orders[self.program.instructions[i].pipe]
        ahead = order.index(i) - self.profile.queues[self.program.instructions[i].pipe]
        if ahead >= 0 and self.start[order[ahead]] is None:
            return False
        if now < (self.issue[i - 1] if i else 0) + self.profile.scalar.issue_cycles:
            return False
        self.issue[i] = now
        return True

    def _pipe(self, order, now):
        i = next((i for i in order if self.end[i] is None), None)
        if i is None:
            return False
        if self.start[i] is None:
            if self._may_start(i, order, now):
                self.start[i] = now
                return True
            return False
        ins = self.program.instructions[i]
        trailed = self.program.trailed(i)
        if self.begin[i] is None:
            leads = [self.program.instructions[j].lead for j in trailed]
            begun = [self.start[j] for j in trailed]
            if any(at is None or now < at + lead for at, lead in zip(begun, leads, strict=True)):
                return False
            self.begin[i] = now
            return True
        if now < self.begin[i] + ins.cycles:
            return False
        flows = {place for place in self.left if place[0] == i}
        if flows - self.flowing:
            self.flowing |= flows
            return True
        if flows:
            return False
        if any(self.end[j] is None or now < self.done[j] + ins.piece for j in trailed):
            return False
        if self.done[i] is None:
            # The last byte is here; the pipe may have to be held on.
            place = order.index(i)
            extra = sum(self.profile.links[link].latency_cycles for link in links_of(ins))
            extra += bool(self.outcomes.get(i, HIT).fetched) * self.profile.links["memory"].latency_cycles
            self.done[i] = max(now + ins.latency + extra, self.done[order[place - 1]] if place else 0)
        if now < self.begin[i] + ins.least:
            return False
        self.end[i] = now
        self.done[i] = max(self.done[i], now)
        return True

    def _may_start(self, i, order, now):
        flag, place = self.profile.sync.flag_cycles, order.index(i)
        times = [(self.issue[i], 0)]
        times += [
            (self.done[j] if self.end[j] is not None else None, flag) for j in self.program.after_done[i]
        ]
        times += [(self.end[j], flag) for j in self.program.after_end[i]]
        if place:
            times.append((self.end[order[place - 1]], 0))
            if self.program.instructions[i].drains:
                times.append((self.done[order[place - 1]], 0))
        return all(time is not None and time + wait <= now for time, wait in times)


def tick(link, total, cores):
    """Serve the flows of one link for one cycle; those whose last byte has arrived are over."""
    active = [(core, place) for core in cores for place in core.flowing if core.flows[place][0] == link]
    flows = []
    for core, place in active:
        _, _, cap, peak, crosses = core.flows[place]
        flows.append((id(core), 1, core.program.instructions[place[0]].pipe, cap, peak, crosses))
    for (core, place), rate in zip(active, rates_of(flows, total), strict=True):
        core.left[place] -= rate
        if core.left[place] <= 0:
            core.flowing.remove(place)
            del core.left[place]


def ticked_machine(programs, profile, outcomes=None):
    """Spans of one phase, found by looking at every core in every cycle until nothing changes."""
    outcomes = outcomes or [{}] * len(programs)
    cores = [TickedCore(program, profile, mine) for program, mine in zip(programs, outcomes, strict=True)]
    now = 0
    while any(None in core.end for core in cores):
        while any(core.look(now) for core in cores):
            pass
        for link, figures in profile.links.items():
            tick(link, down(figures.total_bytes_per_cycle), cores)
        now += 1
        assert now < 100_000, "the ticked machine hangs"
    return [(core.issue, core.start, core.end, core.done) for core in cores]


# --- Kernels whose instructions are held to what they declare, and where their traffic with GM goes. ---


class StrictMemory(CoreMemory):
    """Lends one instruction the memory of its core, and notes what it touches.

    What it writes without reading is poisoned first, so that a part it leaves out shows. What it only reads
    must be unchanged afterwards. A tile must fit in its slot.
    """

    def __init__(self, memory, instruction, itemsize):
        self.__dict__.update(memory.__dict__)
        self._instruction = instruction
        self._itemsize = itemsize
        self._before = []
        self._storing = False

    def new_tile(self, slot, shape):
        assert slot in self._instruction.writes, (
            f"{self._instruction} makes {slot}, which it does not declare"
        )
        need = tile_bytes(self._instruction, slot, shape, self._itemsize)
        assert need <= slot.size_bytes, f"{self._instruction} puts {need} bytes into {slot}"
        tile = super().new_tile(slot, shape)
        if slot not in self._instruction.reads:
            tile.view(np.float32).fill(np.nan)  # of integers: its bits
        return tile

    def accumulator(self, slot):
        known = {*self._instruction.reads, *self._instruction.writes}
        assert slot in known, f"{self._instruction} reads {slot}, which it does not declare"
        return super().accumulator(slot)

    def tile(self, slot):
        tile = super().tile(slot)
        if slot not in self._instruction.writes:
            self._before.append((slot, tile, tile.copy()))
        return tile

    def array(self, tensor):
        places = [place for place in gm_places(self._instruction) if place.gm.tensor.name == tensor.name]
        assert places, f"{self._instruction} touches {tensor.name}, which it does not name"
        array = super().array(tensor)
        if not self._storing:
            array = array.view()
            array.flags.writeable = False
        return array

    def store(self, dst, values, *, atomic):
        [place] = [place for place in gm_places(self._instruction) if place.kind != "read"]
        assert place == Place(dst, "atomic" if atomic else "write")
        self._storing = True
        super().store(dst, values, atomic=atomic)
        self._storing = False

    def check(self):
        for slot, tile, before in self._before:
            assert np.array_equal(tile, before, equal_nan=True), f"{self._instruction} changes {slot}"
        counted = elements_of(self._instruction)
        if counted is not None:
            slot, elements = counted
            assert self._tiles[slot.index].size == elements, f"{self._instruction} miscounts {slot}"
        if isinstance(self._instruction, Mmad | LoadL0A | Add | SumLanes | SumPixels):
            self._check_bytes()

    def _check_bytes(self):
        """Hold what it says of bytes to the tiles that there are; those of L1 it reads in part."""
        made = self._instruction
        for slot, size in zip((*made.reads, *made.writes), made.touched_bytes, strict=True):
            if slot.buffer != "L1":
                each = self._itemsize if slot.buffer in ("L0A", "L0B") else 4
                assert self._tiles[slot.index].size * each == size, f"{made} miscounts bytes of {slot}"


def tile_bytes(instruction, slot, shape, itemsize):
    """Return the bytes that a tile takes in its buffer on the device."""
    elements = int(np.prod(shape))
    if isinstance(instruction, CopyGmToL1 | FillL1) and len(shape) == 2:
        is_image = isinstance(instruction, FillL1) or instruction.window is not None
        return (elements - shape[1] * is_image) * itemsize  # the last row of zeros is the simulator's own
    if isinstance(instruction, CopyUbToL1) and slot is instruction.dst:
        return (elements - shape[1]) * itemsize
    if slot.buffer == "L0C" or isinstance(instruction, SumLanes | SumPixels):
        return elements * 4
    if isinstance(instruction, CopyGmToUb | Fill):
        return instruction.bytes
    if isinstance(instruction, Cast | CopyL0cToUb):
        return elements * find(instruction.dtype, ELEMENTS).itemsize
    return elements * itemsize


def elements_of(instruction):
    """Return the slot whose elements an instruction counts for its cost, and how many it says; or None."""
    match instruction:
        case Add() | Cast():
            return instruction.src, instruction.elements
        case CopyL0cToUb():
            return instruction.dst, instruction.elements
        case AddLanes():
            return instruction.src, instruction.rows * instruction.length
        case AddRows():
            return instruction.src, instruction.rows * instruction.length
        case SumLanes() | SumPixels():
            return instruction.dst, instruction.rows
        case Fixpipe():
            return instruction.src, instruction.bytes // instruction.dst.tensor.itemsize
        case CopyUbToGm():
            return instruction.src, instruction.bytes // instruction.dst.tensor.itemsize
    return None


@dataclass(frozen=True)
class Held:
    """An instruction that is executed on a strict memory."""

    inner: object
    itemsize: int

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def execute(self, memory):
        strict = StrictMemory(memory, self.inner, self.itemsize)
        self.inner.execute(strict)
        strict.check()


def strict(kernel, itemsize):
    """Return the kernel with every instruction held to what it declares; `itemsize` is the cube operands'."""

    def held(build):
        def program():
            p = build()
            instructions = tuple(Held(instruction, itemsize) for instruction in p.instructions)
            return Program(instructions, p.slots, p.buffer_bytes, p.hazards)

        return program

    phases = tuple(
        phase._replace(work=tuple(work._replace(build=held(work.build)) for work in phase.work))
        for phase in kernel.phases
    )
    return replace(kernel, phases=phases)


class Place(NamedTuple):
    """A slice of GM that an instruction reads, writes or adds to."""

    gm: Gm
    kind: str


def gm_places(instruction):
    """Return the slices of GM that an instruction touches."""
    places = []
    if isinstance(getattr(instruction, "src", None), Gm):
        places.append(Place(instruction.src, "read"))
    if isinstance(getattr(instruction, "dst", None), Gm):
        places.append(Place(instruction.dst, "atomic" if instruction.atomic else "write"))
    return places


def check_gm(kernel):
    """Check the traffic of a kernel with GM; return how often each element of each tensor is written.

    In a phase no tensor is both read and written, plain and atomic writes do not meet, and no element is
    written twice. Every slice lies inside its tensor, every copy names as many bytes as its slice has.
    """
    counts = {name: np.zeros(tensor.shape, int) for name, tensor in kernel.tensors.items()}
    for phase in kernel.phases:
        kinds, written = {}, {}
        for work in phase.work:
            for instruction in work.build().instructions:
                for place in gm_places(instruction):
                    _check_place(place, instruction, kernel)
                    tensor = place.gm.tensor
                    kinds.setdefault(tensor.name, set()).add(place.kind)
                    if place.kind == "read":
                        continue
                    counts[tensor.name].reshape(tensor.shape)[place.gm.index] += 1
                    here = written.setdefault(
                        tensor.name, np.zeros(tensor.size_bytes // tensor.itemsize, int)
                    )
                    here.reshape(tensor.shape)[place.gm.index] += 1
        for name, found in kinds.items():
            assert len(found) == 1, f"phase {phase.name} does {sorted(found)} on {name}"
            if found == {"write"}:
                assert written[name].max() <= 1, f"phase {phase.name} writes elements of {name} twice"
    return counts


def _check_place(place, instruction, kernel):
    tensor = place.gm.tensor
    assert tensor.name in kernel.tensors
    assert tensor.size_bytes == kernel.tensors[tensor.name].size_bytes
    size = tensor.itemsize
    for at, extent in zip(place.gm.index, tensor.shape, strict=False):
        first, last = (
            (at.start or 0, extent if at.stop is None else at.stop)
            if isinstance(at, slice)
            else (int(at), int(at) + 1)
        )
        assert 0 <= first < last <= extent, f"{instruction} leaves {tensor.name} {tensor.shape}"
        size *= last - first
    for extent in tensor.shape[len(place.gm.index) :]:
        size *= extent
    assert size == instruction.bytes, f"{instruction} moves {instruction.bytes} bytes of a slice of {size}"


def assert_as_declared(call, tensors, *wanted):
    """Run the kernels of a call strictly and in another order: nothing may fail or change a result."""
    for kernel, gm in kernels_with_inputs(call, tensors, *wanted):
        strict_gm = dict(gm)
        run_kernel(kernel, gm)
        run_kernel(strict(kernel, call.storage.itemsize), strict_gm, order=5)
        for output in [name for name, tensor in kernel.tensors.items() if tensor.role == "output"]:
            assert np.array_equal(gm[output], strict_gm[output], equal_nan=True), output
