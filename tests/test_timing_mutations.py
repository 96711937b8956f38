"""Would a wrong cycle be noticed?  Change one line in a copy: some test must fail.

A row names the file, the text to change (it must occur exactly once) and what it becomes. Rows whose change
cannot alter any cycle do not belong here. Those of L2 have a file of their own, `test_l2_mutations.py`.
"""

import pytest
from mutating import Mutation, assert_noticed, run_copy, source_of

TESTS = "test_links test_l2 test_timing test_timeline"

LINKS = [
    Mutation("timing/links", "self.crowd[link] = self.crowd.get(link, 0) + 1", "self.crowd[link] = 1"),
    Mutation("timing/links", "/ self.cores", "/ 1"),
    Mutation("timing/links", "limits = [part] if flow.crosses else []", "limits = [part]"),
    Mutation("timing/links", "/ port.crowd[flow.link]", "/ 1"),
    Mutation("timing/transfers", "cores -= port.weight", "cores -= 1"),
    Mutation("timing/transfers", "if elapsed > 0:", "if elapsed > 1:"),
    Mutation("timing/transfers", "            transfer.speeds.clear()", "            pass"),
    Mutation(
        "timing/transfers", "outcome.fetched * outcome.readers * occupied", "outcome.fetched * occupied"
    ),
    Mutation("timing/transfers", "            latency += memory.latency_cycles", "            pass"),
    Mutation("timing/transfers", "Fraction(pair) / 2", "Fraction(pair)"),
    Mutation("timing/transfers", '"vector") > 2', '"vector") > 1'),
    Mutation("timing/transfers", "if event is not flight.event:", "if False:"),
]
TIMING = [
    Mutation("timing/simpy_engine", "if free < time + least:", "if False:"),
    Mutation("timing/kernel", "now = profile.scalar.start_cycles", "now = 0"),
    Mutation("timing/simpy_engine", "latency += transfer.latency_cycles", "pass"),
    Mutation("timing/simpy_engine", " + self.priced.prices[other].lead_cycles", ""),
    Mutation("timing/simpy_engine", "free = max(free, self.done[other] + piece)", "pass"),
    Mutation("timing/simpy_engine", "self.done[other] + piece)", "self.done[other])"),
    Mutation("timing/critical_path", "work.done[last] > work.start[index]", "False"),
    Mutation("timing/timeline", 'busy.setdefault("S", timeline.entry_cycles)', "pass"),
    Mutation("timing/critical_path", "if timeline.entry_cycles:", "if False:"),
]
EVERY = [*LINKS, *TIMING]


@pytest.mark.parametrize("mutation", EVERY, ids=lambda m: f"{m.file}:{m.new}")
def test_the_line_to_change_exists_once(mutation):
    assert source_of(mutation.file).count(mutation.old) == 1


@pytest.mark.slow
def test_the_copy_passes_unchanged(tmp_path):
    done = run_copy(tmp_path, "", "", "", TESTS)
    assert done.returncode == 0, done.stdout[-2000:]


@pytest.mark.slow
@pytest.mark.parametrize("mutation", EVERY, ids=lambda m: f"{m.file}:{m.new}")
def test_a_changed_line_makes_a_test_fail(mutation, tmp_path):
    assert_noticed(run_copy(tmp_path, mutation.file, mutation.old, mutation.new, TESTS))
