"""Where the bytes of a call go, what energy that takes, and what binds it: tables, pages, JSON."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Any

from ascendsim.profile.new import unit_of
from ascendsim.profile.schema import LEVELS
from ascendsim.profile.voltage import LEAKAGE
from ascendsim.report.page import Page, Picture, Section, StackedBar, Stacks
from ascendsim.report.studies.answer import Answered
from ascendsim.report.tables import size, value
from ascendsim.studies.accounts import (
    SHOWN,
    EnergyEvent,
    Lever,
    LeverAnswer,
    TrafficAnswer,
    energy_between,
    energy_pj,
    lacking,
)
from ascendsim.studies.table import (
    Table,
    form,
    microseconds,
    numbers,
    percent,
    saving,
    share,
    three_digits,
    us,
    words,
)

BYTES = (
    *(words("layer"), numbers("count", show=str), words("kernel"), words("level"), words("operand")),
    *(numbers("read", "read_bytes"), numbers("written", "written_bytes")),
    *(numbers("tensor", "footprint_bytes"), numbers("reads per byte", "reads_per_byte", form(".2f"))),
)
HELD = (
    *(words("layer"), words("kernel"), words("level")),
    *(numbers("takes", "held_bytes", size), numbers("of", "capacity_bytes", size)),
    numbers("share", show=percent),
)
LEVEL = (
    *(words("level"), words("operand")),
    *(numbers("read", "read_bytes", size), numbers("written", "written_bytes", size)),
)
ENERGY = (
    *(
        words("figure"),
        numbers("events", "count"),
        numbers("value", "each_pj", form(".6g"), absent="unknown"),
        words("unit"),
        words("range"),
    ),
    numbers("uJ", "energy_uj", three_digits, absent="unknown"),
    *(numbers("low", "low_uj", three_digits), numbers("high", "high_uj", three_digits)),
)
LEVERS = (
    *(
        words("figure"),
        numbers("from", "value", value),
        numbers("to", "stepped", value),
        us("us", "stepped_us"),
    ),
    *(
        numbers("time %", "share", share, absent="-"),
        numbers("% per %", "elasticity", form(".2f"), absent="-"),
    ),
    *(numbers("best of both", "better", value, absent="-"), numbers("saves", show=saving, absent="-")),
)
BOUNDS = (
    *(
        words("kernel"),
        us("us", "time_us"),
        us("launch", "launch_us"),
        words("bound"),
        numbers("busy", show=percent),
    ),
    *(words("behind it", "behind"), us("us then", "behind_us"), numbers("saves", show=saving, absent="-")),
)
MEANINGS = {
    "read, written": "Bytes at the level, over all cores: of L2 in whole sectors, elsewhere without what "
    "fills up fractals. Bytes that leave L2 for memory are of any tensor that was written.",
    "reads per byte": "Bytes that are read at the level, for each byte of the tensor as the kernel sees it.",
    "time %": "What the figure alone, changed as the columns before say and plans held, adds to the time.",
    "% per %": "The logarithm of both times' ratio over that of both values: the derivative over that step.",
    "best of both, saves": "Of the figure at `to` and moved as far the other way, the value that takes less "
    "time, and the part of the time that it saves. Where it costs, both ways cost. A dash: the other way was "
    "not asked, or the call cannot be timed so under its plans.",
    "behind it": "The busiest pipe once every figure of the present bound is 16 times better, the links "
    "from and to L2 and memory among those of MTE2, MTE3 and FIX; what that saves is the most that any "
    "change of this pipe alone can buy.",
}


def bytes_table(answer: TrafficAnswer) -> Table:
    """Show each operand of each kernel at each level."""
    rows = (
        (call.layer, call.count, kernel.kernel, *move, move.reads_per_byte)
        for call in answer.calls
        for kernel in call.kernels
        for move in kernel.moves
    )
    return Table("Bytes of one call of each layer", BYTES, tuple(rows))


def held_table(answer: TrafficAnswer) -> Table:
    """Show what each kernel takes of each level."""
    rows = (
        (call.layer, kernel.kernel, level, held, capacity, held / capacity)
        for call in answer.calls
        for kernel in call.kernels
        for level, (held, capacity) in kernel.held.items()
    )
    return Table("What kernels take of each level: of L2 all their tensors", HELD, tuple(rows))


def levels_table(answer: TrafficAnswer) -> Table:
    """Show all calls with their counts, by level and operand, whatever layout that has."""
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for level, operand, read, written in _by_operand(answer):
        sums[level, operand][0] += read
        sums[level, operand][1] += written
    rows = [(*key, *own) for level in LEVELS for key, own in sums.items() if key[0] == level]
    return Table("Bytes at each level, all calls", LEVEL, tuple(rows))


def _by_operand(answer: TrafficAnswer) -> Iterator[tuple[str, str, int, int]]:
    for call in answer.calls:
        for kernel in call.kernels:
            for move in kernel.moves:
                names = dict.fromkeys(name.partition(" ")[0] for name in move.operand.split("+"))
                yield move.level, "+".join(names), call.count * move.read, call.count * move.written


def energy_table(answer: TrafficAnswer) -> Table:
    """Show the events of all calls and the energy of each kind."""
    rows = tuple(
        (one.figure, one.count, _plain(one.each_pj), unit_of(one.figure), _range_of(one), *_micro([one]))
        for one in answer.events
    )
    return Table("Energy of all calls", ENERGY, rows)


def _is_ranged(event: EnergyEvent) -> bool:
    return event.ends_pj is not None and event.ends_pj[0] != event.ends_pj[1]


def _range_of(event: EnergyEvent) -> str:
    said = " to ".join(f"{float(end):.6g}" for end in event.ends_pj or ()) if _is_ranged(event) else ""
    return f"{said}, assumed" if event.assumed else said


def _micro(events: Sequence[EnergyEvent]) -> list[float | None]:
    """Return microjoules: as figures are, at least, at most."""
    return [_plain(each, 1_000_000) for each in (energy_pj(events), *(energy_between(events) or (None,) * 2))]


def _plain(exact: Fraction | None, by: int = 1) -> float | None:
    return None if exact is None else float(exact / by)


def traffic_sentence(answer: TrafficAnswer) -> str:
    """Say how much is read at each level, and what energy is known."""
    read = ", ".join(f"{size(answer.at(level)[0])} of {level}" for level in LEVELS if any(answer.at(level)))
    found = f"{answer.question.title} on {answer.variant} reads {read}."
    energy, lacks = energy_pj(answer.events), lacking(answer.events)
    if energy is None:
        return f"{found} Its energy is unknown: no figure of [energy] is known of {answer.variant}."
    part = f" at least: {len(lacks)} figures of [energy] are not known" if lacks else ""
    known = [event for event in answer.events if event.ends_pj is not None]
    ranged, assumed = sum(map(_is_ranged, known)), sum(event.assumed for event in known)
    middle, low, high = (three_digits(number or 0.0) for number in _micro(answer.events))
    between = f" ({low} to {high})" if ranged else ""
    how_sure = f"of {len(known)} known figures {ranged} have a range, and {assumed} are assumed"
    return f"{found} It takes {middle} uJ{between}{part}; {how_sure}."


def _energy_notes(answer: TrafficAnswer) -> tuple[str, ...]:
    lacks, supply = lacking(answer.events), answer.supply
    found = [f"The energy lacks these figures of {answer.variant}: {', '.join(lacks)}."] if lacks else []
    if supply and supply.mhz != supply.nominal_mhz:
        at, held = (
            f"{mhz} MHz" + (f" and {float(volts):.4g} V" if volts else "")
            for mhz, volts in ((supply.mhz, supply.volts), (supply.nominal_mhz, supply.nominal_volts))
        )
        core, leakage = (float(supply.factor(path)) for path in ("energy.core_pj_per_cycle", LEAKAGE))
        found.append(
            f"The cores run at {at}; the figures of [energy] hold at {held}. An event of the cores takes "
            f"{core:.4g} times as much energy, a cycle of leakage {leakage:.4g} times, a byte of L2 or of "
            "memory the same."
        )
    return tuple(found)


def traffic_answered(answer: TrafficAnswer) -> Answered:
    """Return the answer for a terminal, a page and JSON."""
    every, held, levels, energy = (
        make(answer) for make in (bytes_table, held_table, levels_table, energy_table)
    )
    energy_known = energy_pj(answer.events) is not None
    total = energy.with_total(("all", *[""] * 4, *_micro(answer.events)))
    shown = (total,) * energy_known
    sentence, title = traffic_sentence(answer), f"Bytes of {answer.question.title} on {answer.variant}"
    caption = "Bytes that are read and written at each level, by operand, all calls."
    sections = (
        Section(
            "At each level", _energy_notes(answer), (Picture(_stacks(levels), caption),), (levels, *shown)
        ),
        Section("Kernel by kernel", (), (), (every, held), collapsed=True),
    )
    record = {
        "answer": sentence,
        "product": answer.variant,
        "profile": answer.digest,
        "time_us": answer.time_us,
        "energy_pj": _plain(energy_pj(answer.events)),
        "energy_between_pj": [_plain(end) for end in energy_between(answer.events) or ()],
        "lacking": list(lacking(answer.events)),
        "volts": _plain(answer.supply and answer.supply.volts),
        "bytes": every.records(),
        "held": held.records(),
        "levels": levels.records(),
        "events": energy.records(),
    }
    # Of one layer each kernel's rows fit a terminal, but for those that only change layouts.
    tables = [levels, *shown]
    if len(answer.calls) == 1:
        busy = {kernel.kernel for kernel in answer.calls[0].kernels if kernel.macs}
        tables.insert(0, _only(every, busy).without(["layer", "count"]))
        tables.insert(1, _only(held, busy).without(["layer"]))
    page = Page(title, sentence, sections, MEANINGS)
    return Answered(page, record, tuple(tables), _energy_notes(answer))


def _only(table: Table, kernels: set[str]) -> Table:
    at = table.headings.index("kernel")
    return Table(table.title, table.columns, tuple(row for row in table.values if row[at] in kernels))


def _stacks(levels: Table) -> Stacks:
    parts: dict[str, list[tuple[str, float]]] = {}
    for level, operand, read, written in levels.values:
        parts.setdefault(level, []).append((operand, (read + written) / 2**20))
    return Stacks(tuple(StackedBar(level, tuple(own)) for level, own in parts.items()), "MiB")


def levers_table(answer: LeverAnswer) -> Table:
    """Show every figure, and each kernel whose time it changes."""
    names = [bound.kernel for bound in answer.bounds]
    columns = (*LEVERS, *(us(name, f"added_us_{name}") for name in names))
    rows = (
        (*row, *(lever.kernels_us.get(name, 0.0) if lever.stepped_us is not None else None for name in names))
        for lever, row in zip(answer.levers, _lever_rows(answer.levers), strict=True)
    )
    return Table("Every figure, changed alone", columns, tuple(rows))


def _lever_rows(levers: Iterable[Lever]) -> list[tuple[Any, ...]]:
    return [tuple(getattr(lever, column.name) for column in LEVERS) for lever in levers]


def bounds_table(answer: LeverAnswer) -> Table:
    """Show what binds each kernel, and what would bind it next."""
    rows = [tuple(getattr(bound, column.name) for column in BOUNDS) for bound in answer.bounds]
    return Table("What binds each kernel, and what lies behind", BOUNDS, tuple(rows))


def why_sentence(answer: LeverAnswer) -> str:
    """Say what the time is made of, and which figures move it."""
    launch, layout = (percent(part / answer.time_us) for part in (answer.launch_us, answer.layout_us))
    found = (
        f"{answer.question.title} on {answer.variant} takes {microseconds(answer.time_us)} us: launches "
        f"{launch}, changes of layout {layout}, the rest in kernels that compute."
    )
    best = [lever for lever in answer.levers[:SHOWN] if (lever.saves or 0) > 0]
    if best:
        most = saving(max(lever.saves or 0 for lever in best))
        # Those that print alike tie.
        first = [lever for lever in best if saving(lever.saves or 0) == most]
        told = " or ".join(f"{one.figure} from {value(one.value)} to {value(one.better)}" for one in first)
        found += f" What lifts it most is {told}: {'either' if len(first) > 1 else 'that'} saves {most}."
    return found


def why_answered(answer: LeverAnswer) -> Answered:
    """Return the answer for a terminal, a page and JSON."""
    sentence, bounds, every = why_sentence(answer), bounds_table(answer), levers_table(answer)
    top = Table(f"The {SHOWN} figures that move it most", LEVERS, tuple(_lever_rows(answer.levers[:SHOWN])))
    notes = [
        f"{len(answer.levers)} figures were changed, each alone and plans held; {len(answer.still)} of them "
        "move nothing. Others are 0, no numbers, or follow from these."
    ]
    if answer.refused:
        notes.append(
            f"With these changed the call cannot be timed under its plans: {', '.join(answer.refused)}."
        )
    record = {
        "answer": sentence,
        "product": answer.variant,
        "profile": answer.digest,
        "time_us": answer.time_us,
        "launch_us": answer.launch_us,
        "layout_us": answer.layout_us,
        "bounds": bounds.records(),
        "levers": every.records(),
        "still": list(answer.still),
        "refused": list(answer.refused),
    }
    sections = (
        Section("Why", tuple(notes), (), (bounds, top)),
        Section("Every figure", (), (), (every,), collapsed=True),
    )
    page = Page(f"Why {answer.question.title} is slow on {answer.variant}", sentence, sections, MEANINGS)
    legend = (
        f"{word}: {MEANINGS[word]}" for word in ("behind it", "time %", "% per %", "best of both, saves")
    )
    return Answered(page, record, (bounds, top), tuple(notes), legend=tuple(legend))
