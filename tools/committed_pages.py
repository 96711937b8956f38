"""The pages under reports/ that are made of the profiles and of what measured rows say of their figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ascendsim import ConvProblem, estimate
from ascendsim.report.markdown import table_text
from ascendsim.report.validation import unmeasured
from ascendsim.studies.sweep import Sweep
from ascendsim.studies.table import text_table

if TYPE_CHECKING:
    from ablation import Ablation
    from ascendsim.profile import Profile, ShippedProduct
    from ascendsim.studies.records import FigureEffect

# The best measured product first.
PRODUCTS = ("910B", "910_93", "910_95", "310P", "910")
# A change below this is no effect: the page prints tenths of a percent.
SMALL = 0.0005


# The main job: the 3x3 layer with 128 channels of ResNet-50, batch 4, both gradients in float16.
LAYER = ConvProblem((4, 128, 28, 28), (128, 128, 3, 3), 1, 1)
LAYER_NAME = "the 128->128 3x3 @28x28 layer of ResNet-50, batch 4, float16"


def sensitivity(product: str) -> tuple[FigureEffect, ...]:
    """Return the effect of every figure of a product that has a range on both gradients of `LAYER`."""
    return Sweep.of(product, _call).effects(lambda _: None)


def _call(profile: Profile, plans: Any) -> Any:
    return estimate(LAYER, product=profile, output_mask=(True, True, False), tiling=plans)


def constants_part(ablations: Mapping[str, Sequence[Ablation]]) -> list[str]:
    """Return the calibrated constants by product, with the errors of their rows with and without them."""
    parts = [
        "## Calibrated constants",
        "Median and mean of the errors of the rows named, with and without.",
    ]
    for product, found in ablations.items():
        table = [
            (
                f"`{item.path}`",
                f"{item.value}",
                f"{item.without}",
                ", ".join(item.rows),
                str(item.count),
                f"{item.kept[0]:.1%}, {item.kept[1]:.1%}",
                f"{item.dropped[0]:.1%}, {item.dropped[1]:.1%}",
            )
            for item in found
        ]
        if not table:
            parts.append(f"**{product}**: none; there is nothing to fit them on.")
            continue
        headings = ("constant", "value", "without", "fitted on rows", "rows", "errors", "errors without")
        parts.append(table_text(text_table(product, headings, frozenset({0, 3}), tuple(table))))
    return parts


def profiles_page(profiles: Sequence[Profile], products: Sequence[ShippedProduct]) -> str:
    """Return the page with all figures of all products side by side, and the variants of each."""
    # Products have figures of their own, such as links between cube and vector cores; all get a row.
    paths = list(dict.fromkeys(path for profile in profiles for path in profile.figures))
    rows = [(f"`{path}`", *(_cell(profile, path) for profile in profiles)) for path in sorted(paths)]
    headings = ("figure", *(f"{profile.product} ({profile.variant})" for profile in profiles))
    variants = tuple((item.name, item.default_variant, ", ".join(item.variants)) for item in products)
    evidence = tuple((profile.product, profile.evidence) for profile in profiles)
    named = ("product", "plain name means", "variants")
    parts = (
        "# Products side by side",
        "Every figure of the five products; `ascendsim profiles NAME` adds its source, "
        "`docs/profiles.md` explains the names. An asterisk marks what nobody published or measured; "
        "its range follows.",
        table_text(text_table("What was measured", ("product", "in public"), frozenset({0, 1}), evidence)),
        unmeasured(),
        table_text(text_table("Variants", named, frozenset({0, 1, 2}), variants)),
        table_text(text_table("Figures", headings, frozenset({0}), tuple(rows))),
    )
    return "\n\n".join(parts) + "\n"


def _cell(profile: Profile, path: str) -> str:
    """Return a figure as a cell; a product that lacks it has none."""
    figure = profile.figures.get(path)
    if figure is None:
        return ""
    text = _text(figure.value)
    if figure.confidence != "assumed" or figure.range is None:
        return text
    # A number may lie anywhere from end to end, a text is one of the alternatives.
    ends = [_text(end) for end in figure.range]
    return f"{text}* ({' or '.join(ends) if isinstance(figure.value, str) else ' to '.join(ends)})"


def _text(value: Any) -> str:
    """Print a figure in full: these pages are compared, where a terminal is read."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        return " ".join(str(part) for part in value) or "none"
    return f"{float(value):g}" if not isinstance(value, str) else value


def sensitivity_page(call: str, effects: Mapping[str, Sequence[FigureEffect]]) -> str:
    """Return the page on the effects of each product's figures with a range; `call` names the timed call."""
    parts = [
        "# What the ranges of figures move",
        "Each figure with a range at both ends of it, with those of the same source, all others and the "
        f"plans as they are: the change of the time of both gradients of {call}. Figures that move it by "
        f"less than {SMALL:.2%} at both ends are named below each table; accumulation models move bits, not "
        "cycles.",
        unmeasured(),
    ]
    headings = ("figure", "value", "low", "high", "time at low", "time at high")
    for product, found in effects.items():
        # The path decides between equal changes, so that the page is the same whatever order they come in.
        ordered = sorted(found, key=lambda effect: (-effect.largest_change, effect.figure))
        rows = tuple(_effect_row(effect) for effect in ordered if effect.largest_change >= SMALL)
        parts.append(table_text(text_table(product, headings, frozenset({0}), rows)))
        still = ", ".join(f"`{effect.figure}`" for effect in ordered if effect.largest_change < SMALL)
        parts.append(f"No effect here: {still}." if still else "Every figure with a range moves it.")
    return "\n\n".join(parts) + "\n"


def _effect_row(effect: FigureEffect) -> tuple[str, ...]:
    """Return the cells of one figure; an end that others contradict has no time."""
    figures = (_text(figure) for figure in (effect.value, effect.low, effect.high))
    times = ("not possible" if change is None else f"{change:+.1%}" for change in effect.changes)
    return (f"`{effect.figure}`", *figures, *times)
