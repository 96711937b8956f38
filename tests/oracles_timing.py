"""Slow definitions of what timing must give: the longest path of a graph, and a machine that is ticked."""

from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil


def spans_of(core):
    """The four lists of a CoreTimeline, to compare with an oracle's."""
    return core.issue, core.start, core.end, core.done


def links_of(instruction, miss=Fraction(0)):
    """The links that an instruction's bytes flow over, and how many bytes on each."""
    if not instruction.kind or not instruction.bytes:
        return {}
    if instruction.kind != "read":
        return {"l2_write": instruction.bytes}
    missed = ceil(miss * instruction.bytes)
    return {"l2_read": instruction.bytes} | ({"memory": missed} if missed else {})


def cap_of(instruction, link, profile):
    return min(Fraction(instruction.peak), Fraction(profile.links[link].per_core_bytes_per_cycle))


# --- the longest path --------------------------------------------------------------------------------------


def edges_of(program, profile, share=1):
    """Edges (from, to, at least so many cycles later) between the events of a core alone on its links.

    With `share` the core has that part of each link's total for itself.
    """
    step, flag = profile.scalar.issue_cycles, profile.sync.flag_cycles
    edges, last = [("begin", ("issue", 0), step)], {}
    for i, ins in enumerate(program.instructions):
        on_pipe = last.setdefault(ins.pipe, [])
        flows = [
            ceil(
                size
                / min(cap_of(ins, link, profile), share * Fraction(profile.links[link].total_bytes_per_cycle))
            )
            for link, size in links_of(ins).items()
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
        edges.append((("start", i), ("end", i), ins.cycles + max(flows, default=0)))
        edges.append((("end", i), ("done", i), ins.latency + extra))
        on_pipe.append(i)
    return edges


def longest_path(program, profile, share=1):
    """Spans as the longest paths to every event: relax all edges until nothing changes."""
    edges = edges_of(program, profile, share)
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


# --- fair share --------------------------------------------------------------------------------------------


def fair_rates(total, caps):
    """Max-min fair rates: hand out equal parts; a flow with a lower cap keeps that, the rest share again."""
    rates, left, open_flows = {}, Fraction(total), set(caps)
    while open_flows:
        part = left / len(open_flows)
        small = {flow for flow in open_flows if caps[flow] <= part}
        if not small:
            return rates | dict.fromkeys(open_flows, part)
        for flow in small:
            rates[flow] = Fraction(caps[flow])
            left -= caps[flow]
        open_flows -= small
    return rates


@dataclass
class TickedLink:
    """A link that is served cycle by cycle."""

    total: Fraction
    left: dict = field(default_factory=dict)
    caps: dict = field(default_factory=dict)
    gone: set = field(default_factory=set)

    def join(self, flow, size, cap):
        self.left[flow], self.caps[flow] = Fraction(size), Fraction(cap)

    def tick(self):
        """Serve one cycle; a flow with nothing left is gone from the next cycle on."""
        rates = fair_rates(self.total, self.caps)
        for flow, rate in rates.items():
            self.left[flow] -= rate
        for flow in [flow for flow, left in self.left.items() if left <= 0]:
            del self.left[flow], self.caps[flow]
            self.gone.add(flow)


def ticked_transfers(total, transfers):
    """End cycles of transfers (arrival, bytes, cap) on one link."""
    link, ends, now = TickedLink(Fraction(total)), {}, 0
    while len(ends) < len(transfers):
        for number, (arrival, size, cap) in enumerate(transfers):
            if arrival == now:
                link.join(number, size, cap)
            if number in link.gone:
                ends.setdefault(number, now)
        link.tick()
        now += 1
    return [ends[number] for number in range(len(transfers))]


# --- a machine that is ticked ------------------------------------------------------------------------------


class TickedCore:
    """One core, looked at in every cycle; nothing of the future is known but when a result is visible."""

    def __init__(self, number, program, profile, links):
        self.number, self.program, self.profile, self.links = number, program, profile, links
        count = len(program.instructions)
        self.issue, self.start, self.end, self.done = ([None] * count for _ in range(4))
        self.orders = {}
        for i, ins in enumerate(program.instructions):
            self.orders.setdefault(ins.pipe, []).append(i)
        self.sent = set()

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
        if now < self.start[i] + ins.cycles:
            return False
        flows = dict.fromkeys(links_of(ins), (self.number, i))
        if flows and i not in self.sent:
            self.sent.add(i)
            for link, size in links_of(ins).items():
                self.links[link].join((self.number, i), size, cap_of(ins, link, self.profile))
            return True
        if any(flow not in self.links[link].gone for link, flow in flows.items()):
            return False
        self.end[i] = now
        place = order.index(i)
        extra = max((self.profile.links[link].latency_cycles for link in flows), default=0)
        self.done[i] = max(now + ins.latency + extra, self.done[order[place - 1]] if place else 0)
        return True

    def _may_start(self, i, order, now):
        flag, place = self.profile.sync.flag_cycles, order.index(i)
        times = [(self.issue[i], 0)]
        times += [(self.done[j], flag) for j in self.program.after_done[i]]
        times += [(self.end[j], flag) for j in self.program.after_end[i]]
        if place:
            times.append((self.end[order[place - 1]], 0))
            if self.program.instructions[i].drains:
                times.append((self.done[order[place - 1]], 0))
        return all(time is not None and time + wait <= now for time, wait in times)


def ticked_machine(programs, profile):
    """Spans of one phase, found by looking at every core in every cycle until nothing changes."""
    links = {
        name: TickedLink(Fraction(figures.total_bytes_per_cycle)) for name, figures in profile.links.items()
    }
    cores = [TickedCore(number, program, profile, links) for number, program in enumerate(programs)]
    now = 0
    while any(None in core.end for core in cores):
        while any(core.look(now) for core in cores):
            pass
        for link in links.values():
            link.tick()
        now += 1
        assert now < 100_000, "the ticked machine hangs"
    return [(core.issue, core.start, core.end, core.done) for core in cores]
