"""What the all-reduce of data parallel training takes of a step: sentence, tables, page, JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from ascendsim.profile import load_profile
from ascendsim.report.page import Page, Section
from ascendsim.report.studies.answer import Answered, Compared
from ascendsim.report.tables import value
from ascendsim.studies.table import Table, form, microseconds, numbers, percent, share, us, words

if TYPE_CHECKING:
    from ascendsim.studies.devices_records import DevicesAnswer

RATE = form(",.4g")
STEPS = (
    *(words("L2", "l2_start"), us("calls us", "calls_us"), us("all-reduce us", "reduce_us")),
    *(us("added us", "added_us"), numbers("alone %", "alone_share", share)),
    *(numbers("overlapped %", "added_share", share),),
    *(numbers("needs GB/s", "needed_gb_per_s", RATE, absent="no link"),),
    *(numbers("alone GB/s", "needed_alone_gb_per_s", RATE, absent="no link"),),
)
LAYERS = (
    *(words("layer"), numbers("count", show=str), us("call us", "call_us")),
    *(numbers("gradient bytes", "gradient_bytes"), us("all-reduce us", "reduce_us")),
)
NOTES = (
    "A step here is the backward of what is listed, in the times of one device; the forward is not in it. "
    "Layers run last first, equal ones one after the other; a layer's gradients go when its call has ended, "
    "one layer's at a time, in the format of the tensors.",
    "Not modelled: what the all-reduce takes of memory, L2 and vector cores while calls run.",
)
DEFINITIONS = {
    "all-reduce": "A ring of n devices: 2 (n - 1) steps, each of an nth of the bytes and one latency.",
    "added": "What the all-reduces add to the calls of a device if each begins as soon as it can.",
    "alone, overlapped": "Their part of the step, begun after all calls, or as soon as they can.",
    "needs GB/s, alone GB/s": "The slowest link, in each direction, at which the all-reduce takes no more of "
    "the step than counts as none (--most): overlapped with calls, and alone, begun after all calls.",
}


def devices_sentence(answer: DevicesAnswer) -> str:
    """Answer in one sentence."""
    question, ring, first = answer.question, answer.ring, answer.steps[0]
    where = f"On {ring.devices} {answer.variant} with {float(ring.gb_per_s):g} GB/s{_ranged(answer)} and "
    where += f"{float(ring.latency_us):g} us between them, {question.title} each"
    takes = f"begun after the backward, the all-reduce takes {share(first.alone_share)} % of both together, "
    takes += f"overlapped {share(first.added_share)} % ({microseconds(first.added_us)} us)"
    most = percent(float(question.most))
    if first.needed_gb_per_s is None:
        return f"{where}: {takes}; no link brings it to {most}: its latencies alone take longer."
    return f"{where}: {takes}; {RATE(first.needed_gb_per_s)} GB/s bring it to {most}."


def _ranged(answer: DevicesAnswer) -> str:
    """Say between what the product's figure of the link lies, where it is the product's and has a range."""
    figure = load_profile(answer.question.product).figures.get("package.link_gb_per_s")
    if answer.question.gb_per_s is not None or figure is None or figure.range is None:
        return ""
    factor = float(answer.question.factor)
    low, high = (value(end * factor if factor != 1 else end) for end in (figure.range[0], figure.range[-1]))
    return f" ({figure.confidence}, {low} to {high})"


def devices_answered(answer: DevicesAnswer) -> Answered:
    """Tell an answer."""
    table = Table.of("The step of one device, and the all-reduce", STEPS, answer.steps)
    layers = [Table.of(f"Layers, L2 {step.l2_start}", LAYERS, step.layers) for step in answer.steps]
    sentence, title = devices_sentence(answer), f"{answer.question.title}, on several devices"
    sections = (Section("Steps", NOTES, (), (table,)), Section("Layers", (), (), tuple(layers)))
    legend = tuple(f"{word}: {meaning}" for word, meaning in DEFINITIONS.items())
    ring = {name: float(value) for name, value in answer.ring._asdict().items()}
    record = {
        "answer": sentence,
        "variant": answer.variant,
        "ring": ring | {"devices": answer.ring.devices},
        "most": float(answer.question.most),
        "steps": [asdict(step) for step in answer.steps],
    }
    return Answered(Page(title, sentence, sections, DEFINITIONS, {}), record, (table,), NOTES, legend=legend)


def devices_compared(answers: Sequence[DevicesAnswer]) -> Compared:
    """Compare products by the part of the step that the all-reduce takes."""
    told = "; ".join(f"{one.variant} {share(one.steps[0].added_share)} %" for one in answers)
    title = f"{answers[0].question.title}, on several devices"
    return Compared(title, f"Of the step the overlapped all-reduce takes: {told}.")
