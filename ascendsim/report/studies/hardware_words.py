"""Gains by changes of the hardware, in a sentence and in verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from ascendsim.report.tables import value
from ascendsim.studies.hardware.records import Gain, HardwareAnswer
from ascendsim.studies.table import saving, share

# The most figures of a change that a sentence shows with their values.
NAMED = 3

UNCLEAR, NOTHING = "not distinguishable", "no change"
ONLY_PLAN = "another plan alone"
NEEDS, PARTLY = "needs a new plan", "partly needs a new plan"
NO_FIT, BELOW = "old plan does not fit", "below margin"


def hardware_sentence(answer: HardwareAnswer) -> str:
    """Answer in one sentence: the change that saves most wherever assumed figures lie, start by start."""
    where = f"On {answer.variant}, {answer.question.title}"
    by_name = _by_name(answer)
    if not by_name:
        return f"{where}: none of the changes can be timed; {next(iter(answer.refused.values()))}"
    best = _best(by_name)
    said, name = _said(by_name[best], answer.question.margin), named(by_name[best][0])
    if len(by_name) == 1:
        return f"{where}: {name} {said}."
    if not _saves(by_name[best]):
        return f"{where}: {_none_saves(answer, by_name, best)}."
    return f"{where}: of {len(by_name)} changes {name} buys most: it {said}{_idle(by_name)}."


def hardware_ranked(answers: Sequence[HardwareAnswer]) -> str:
    """Compare products in one sentence: what buys most on each, where it surely saves most first."""
    found = []
    for answer in answers:
        by_name = _by_name(answer)
        if not by_name:
            found.append(((-inf, -inf), f"on {answer.variant} no change can be timed"))
            continue
        best = _best(by_name)
        said = f"{named(by_name[best][0])} {_said(by_name[best], answer.question.margin)}"
        if len(by_name) > 1 and not _saves(by_name[best]):
            said = f"none of {len(by_name)} changes surely saves time"
        found.append((_surely(by_name[best]), f"on {answer.variant} {said}"))
    # Of equal ones in the order in which they were asked for.
    parts = [said for _, said in sorted(found, key=lambda pair: pair[0], reverse=True)]
    return f"{answers[0].question.title}, what saves most first: {'; '.join(parts)}."


def named(gain: Gain) -> str:
    """Name a change with what its figures are on the product and become: a factor says neither."""
    moved = [(path, f"{value(old)} to {value(new)}") for path, (old, new) in gain.figures.items()]
    if len(moved) > NAMED or not moved:
        return gain.change
    # The name of a change that is no name of its own has the figure's path.
    alone = len(moved) == 1 and moved[0][0] in gain.change
    return f"{gain.change} ({moved[0][1] if alone else ', '.join(' '.join(pair) for pair in moved)})"


def verdict(gain: Gain, margin: float) -> str:
    """Say that the change itself saves nothing, or may, or by plans that need it; "" where it just saves."""
    if not gain.distinguishable:
        moved = gain.own_share or (gain.doubt and (gain.doubt.low or gain.doubt.high))
        return UNCLEAR if moved else ONLY_PLAN if gain.plan_share else NOTHING
    return "; ".join(filter(None, (_of_plans(gain), BELOW if abs(gain.own_share) < margin else "")))


def between(ends: Sequence[float]) -> str:
    """Print between what the saving of the change itself lies."""
    low, high = ends
    if high <= 0 and low < 0:
        return f"costs {share(abs(high))} to {share(-low)} %"
    return f"costs {share(-low)} to saves {share(high)} %" if low < 0 else f"{share(low)} to {share(high)} %"


def _by_name(answer: HardwareAnswer) -> dict[str, list[Gain]]:
    found: dict[str, list[Gain]] = {}
    for gain in answer.gains:
        found.setdefault(gain.change, []).append(gain)
    return found


def _best(by_name: Mapping[str, Sequence[Gain]]) -> str:
    """Name the change that surely saves most, of equal ones the first."""
    return max(by_name, key=lambda name: _surely(by_name[name]))


def _surely(gains: Sequence[Gain]) -> tuple[float, float]:
    """Return the least saving of a change itself, under its worst start and under its best one."""
    least = [gain.doubt.low if gain.doubt else gain.own_share for gain in gains]
    return min(least), max(least)


def _saves(gains: Sequence[Gain]) -> bool:
    """Return whether a change saves time under some start, wherever assumed figures lie."""
    return _surely(gains)[1] > 0


def _none_saves(answer: HardwareAnswer, by_name: Mapping[str, Sequence[Gain]], best: str) -> str:
    """Say that no change saves time: all of them change nothing, may be none, or cost."""
    none = f"none of {len(by_name)} changes"
    starts = f"with L2 {' or '.join(answer.question.starts)}"
    nothing, unclear = _unlike(by_name)
    if nothing == len(by_name):
        return f"{none} changes anything {starts}"
    if nothing + unclear == len(by_name):
        return f"{none} is distinguishable from no change {starts}"
    if nothing + unclear:
        return f"{none} surely saves time {starts}{_idle(by_name)}"
    if any(_needless(gains) for gains in by_name.values()):
        return f"{none} saves time itself {starts}{_idle(by_name)}"
    said = _said(by_name[best], answer.question.margin)
    return f"{none} saves time {starts}; {named(by_name[best][0])}, the least costly, {said}"


def _unlike(by_name: Mapping[str, Sequence[Gain]]) -> tuple[int, int]:
    """Count the changes that change nothing under any start, and those that may be none under all."""
    same = [{verdict(gain, 0.0) for gain in gains} for gains in by_name.values()]
    nothing = sum(verdicts == {NOTHING} for verdicts in same)
    return nothing, sum(verdicts <= {NOTHING, UNCLEAR} for verdicts in same) - nothing


def _idle(by_name: Mapping[str, Sequence[Gain]]) -> str:
    """Say how many changes are none, as the end of a sentence."""
    nothing, unclear = _unlike(by_name)
    change = f"; {nothing} of them {'changes' if nothing == 1 else 'change'} nothing" if nothing else ""
    change += f"; {unclear} of them cannot be distinguished from no change" if unclear else ""
    alone = sum(_needless(gains) for gains in by_name.values())
    return change + (f"; of {alone} of them only another plan helps, which needs no change" if alone else "")


def _needless(gains: Sequence[Gain]) -> bool:
    """Return whether all that comes with a change comes of plans that the unchanged product can follow."""
    verdicts = {verdict(gain, 0.0) for gain in gains}
    return ONLY_PLAN in verdicts and verdicts <= {ONLY_PLAN, NOTHING}


def _said(gains: Sequence[Gain], margin: float) -> str:
    """Describe the gain of a change, start by start; starts with equal gains stand together."""
    starts: dict[str, list[str]] = {}
    for gain in gains:
        starts.setdefault(_saving(gain, margin), []).append(gain.start)
    return " and ".join(f"{said} with L2 {' and '.join(own)}" for said, own in starts.items())


def _saving(gain: Gain, margin: float) -> str:
    said = _own_saving(gain, margin)
    if not gain.plan_share:
        return said
    also = "and" if gain.own_share > 0 and gain.distinguishable else "but"
    return (
        f"{said}, {also} another plan that the product as it is can follow saves {share(gain.plan_share)} %,"
    )


def _own_saving(gain: Gain, margin: float) -> str:
    """Say what the change itself saves, beside plans that need no change."""
    told, itself = verdict(gain, margin), "itself " if gain.plan_share else ""
    if told in (NOTHING, ONLY_PLAN):
        return f"{itself}changes nothing"
    within = f" ({between((gain.doubt.low, gain.doubt.high))})" if gain.doubt else ""
    if told == UNCLEAR:
        return f"{itself}is {UNCLEAR} from no change{within}"
    verb = "saves" if gain.own_share > 0 else "costs"
    # The verb is said once.
    said = f"{itself}{verb} {share(abs(gain.own_share))} %{within.replace('(costs ', '(')}"
    plans, clauses = _of_plans(gain), []
    if plans == NO_FIT:
        clauses.append("under new plans since old ones do not fit")
    elif plans:
        partly = "partly " if plans == PARTLY else ""
        said += f" {partly}by a plan that needs it ({', '.join(_two_plans(gain))})"
    if BELOW in told:
        clauses.append(f"below the model's margin of {share(margin)} %")
    return ", ".join([said, *clauses]) + ("," if clauses and not gain.plan_share else "")


def _two_plans(gain: Gain) -> tuple[str, ...]:
    assert gain.same_us is not None
    times = (("same plan", gain.same_us), ("planned anew", gain.anew_us))
    return tuple(f"{name} {saving(1 - us / gain.base_us)}" for name, us in times)


def _of_plans(gain: Gain) -> str:
    """Say how much of what the change itself saves comes of plans that help the changed product alone."""
    own, needing = gain.own_share, gain.needing_share
    if own <= 0:
        return ""
    if needing is None:
        return NO_FIT
    if needing >= own / 2:
        return NEEDS
    return PARTLY if needing >= own / 10 else ""
