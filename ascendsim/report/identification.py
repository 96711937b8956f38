"""What is said of a device's accumulation model, as lines for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from ascendsim.studies.identify.records import Agreeing, Identification


def identification_lines(found: Identification, depth: int) -> Iterator[str]:
    """Yield what the answers in one format say.

    depth   products of one sum: what a kernel takes in one Mmad if it takes all
    """
    yield f"{found.format} ({', '.join(found.routes)}): {len(found.left)} of {found.candidates} models left"
    for route, reading in found.readings.items():
        yield f"  {route} reads float32 {reading}"
    for agreeing in found.left:
        yield f"  {agreeing.model}{_assumption(agreeing, depth)}"
    if not found.left:
        yield "  none of our models; the nearest, by the share of sums:"
        yield from (f"    {near.model}  {near.share:.1%}" for near in found.nearest)
    yield "  what each question alone leaves:"
    for question in dict.fromkeys(one.question for one in found.evidence):
        of_it = [one for one in found.evidence if one.question == question]
        each = ", ".join(f"{one.route} {one.left}" for one in of_it)
        yield f"    {question} ({of_it[0].sums} sums): {each}"
    if len(found.classes) > 1:
        yield "  accumulators in float32 would tell these apart, in a kernel whose Mmads are known:"
        yield from (f"    {' = '.join(members)}" for members in found.classes)
    elif len(found.left) > 1:
        yield f"  no sums of {found.format} operands that were tried tell these apart, even in float32"


def _assumption(agreeing: Agreeing, depth: int) -> str:
    """Say what must be assumed of the kernels for a model to agree."""
    assumed = [
        f"{route}: {f'{parts} parts added in float32, ' if parts > 1 else ''}Mmads of {mmad}"
        for (route, mmad), parts in zip(agreeing.mmad.items(), agreeing.parts.values(), strict=True)
        if (mmad, parts) != (depth, 1)
    ]
    return f"  (only with {'; '.join(assumed)})" if assumed else ""
