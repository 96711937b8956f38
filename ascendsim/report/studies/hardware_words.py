"""Gains by changes of the hardware, in a sentence and in verdicts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Any

from ascendsim.report.tables import value
from ascendsim.studies.hardware.records import Design, Doubt, Gain, HardwareAnswer
from ascendsim.studies.table import saving, share
from ascendsim.studies.verdicts import GainVerdict, condition_words

# The most figures of a change that a sentence shows with their values.
NAMED = 3

UNCLEAR, NOTHING = "unclear", "no change"
HANGS, ONLY_PLAN = "hangs on a figure", "another plan alone"
NEEDS, PARTLY = "needs a new plan", "partly needs a new plan"
NO_FIT = "old plan does not fit"
# Of what surely saves, or costs, more than the margin.
SURE = ("", NEEDS, PARTLY, NO_FIT)


def hardware_sentence(answer: HardwareAnswer) -> str:
    """Answer in one sentence: the change that saves most wherever ranged figures lie, start by start."""
    where = f"On {answer.variant}, {answer.question.title}"
    by_name = _by_name(answer)
    if not by_name:
        return f"{where}: none of the changes can be timed; {next(iter(answer.refused.values()))}"
    best = _best(by_name)
    said, name = _said(by_name[best], answer.question.margin), named(by_name[best][0])
    if len(by_name) == 1:
        return f"{where}: {name} {said}."
    if not _saves(by_name[best], answer.question.margin):
        return f"{where}: {_none_saves(answer, by_name, best)}."
    idle = _idle(by_name, answer.question.margin)
    return f"{where}: of {len(by_name)} changes {name} buys most: it {said}{idle}."


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
        if len(by_name) > 1 and not _saves(by_name[best], answer.question.margin):
            said = f"none of {len(by_name)} changes surely saves time"
        found.append((_surely(by_name[best]), f"on {answer.variant} {said}"))
    # Of equal ones in the order in which they were asked for.
    parts = [said for _, said in sorted(found, key=lambda pair: pair[0], reverse=True)]
    return f"{answers[0].question.title}, what saves most first: {'; '.join(parts)}."


def named(gain: Gain) -> str:
    """Name a change with what its figures are on the product and become: a factor says neither."""
    moved = [(path, f"{value(old)} to {value(new)}") for path, (old, new) in gain.figures.items()]
    if len(moved) > NAMED or not moved:
        return gain.change + without(gain)
    # The name of a change that is no name of its own has the figure's path.
    alone = len(moved) == 1 and moved[0][0] in gain.change
    figures = moved[0][1] if alone else ", ".join(" ".join(pair) for pair in moved)
    return f"{gain.change} ({figures}){without(gain)}"


def without(changed: Gain | Design) -> str:
    """Say which layers the times of a change leave out, as it cannot run them; "" for none."""
    names = list(changed.without)
    if not names:
        return ""
    said = ", ".join(names) if len(names) <= NAMED else f"{len(names)} layers"
    return f" without {said}"


def left_out(name: str, refused: Mapping[str, str]) -> Iterator[str]:
    """Yield each layer that a change cannot run, and why."""
    for layer, reason in refused.items():
        why = reason.partition("\n")[0].rstrip(".")
        yield f"{name} cannot run {layer}, which no time of it counts: {why}."


def verdict(gain: Gain, margin: float) -> str:
    """Say whether the change itself saves or costs more than the margin; of what surely does, by which plans.

    That is sure where it holds with each figure at either end of its range, and with all that lower it.
    """
    doubt = gain.doubt
    if doubt and doubt.conditions:
        return HANGS
    if not gain.own_share and not (doubt and (doubt.low or doubt.high)):
        return ONLY_PLAN if gain.plan_share else NOTHING
    if abs(gain.own_share) <= margin or not gain.distinguishable:
        return UNCLEAR
    return _of_plans(gain)


def condition(gain: Gain, margin: float) -> str:
    """Say on which figures it hangs that a change itself saves, or costs; "" where it hangs on none."""
    if gain.doubt is None:
        return ""
    # Those that move most: a sentence has room for few.
    own = sorted(gain.doubt.conditions, key=lambda one: -abs(one.share - abs(gain.own_share)))
    verdict = GainVerdict(gain.own_share, abs(gain.own_share) > margin, conditions=tuple(own[:NAMED]))
    said = condition_words(verdict, _near)
    return said + (f" ({len(own) - NAMED} more in --json)" if len(own) > NAMED else "")


def _near(end: Any) -> str:
    return f"{end:.3g}" if isinstance(end, float) else value(end)


def within_words(doubt: Doubt) -> str:
    """Print between what a saving lies, and the figure that moves it most."""
    return between((doubt.low, doubt.high)) + (f", most by {doubt.most}" if doubt.most else "")


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


def _saves(gains: Sequence[Gain], margin: float) -> bool:
    """Return whether a change surely saves time under some start."""
    return any(gain.own_share > 0 and verdict(gain, margin) in SURE for gain in gains)


def _none_saves(answer: HardwareAnswer, by_name: Mapping[str, Sequence[Gain]], best: str) -> str:
    """Say that no change saves time: all of them change nothing, may be none, or cost."""
    none, margin = f"none of {len(by_name)} changes", answer.question.margin
    starts = f"with L2 {' or '.join(answer.question.starts)}"
    idle = _idle(by_name, margin)
    if all(_told(gains, margin) == {NOTHING} for gains in by_name.values()):
        return f"{none} changes anything {starts}"
    if idle or margin:
        return f"{none} surely saves {_more_than(margin)}{starts}{idle}"
    said = _said(by_name[best], margin)
    return f"{none} saves time {starts}; {named(by_name[best][0])}, the least costly, {said}"


def _more_than(margin: float) -> str:
    return f"more than {share(margin)} % " if margin else "time "


def _told(gains: Sequence[Gain], margin: float) -> set[str]:
    return {verdict(gain, margin) for gain in gains}


def _idle(by_name: Mapping[str, Sequence[Gain]], margin: float) -> str:
    """Say how many changes are none, as the end of a sentence."""
    told = [_told(gains, margin) for gains in by_name.values()]
    nothing = sum(verdicts == {NOTHING} for verdicts in told)
    unclear = sum(UNCLEAR in verdicts <= {NOTHING, ONLY_PLAN, UNCLEAR} for verdicts in told)
    alone = sum(ONLY_PLAN in verdicts <= {NOTHING, ONLY_PLAN} for verdicts in told)
    hanging = [name for name, verdicts in zip(by_name, told, strict=True) if HANGS in verdicts]
    said = f"; {nothing} of them {'changes' if nothing == 1 else 'change'} nothing" if nothing else ""
    said += f"; {unclear} of them cannot be distinguished from none" if unclear else ""
    said += f"; of {alone} of them only another plan helps, which needs no change" if alone else ""
    if hanging:
        first = next(gain for gain in by_name[hanging[0]] if condition(gain, margin))
        also = f" (and of {len(hanging) - 1} more)" if len(hanging) > 1 else ""
        said += f"; of {named(first)}{also} it hangs on a figure: it {own_saving(first, margin)}"
    return said


def _said(gains: Sequence[Gain], margin: float) -> str:
    """Describe the gain of a change, start by start; starts with equal gains stand together."""
    starts: dict[str, list[str]] = {}
    for gain in gains:
        starts.setdefault(_saving(gain, margin), []).append(gain.start)
    told = {said: f"with L2 {' and '.join(own)}" for said, own in starts.items()}
    # What differs in its bracket alone is said once.
    heads = {said.partition(" (")[0] for said in told}
    if len(heads) == 1 < len(told) and all(said.find(")") == len(said) - 1 for said in told):
        return heads.pop() + " and".join(f" {at} ({said.partition(' (')[2]}" for said, at in told.items())
    return " and ".join(f"{said} {at}" for said, at in told.items())


def _saving(gain: Gain, margin: float) -> str:
    said = own_saving(gain, margin)
    if not gain.plan_share:
        return said
    also = "and" if gain.own_share > 0 and verdict(gain, margin) in SURE else "but"
    small = " (within the margin)" if gain.plan_share <= margin else ""
    return (
        f"{said}, {also} another plan that the product as it is can follow saves "
        f"{share(gain.plan_share)} %{small},"
    )


def own_saving(gain: Gain, margin: float) -> str:
    """Give the saving of the change itself, beside plans that need no change."""
    told, itself = verdict(gain, margin), "itself " if gain.plan_share else ""
    within = f" ({within_words(gain.doubt)})" if gain.doubt else ""
    verb = "saves" if gain.own_share > 0 else "costs"
    # The verb is said once.
    said = f"{itself}{verb} {share(abs(gain.own_share))} %{within.replace('(costs ', '(')}"
    if abs(gain.own_share) > margin and told == HANGS:
        return f"{said} if {condition(gain, margin)}"
    if told == HANGS and gain.doubt:
        most = max(one.share for one in gain.doubt.conditions)
        none = "changes nothing" if not gain.own_share else "is not distinguishable from no change"
        return f"{itself}{none}{within}, but saves up to {share(most)} % if {condition(gain, margin)}"
    if told in (NOTHING, ONLY_PLAN):
        return f"{itself}changes nothing"
    if told == UNCLEAR:
        said = within_words(gain.doubt) if gain.doubt else f"{verb} {share(abs(gain.own_share))} %"
        said += f"; margin {share(margin)} %" if gain.distinguishable else ""
        return f"{itself}is not distinguishable from no change ({said})"
    plans = _of_plans(gain)
    if plans == NO_FIT:
        return f"{said}, under new plans since old ones do not fit" + ("" if gain.plan_share else ",")
    partly = "partly " if plans == PARTLY else ""
    return f"{said} {partly}by a plan that needs it ({', '.join(_two_plans(gain))})" if plans else said


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
