"""Would a wrong cycle be noticed?  Change one line in a copy: some test must fail.

A row names the file, the text to change (it must occur exactly once) and what it becomes. Rows whose change
cannot alter any cycle do not belong here.
"""

from typing import NamedTuple

import pytest
from mutating import assert_noticed, run_copy, source_of

TESTS = "test_links test_l2 test_timing test_timeline"


class Mutation(NamedTuple):
    """One change to one file of the package."""

    file: str
    old: str
    new: str


LINKS = [
    Mutation("links", "self.crowd[link] = self.crowd.get(link, 0) + 1", "self.crowd[link] = 1"),
    Mutation("links", "/ self.cores", "/ 1"),
    Mutation("links", "limits = [part] if flow.crosses else []", "limits = [part]"),
    Mutation("links", "/ port.crowd[flow.link]", "/ 1"),
    Mutation("transfers", "cores -= port.weight", "cores -= 1"),
    Mutation("transfers", "if elapsed > 0:", "if elapsed > 1:"),
    Mutation("transfers", "            transfer.speeds.clear()", "            pass"),
    Mutation("transfers", "outcome.fetched * outcome.readers * occupied", "outcome.fetched * occupied"),
    Mutation("transfers", "            latency += memory.latency_cycles", "            pass"),
    Mutation("transfers", "Fraction(pair) / 2", "Fraction(pair)"),
    Mutation("transfers", '"vector") > 2', '"vector") > 1'),
    Mutation("transfers", "if event is not moving.event:", "if False:"),
]
L2 = [
    Mutation("l2_stack", "self._stack.move_to_end(id(tile))", "pass"),
    Mutation("l2_stack", "            tile.dirty = tile.size", "            tile.dirty = 0"),
    Mutation("l2_stack", 'fetched = 0 if traffic.kind == "write" else missing', "fetched = missing"),
    Mutation("l2_stack", "kept.resident -= found", "pass"),
    Mutation("l2_stack", "(end - kept.resident)", "(end - kept.resident - 1)"),
    Mutation("l2_walk", "if transfer.group not in self.groups:", "if True:"),
    Mutation("l2_walk", 'stay is not None and traffic.kind != "write"', "stay is not None"),
    Mutation("l2_walk", 'moved["read"] >= moved["write"]', 'moved["read"] > moved["write"]'),
    Mutation("l2_walk", "if touch.readers > 1 and", "if touch.readers > 0 and"),
    Mutation("l2_walk", "min(others[name], size - known[name])", "min(others[name], size)"),
    Mutation("l2", "        stack.forget_bytes()", "        pass"),
]
TIMING = [
    Mutation("timing", "if free < time + least:", "if False:"),
    Mutation("timing", "now = profile.scalar.start_cycles", "now = 0"),
    Mutation("timing", "latency += transfer.latency_cycles", "pass"),
    Mutation("timing", " + self.priced.prices[other].lead_cycles", ""),
    Mutation("timing", "free = max(free, self.done[other] + piece)", "pass"),
    Mutation("timing", "self.done[other] + piece)", "self.done[other])"),
    Mutation("critical_path", "work.done[last] > work.start[index]", "False"),
    Mutation("timeline", 'busy.setdefault("S", timeline.entry_cycles)', "pass"),
    Mutation("critical_path", "if timeline.entry_cycles:", "if False:"),
]
EVERY = [*LINKS, *L2, *TIMING]


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
    assert_noticed(run_copy(tmp_path, *mutation, TESTS))
