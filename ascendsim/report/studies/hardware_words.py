"""What changes of the hardware buy, in a sentence and in verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from ascendsim.studies.hardware.records import Gain, HardwareAnswer

UNCLEAR, NOTHING = "not distinguishable", "no change"
BY_PLAN, PARTLY, NO_FIT = "by another plan", "partly by another plan", "old plan does not fit"
BELOW = "below the margin"


def hardware_sentence(answer: HardwareAnswer) -> str:
    """Answer in one sentence: the change that saves most wherever assumed figures lie, start by start."""
    where = f"On {answer.variant}, {answer.question.title}"
    by_name = _by_name(answer)
    if not by_name:
        return f"{where}: none of the changes can be timed; {next(iter(answer.refused.values()))}"
    best = _best(by_name)
    said = _said(by_name[best], answer.question.margin)
    if len(by_name) == 1:
        return f"{where}: {best} {said}."
    if not _saves(by_name[best]):
        return f"{where}: {_none_saves(answer, by_name, best)}."
    return f"{where}: of {len(by_name)} changes {best} buys most: it {said}{_idle(by_name)}."


def hardware_compared(answers: Sequence[HardwareAnswer]) -> str:
    """Compare products in one sentence: what buys most on each, where it surely saves most first."""
    found = []
    for answer in answers:
        by_name = _by_name(answer)
        if not by_name:
            found.append(((-inf, -inf), f"on {answer.variant} no change can be timed"))
            continue
        best = _best(by_name)
        said = f"{best} {_said(by_name[best], answer.question.margin)}"
        if len(by_name) > 1 and not _saves(by_name[best]):
            said = f"none of {len(by_name)} changes surely saves time"
        found.append((_surely(by_name[best]), f"on {answer.variant} {said}"))
    # Of equal ones in the order in which they were asked for.
    parts = [said for _, said in sorted(found, key=lambda pair: pair[0], reverse=True)]
    return f"{answers[0].question.title}, what saves most first: {'; '.join(parts)}."


def verdict(gain: Gain, margin: float) -> str:
    """Say that a gain is none, or may be none, or comes of other plans; "" where nothing is to be said."""
    if not gain.distinguishable:
        moved = gain.share or (gain.doubt and (gain.doubt.low or gain.doubt.high))
        return UNCLEAR if moved else NOTHING
    return "; ".join(filter(None, (_of_plans(gain), BELOW if abs(gain.share) < margin else "")))


def interval(gain: Gain) -> str:
    """Print between what a gain lies."""
    assert gain.doubt is not None
    return f"{share(gain.doubt.low)} to {share(gain.doubt.high)} %"


def share(part: float) -> str:
    """Print a part of 1 as a percentage of one decimal, a small one of two digits: only 0 is 0."""
    percents = 100 * part
    return f"{percents:.1f}" if not part or abs(percents) >= 0.1 else f"{percents:.2g}"


def _by_name(answer: HardwareAnswer) -> dict[str, list[Gain]]:
    found: dict[str, list[Gain]] = {}
    for gain in answer.gains:
        found.setdefault(gain.change, []).append(gain)
    return found


def _best(by_name: Mapping[str, Sequence[Gain]]) -> str:
    """Name the change that surely saves most, of equal ones the first."""
    return max(by_name, key=lambda name: _surely(by_name[name]))


def _surely(gains: Sequence[Gain]) -> tuple[float, float]:
    """Return what a change saves at least under its worst start, and then under its best one."""
    least = [gain.doubt.low if gain.doubt else gain.share for gain in gains]
    return min(least), max(least)


def _saves(gains: Sequence[Gain]) -> bool:
    """Tell whether a change saves time under some start, wherever assumed figures lie."""
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
    said = _said(by_name[best], answer.question.margin)
    return f"{none} saves time {starts}; {best}, the least costly, {said}"


def _unlike(by_name: Mapping[str, Sequence[Gain]]) -> tuple[int, int]:
    """Count the changes that change nothing under any start, and those that may be none under all."""
    same = [{verdict(gain, 0.0) for gain in gains} for gains in by_name.values()]
    nothing = sum(verdicts == {NOTHING} for verdicts in same)
    return nothing, sum(verdicts <= {NOTHING, UNCLEAR} for verdicts in same) - nothing


def _idle(by_name: Mapping[str, Sequence[Gain]]) -> str:
    """Say how many changes are none, as the end of a sentence."""
    nothing, unclear = _unlike(by_name)
    change = f"; {nothing} of them {'changes' if nothing == 1 else 'change'} nothing" if nothing else ""
    return change + (f"; {unclear} of them cannot be told from no change" if unclear else "")


def _said(gains: Sequence[Gain], margin: float) -> str:
    """Say what a change buys, start by start; starts of which the same is true together."""
    starts: dict[str, list[str]] = {}
    for gain in gains:
        starts.setdefault(_saving(gain, margin), []).append(gain.start)
    return " and ".join(f"{said} with L2 {' and '.join(own)}" for said, own in starts.items())


def _saving(gain: Gain, margin: float) -> str:
    told = verdict(gain, margin)
    if told == NOTHING:
        return "changes nothing"
    within = f" ({interval(gain)})" if gain.doubt else ""
    if told == UNCLEAR:
        return f"is {UNCLEAR} from no change{within}"
    said = f"{'saves' if gain.share > 0 else 'costs'} {share(abs(gain.share))} %{within}"
    plans, clauses = _of_plans(gain), []
    if plans == NO_FIT:
        clauses.append("under new plans since old ones do not fit")
    elif plans:
        each = (f"{name} {share(1 - us / gain.base_us)} %" for name, us in _two_plans(gain))
        said += f" {plans} ({', '.join(each)})"
    if BELOW in told:
        clauses.append(f"below the model's margin of {share(margin)} %")
    return ", ".join([said, *clauses]) + ("," if clauses else "")


def _two_plans(gain: Gain) -> tuple[tuple[str, float], ...]:
    assert gain.same_us is not None
    return ("same plan", gain.same_us), ("planned anew", gain.anew_us)


def _of_plans(gain: Gain) -> str:
    """Say how much of a saving comes of plans that are chosen for the changed product alone."""
    if gain.share <= 0:
        return ""
    if gain.plan_share is None:
        return NO_FIT
    if gain.plan_share >= gain.share / 2:
        return BY_PLAN
    return PARTLY if gain.plan_share >= gain.share / 10 else ""
