"""Would a wrong cycle be noticed?  Change one line in a copy: some test must fail.

A row names the file, the text to change (it must occur exactly once) and what it becomes. Rows whose change
cannot alter any cycle do not belong here. Those of L2 have a file of their own, `test_l2_mutations.py`.
"""

from tests.helpers.mutating import Mutation, checks_of

TESTS = "test_links test_l2 test_l2_cores test_timing test_timing_faster test_timeline"

LINKS = [
    Mutation("timing/links", "return -(-size", "return (size"),
    Mutation("timing/links", "return max(1, rate", "return max(1, 1 + rate"),
    Mutation("timing/links", "return max(1, rate", "return max(0, rate"),
    Mutation("timing/links", "now + -(-self.left // rate)", "now + max(1, self.left // rate)"),
    Mutation("timing/links", "self.left -= self.rate * (now - self.since)", "pass"),
    Mutation("timing/links", "if fits and self._fits else self._streams", "if fits else self._streams"),
    Mutation("timing/links", "if fits and self._fits else self._streams", "if True else self._streams"),
    Mutation("timing/links", "self._demands[core] <= level", "True"),
    Mutation("timing/links", "min(stream.limit, mine) if stream.flow.crosses else", "mine if False else"),
    Mutation("timing/links", "min(stream.limit, mine) if stream.flow.crosses else", "mine if True else"),
    Mutation("timing/links", "len({stream.flight.pipe for stream in streams})", "len(streams)"),
    Mutation("timing/links", "flow.cap // pipes", "flow.cap"),
    Mutation("timing/links", "            if flow.crosses:", "            if True:"),
    Mutation("timing/links", "self._asked -= core.weight * self._demands.pop(core, 0)", "pass"),
    Mutation("timing/links", "self._asked += core.weight * demand", "self._asked += demand"),
    Mutation("timing/links", "(core.weight, demand) for", "(1, demand) for"),
    Mutation("timing/links", "remaining -= weight * demand", "remaining -= demand"),
    Mutation("timing/links", "                weights -= weight", "                weights -= 1"),
    Mutation("timing/links", "if len(above) == len(waiting):", "if above:"),
    Mutation("timing/links", "if stream.end == now and stream.left:", "if stream.left:"),
    Mutation("timing/links", "if not stream.flight.under_way:", "if True:"),
    Mutation("timing/links", "occupied * more, cap", "occupied, cap"),
    Mutation("timing/links", "traffic.peak_bytes_per_cycle * more)", "traffic.peak_bytes_per_cycle)"),
    Mutation("timing/links", " * occupied / traffic.bytes", ""),
    Mutation("timing/links", "fixed_size(size, part)", "fixed_size(size)"),
    Mutation("timing/links", "fixed_rate(cap, part)", "fixed_rate(cap)"),
    Mutation("timing/links", "fixed_rate(peak, part)", "fixed_rate(peak)"),
    Mutation("timing/links", "outcome.fetched * outcome.readers * occupied", "outcome.fetched * occupied"),
    Mutation("timing/links", "waited, own, crosses=False", "waited, own"),
    Mutation("timing/links", "            latency += memory.latency_cycles", "            pass"),
    Mutation("profile/memory", "Fraction(pair) / 2", "Fraction(pair)"),
    Mutation("timing/links", "vectors > 2", "vectors > 1"),
]
TIMING = [
    Mutation("timing/simpy_engine", "if free < time + least:", "if False:"),
    Mutation("timing/kernel", "now = profile.scalar.start_cycles", "now = 0"),
    Mutation("timing/simpy_engine", "latency += transfer.latency_cycles", "pass"),
    Mutation("timing/simpy_engine", " + self.priced.prices[other].lead_cycles", ""),
    Mutation("timing/simpy_engine", "free = max(free, self.done[other] + piece)", "pass"),
    Mutation("timing/simpy_engine", "self.done[other] + piece)", "self.done[other])"),
    Mutation("timing/critical_path", "work.done[last] > work.start[index]", "False"),
    Mutation("timing/times", 'busy.setdefault("S", times.entry_cycles)', "pass"),
    Mutation("timing/critical_path", "if timeline.entry_cycles:", "if False:"),
]
EVERY = [*LINKS, *TIMING]

STANDS, PASSES, FAILS = checks_of(EVERY, TESTS)
test_the_line_to_change_exists_once = STANDS
test_the_copy_passes_unchanged = PASSES
test_a_changed_line_makes_a_test_fail = FAILS
