"""The transfers of a phase as tables, and how long those flow that nobody can slow down.

A link is wide if it carries all that the cores of the phase can ever ask of it together, and each core
reaches it by one pipe. Then every flow on it goes at its limit from begin to end (`links.py`, rules 1 to 3),
whatever the others do. So when a transfer over wide links lands is known as soon as it begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ascendsim.program.kernel import Core
from ascendsim.program.posts import VECTOR_CORES
from ascendsim.program.program import Program
from ascendsim.timing.fast.compiled import state as f
from ascendsim.timing.fast.forms import FormBook
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
    runs: Sequence[Run], outcomes: Sequence[Outcome], book: FormBook, profile: Profile
) -> tuple[Table, Table]:
    """Return which transfer each (kind, traffic, outcome) is that occurs, and the transfers."""
    # Cores that are vector cores, and those beside cube cores.
    vectors = sum(len(run.cores) * (run.program.cores - (run.cores[0].kind == "cube")) for run in runs)
    paired = any(run.program.cores > VECTOR_CORES for run in runs)
    spreading = Spreading(profile, in_pairs=paired or vectors > 2)
    width = len(outcomes)
    # Which transfers occur in a program, as bytes, and how many cores run such programs: most are alike.
    met: dict[bytes, int] = {}
    occur = np.zeros(2 * max(1, len(book.traffics)) * width, np.bool_)
    for run in runs:
        kind: Any = KINDS.index(run.cores[0].kind)
        if run.program.cores > 1:
            kind = np.where(run.beside > 0, KINDS.index("vector"), kind)
        own = np.zeros(len(occur), np.bool_)
        own[(kind * len(book.traffics) + run.traffics) * width + run.outcomes] = True
        occur |= own
        made = own.tobytes()
        met[made] = met.get(made, 0) + len(run.cores)
    found = np.flatnonzero(occur)
    classes = np.full(len(occur), -1, np.int64)
    classes[found] = range(len(found))
    transfers, pipes = [], []
    for key in found.tolist():
        of, rest = divmod(key, len(book.traffics) * width)
        traffic, outcome = divmod(rest, width)
        transfers.append(spreading.transfer(KINDS[of], book.traffics[traffic], outcomes[outcome]))
        pipes.append(book.pipes_of[traffic])
    wide: set[str] = set()
    # Of several cores of a program each has ports of its own, and which of them moves what is not asked here.
    if all(run.program.cores == 1 for run in runs):
        teams = [(cores, classes[np.frombuffer(made, np.bool_)].tolist()) for made, cores in met.items()]
        totals = {link: fixed_rate(profile.links[link].total_bytes_per_cycle) for link in f.LINK_NAMES}
        wide = {link for link, total in totals.items() if _is_wide(link, total, transfers, pipes, teams)}
    rows = np.zeros((len(found), f.TRANSFERS), np.int64)
    for number, transfer in enumerate(transfers):
        row = _row(transfer, wide)
        rows[number, : len(row)] = row
    return classes, rows


def _is_wide(
    link: str,
    total: int,
    transfers: Sequence[Transfer],
    pipes: Sequence[int],
    teams: Sequence[tuple[int, Sequence[int]]],
) -> bool:
    """Tell whether a link is wide, which carries `total`.

    pipes   the pipes on which each transfer may move, as bits
    teams   how many cores make some transfers, and which, by their numbers
    """
    # What each transfer on the link asks of it.
    limits = {
        number: sum([_limit(flow) for flow in own if flow.crosses])
        for number, transfer in enumerate(transfers)
        if (own := [flow for flow in transfer.flows if flow.link == link])
    }
    asked = 0
    for cores, made in teams:
        moving = [number for number in made if number in limits]
        used = 0
        for number in moving:
            used |= pipes[number]
        if used & (used - 1):
            return False
        # A pipe moves one transfer after the other, so a core asks for no more than one of them does.
        asked += cores * max([limits[number] for number in moving], default=0)
    return asked <= total


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
