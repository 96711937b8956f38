"""What does the compiled engine note about what the next transfers need?  Held to sets and dictionaries."""

import random

import numpy as np
import pytest

from ascendsim.timing.fast.compiled import state as f
from ascendsim.timing.fast.compiled.held import BACK, note_needs
from ascendsim.timing.fast.phase import laid_out

PIPES = 7


def noted(unit):
    """What stands above the forms of rows (pipe, slots read, slots written, whether bytes move)."""
    most = max([len(reads) + len(writes) for _, reads, writes, _ in unit], default=0)
    forms = np.zeros((len(unit), f.USE + most), np.int64)
    for form, (pipe, reads, writes, moves) in zip(forms, unit, strict=True):
        uses = [2 * slot for slot in reads] + [2 * slot + 1 for slot in writes]
        form[[f.PIPE, f.MOVES, f.USES]] = pipe, moves, len(uses)
        form[f.USE : f.USE + len(uses)] = uses
    figures = np.zeros(f.MACHINE, np.int64)
    figures[f.PIPES], figures[f.FORM] = PIPES, forms.shape[1]
    tables = dict.fromkeys(f.TABLES, np.empty(0, np.int64)) | {
        "forms": forms,
        "needed": np.full(PIPES, -1),
        "wanted": np.full(4 * (1 + BACK), -1),
    }
    memory, _ = laid_out(figures, tables)
    rows = np.zeros(f.ROW * len(unit), np.int64)
    rows[:: f.ROW] = range(len(unit))
    note_needs(memory, rows, 0, len(rows))
    assert (rows[:: f.ROW] & 0xFFFFFFFF).tolist() == list(range(len(unit)))
    return (rows[:: f.ROW] >> 32).tolist()


def newest_needed(unit, at):
    """The newest instruction on each pipe that one needs, among the last few, directly or by others."""
    wanted, newest = set(unit[at][1]), {}
    for source in range(at - 1, max(-1, at - 1 - BACK), -1):
        pipe, reads, writes, _ = unit[source]
        if wanted & set(writes):
            newest.setdefault(pipe, source)
            wanted |= set(reads)
    return set(newest.values())


def defined(unit):
    """By the definition: a pipe's bit stands from what its next transfer needs back to its last transfer."""
    behind, needed, begins = [0] * len(unit), {}, {}
    for at in range(len(unit) - 1, -1, -1):
        pipe, _, _, moves = unit[at]
        needed[pipe] = needed.get(pipe, 0) | begins.get(at, 0)
        behind[at] = needed[pipe]
        if moves:
            needed = {other: bits & ~(1 << pipe) for other, bits in needed.items()}
            begins = dict.fromkeys(newest_needed(unit, at), 1 << pipe)
    return behind


def test_a_write_back_needs_the_product_and_the_loads_before_it():
    # A copy into slot 0 (pipe 4), a load from there into 1, a product of 1 into 2, and a result that moves
    # from 2 (pipe 5): it needs the product, so the load, so the copy. What stands first is no source, but
    # comes before the product on its pipe.
    unit = [(1, (), (), False), (4, (), (0,), True), (2, (0,), (1,), False), (1, (1,), (2,), False)]
    assert noted([*unit, (5, (2,), (), True)]) == [1 << 5] * 4 + [0]
    assert noted([(3, (), (), False), *unit[1:], (5, (2,), (), True)]) == [0, *[1 << 5] * 3, 0]


@pytest.mark.parametrize("seed", range(40))
def test_needs_of_random_code(seed):
    rng = random.Random(seed)

    def slots():
        return tuple(rng.sample(range(6), rng.randrange(3)))

    unit = [(rng.randrange(PIPES), slots(), slots(), rng.random() < 0.2) for _ in range(rng.randrange(60))]
    assert noted(unit) == defined(unit)
