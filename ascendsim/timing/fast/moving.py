"""The transfers of a phase as tables, and how long those flow that nobody can slow down.

A link is wide if it carries all that the cores of the phase can ever ask of it together, and each core
reaches it by one pipe. Then every flow on it goes at its limit from begin to end (`links.py`, rules 1 to 3),
whatever the others do. So when a transfer over wide links lands is known as soon as it begins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ascendsim.program.kernel import Core
from ascendsim.program.posts import VECTOR_CORES
from ascendsim.program.program import Program
from ascendsim.timing.fast.code import CodeBook
from ascendsim.timing.fast.compiled import state as f
from ascendsim.timing.l2.accesses import Outcome
from ascendsim.timing.links import Flow, fixed_rate
from ascendsim.timing.transfers import Spreading, Transfer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.profile import Profile

    Table = NDArray[np.int64]

KINDS = ("cube", "vector")
# No rate is as high: what a pipe without a peak of its own could do.
NO_PEAK = 1 << 50
# A transfer has at most so many flows on one link.
ROOM_OF_A_FLIGHT = 3


class Run(NamedTuple):
    """One program of a phase, of a core or of equal ones, and what L2 makes of its transfers.

    `traffics`, `beside` and `outcomes` have for each transfer, in program order, the number of its traffic,
    of its core in the program, and of its outcome.
    """

    cores: tuple[Core, ...]
    program: Program
    traffics: NDArray[np.int32]
    beside: NDArray[np.int32]
    outcomes: NDArray[np.int32]


def transfer_tables(
    runs: Sequence[Run], outcomes: Sequence[Outcome], book: CodeBook, profile: Profile
) -> tuple[Table, Table]:
    """Return which transfer each (kind, traffic, outcome) is that occurs, and the transfers."""
    # Cores that are vector cores, and those beside cube cores.
    vectors = sum(len(run.cores) * (len(run.program.sizes) - (run.cores[0].kind == "cube")) for run in runs)
    paired = any(len(run.program.sizes) > VECTOR_CORES for run in runs)
    spreading = Spreading(profile, in_pairs=paired or vectors > 2)
    width = len(outcomes)
    occur = np.zeros(2 * max(1, len(book.traffics)) * width, np.bool_)
    keys = []
    for run in runs:
        kind: Any = KINDS.index(run.cores[0].kind)
        if len(run.program.sizes) > 1:
            kind = np.where(run.beside > 0, KINDS.index("vector"), kind)
        keys.append((kind * len(book.traffics) + run.traffics) * width + run.outcomes)
        occur[keys[-1]] = True
    found = np.flatnonzero(occur)
    classes = np.full(len(occur), -1, np.int64)
    classes[found] = range(len(found))
    transfers, pipes = [], []
    for key in found.tolist():
        of, rest = divmod(key, len(book.traffics) * width)
        traffic, outcome = divmod(rest, width)
        transfers.append(spreading.transfer(KINDS[of], book.traffics[traffic], outcomes[outcome]))
        pipes.append(book.pipes_of[traffic])
    totals = {link: fixed_rate(profile.links[link].total_bytes_per_cycle) for link in f.LINK_NAMES}
    # Of several cores of a program each has ports of its own, and which of them moves what is not asked here.
    single = all(len(run.program.sizes) == 1 for run in runs)
    wide: set[str] = set()
    if single:
        met = np.zeros((len(runs), len(found)), np.bool_)
        for own, of_run in zip(met, keys, strict=True):
            own[classes[of_run]] = True
        wide = _wide(transfers, pipes, [len(run.cores) for run in runs], met, totals)
    rows = np.zeros((len(found), f.TRANSFERS), np.int64)
    for number, transfer in enumerate(transfers):
        row = _row(transfer, wide)
        rows[number, : len(row)] = row
    return classes, rows


def _wide(
    transfers: Sequence[Transfer],
    pipes: Sequence[int],
    weights: Sequence[int],
    met: NDArray[np.bool_],
    totals: Mapping[str, int],
) -> set[str]:
    """Return the links that are wide.

    pipes    the pipes on which each transfer may move, as bits
    weights  how many equal cores each program stands for
    met      whether a program makes a transfer, [program, transfer]
    totals   what each link carries
    """
    asked = {link: [0] * len(transfers) for link in totals}
    used = {link: [0] * len(transfers) for link in totals}
    for number, (flows, _) in enumerate(transfers):
        for flow in flows:
            asked[flow.link][number] += _limit(flow) if flow.crosses else 0
            used[flow.link][number] = pipes[number]
    # A pipe moves one transfer after the other, so a core asks for no more than one of them does.
    most = np.where(met, np.array(list(asked.values()), np.int64)[:, None], 0).max(axis=2, initial=0)
    each = np.bitwise_or.reduce(np.where(met, np.array(list(used.values()), np.int64)[:, None], 0), axis=2)
    fits = most @ np.array(weights, np.int64) <= list(totals.values())
    alone = ((each & (each - 1)) == 0).all(axis=1)
    return {link for link, is_wide in zip(totals, (fits & alone).tolist(), strict=True) if is_wide}


def _limit(flow: Flow) -> int:
    """Return the rate of a flow if its core reaches the link by one pipe and the link is not full."""
    return max(1, flow.cap if flow.peak is None else min(flow.cap, flow.peak))


def _row(transfer: Transfer, wide: set[str]) -> list[int]:
    """Return a transfer as the first columns of its row; what comes behind its flows is never read."""
    links = [flow.link for flow in transfer.flows]
    # Rows of transfers, and tables of flows, have no room for more.
    assert len(links) <= f.MOST_FLOWS
    assert all(links.count(link) <= ROOM_OF_A_FLIGHT for link in links)
    lasts = max([-(-flow.size // _limit(flow)) for flow in transfer.flows]) if wide.issuperset(links) else -1
    row = [transfer.latency_cycles, lasts, len(transfer.flows)]
    for link, size, cap, peak, crosses in transfer.flows:
        row += f.LINK_NAMES.index(link), size, NO_PEAK if peak is None else peak, cap, crosses
    return row
