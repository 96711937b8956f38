"""How a gradient runs under two plans, as tables, a picture and plain values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ascendsim.report.numbers import percent
from ascendsim.report.page.charts import Stack, stacked
from ascendsim.report.page.held import Curve, held
from ascendsim.report.page.records import Picture, Section
from ascendsim.report.tables import TextTable
from ascendsim.studies.tuning.records import BufferUse, Course, Part, TilingAnswer

# So many causes of the critical path fit beside the other tables of a terminal.
BRIEF = 6
Sides = tuple[tuple[str, str], ...]
SIDES: Sides = (("usual", "before"), ("best", "after"))
DEFINITIONS = {
    "entry, fill, steady, drain": "The cycles of the product, on the core whose cube ends last: up to its "
    "first instruction; until the cube takes up its first product of tiles; until the last one has left the "
    "cube; until the last result of the kernel is visible. With the other kernels they add up to all cycles.",
    "critical path": "The chain of causes from the last cycle of the product back to its first: which pipe "
    "was busy, how long results took to be visible (latency), how long a flag took to wake a pipe, issue by "
    "the scalar unit S, barriers between phases, and the entry. Its steps follow each other without a gap, "
    "so that with the other kernels they add up to all cycles.",
    "held, reserved": "Bytes of a buffer that hold a tile: from when the first instruction that makes it "
    "takes up its pipe until the last that reads it has left its own. Reserved is what the plan's tiles and "
    "their copies take, whether they hold something or not. Of the cube core that ends last, and of the "
    "vector core that does.",
}


def of_one_plan(table: TextTable, title: str) -> TextTable:
    """Return a table of both plans as one of the usual plan, which is the best: nothing is told twice."""
    shown = [at for at, heading in enumerate(table.headings) if heading not in ("best", "difference", "plan")]
    at = table.headings.index("plan") if "plan" in table.headings else None
    rows = [row for row in table.rows if at is None or row[at] == "usual"]
    return table._replace(
        title=title,
        headings=tuple(table.headings[at] for at in shown),
        left=frozenset(new for new, at in enumerate(shown) if at in table.left),
        rows=tuple(tuple(row[at] for at in shown) for row in rows),
    )


def stages_table(courses: Sequence[Course]) -> TextTable:
    """Show entry, fill, steady and drain of both plans under every start, and the differences."""
    names = list(dict.fromkeys(part.what for course in courses for part in course.stages))
    rows = []
    for course in courses:
        parts = {part.what: part for part in course.stages}
        known = [parts.get(name, Part(name, 0, 0)) for name in names]
        befores, afters = ([getattr(part, when) for part in known] for _, when in SIDES)
        changes = [after - before for before, after in zip(befores, afters, strict=True)]
        for said, cells, form in (
            ("usual", befores, ","),
            ("best", afters, ","),
            ("difference", changes, "+,"),
        ):
            shown = (format(cycles, form) for cycles in (*cells, sum(cells)))
            rows.append((course.start, said, *shown))
    headings = ("L2", "plan", *names, "all cycles")
    return TextTable("Entry, fill, steady and drain in cycles", headings, frozenset({0, 1}), tuple(rows))


def path_table(course: Course, most: int | None = None) -> TextTable:
    """Show the critical paths of both plans side by side; of many causes only the `most` largest."""
    parts: Sequence[Part] = sorted(course.path, key=lambda part: -max(part.before, part.after))
    if most is not None and len(parts) > most + 1:
        parts = _brief(parts, [part.what for part in parts[:most]])
    total = Part("all cycles", *(sum(getattr(part, when) for part in parts) for _, when in SIDES))
    rows = tuple(
        (part.what, f"{part.before:,}", f"{part.after:,}", f"{part.after - part.before:+,}")
        for part in (*parts, total)
    )
    title = f"The critical paths with L2 {course.start}, by pipe and cause"
    return TextTable(title, ("", "usual", "best", "difference"), frozenset({0}), rows, total=True)


def deciding(answer: TilingAnswer) -> Course:
    """Return the course under the start in which the best plan takes longest, which a worst score counts."""
    times = answer.best.times_us
    return max(answer.courses, key=lambda course: times[course.start])


def buffers_table(course: Course) -> TextTable:
    """Show what both plans reserve and hold of each buffer."""
    rows = tuple(_buffer_row(use, name) for use, name in _uses(course))
    headings = ("buffer", "plan", "tiles", "reserved", "capacity", "share", "most held", "mean held")
    title = f"Buffers in bytes with L2 {course.start}"
    return TextTable(title, headings, frozenset({0, 1, 2}), rows)


def _uses(course: Course, sides: Sides = SIDES) -> Iterator[tuple[BufferUse, str]]:
    """Yield the use of each buffer by each plan, buffer after buffer."""
    for buffer in dict.fromkeys(use.buffer for use in (*course.before, *course.after)):
        for name, when in sides:
            yield from ((use, name) for use in getattr(course, when) if use.buffer == buffer)


def _buffer_row(use: BufferUse, name: str) -> tuple[str, ...]:
    tiles = ", ".join(f"{what} {copies} x {size:,}" for what, copies, size in use.tiles)
    sizes = (
        f"{use.reserved_bytes:,}",
        f"{use.capacity_bytes:,}",
        percent(use.reserved_bytes / use.capacity_bytes),
    )
    return use.buffer, name, tiles, *sizes, f"{use.most_bytes:,}", f"{use.mean_bytes:,.0f}"


def buffers_picture(course: Course, sides: Sides = SIDES) -> Picture:
    """Draw how full each buffer is over the product's time, the usual plan on the left."""
    curves = [
        Curve(use.buffer, name, use.curve, use.reserved_bytes, use.capacity_bytes)
        for use, name in _uses(course, sides)
    ]
    both = "both plans on one scale of" if len(sides) > 1 else "of"
    caption = (
        f"Bytes held of each buffer over the time of the product with L2 {course.start}, {both} "
        f"{course.cycles:,} cycles. The frame is the capacity, the line what is reserved."
    )
    return Picture(held(curves, [name for name, _ in sides], course.cycles), caption)


def stages_picture(courses: Sequence[Course], sides: Sides = SIDES) -> Picture:
    """Draw the stages of both plans under every start."""
    parts = {course.start: course.stages for course in courses}
    return _stacked(parts, f"Entry, fill, steady and drain of {plans_in_words(sides)}.", sides)


def paths_picture(courses: Sequence[Course], sides: Sides = SIDES) -> Picture:
    """Draw the critical paths of both plans under every start; the causes that take least as one."""
    largest: dict[str, int] = {}
    for part in (part for course in courses for part in course.path):
        largest[part.what] = max(largest.get(part.what, 0), part.before, part.after)
    shown = sorted(largest, key=lambda name: -largest[name])[:BRIEF]
    parts = {course.start: _brief(course.path, shown) for course in courses}
    return _stacked(parts, f"What the cycles on the critical path go to, of {plans_in_words(sides)}.", sides)


def plans_in_words(sides: Sides) -> str:
    """Name the plans that are drawn."""
    return "both plans" if len(sides) > 1 else "the usual plan"


def _brief(parts: Sequence[Part], shown: Sequence[str]) -> tuple[Part, ...]:
    """Return the parts of these names, in their order, and all others as one."""
    known = {part.what: part for part in parts}
    rest = [part for part in parts if part.what not in shown]
    before, after = (sum(getattr(part, when) for part in rest) for _, when in SIDES)
    others = (Part("other causes", before, after),) if rest else ()
    return (*(known[name] for name in shown if name in known), *others)


def _stacked(parts: Mapping[str, Sequence[Part]], caption: str, sides: Sides) -> Picture:
    stacks = [
        Stack(f"{name}, L2 {start}", tuple((part.what, getattr(part, when)) for part in found))
        for start, found in parts.items()
        for name, when in sides
    ]
    return Picture(stacked(stacks, "cycles"), caption)


def course_sections(courses: Sequence[Course], *, one: bool = False) -> tuple[Section, ...]:
    """Return the sections of a page; `one`: of the usual plan alone, which is the best."""
    sides = SIDES[:1] if one else SIDES
    stages, *others = (
        of_one_plan(table, table.title) if one else table
        for table in (stages_table(courses), *map(path_table, courses), *map(buffers_table, courses))
    )
    paths, buffers = others[: len(courses)], others[len(courses) :]
    drawn = tuple(buffers_picture(course, sides) for course in courses)
    return (
        Section("Fill, steady and drain", (), (stages_picture(courses, sides),), (stages,)),
        Section("The critical paths", (), (paths_picture(courses, sides),), tuple(paths)),
        Section("What the buffers hold", (), drawn, tuple(buffers)),
    )


def course_record(course: Course) -> Mapping[str, Any]:
    """Return a course as plain values, without the curves of a picture."""
    return {
        "l2_start": course.start,
        "stages": {part.what: [part.before, part.after] for part in course.stages},
        "critical_path": {part.what: [part.before, part.after] for part in course.path},
        "buffers": [
            {
                "buffer": use.buffer,
                "plan": name,
                "capacity_bytes": use.capacity_bytes,
                "reserved_bytes": use.reserved_bytes,
                "tiles": [list(tile) for tile in use.tiles],
                "most_bytes": use.most_bytes,
                "mean_bytes": use.mean_bytes,
            }
            for use, name in _uses(course)
        ],
    }
