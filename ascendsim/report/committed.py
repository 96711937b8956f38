"""The pages under reports/: products side by side, what their assumed figures move, and the validation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ascendsim.profile import list_products, load_profile
from ascendsim.report.files import make_folder, write_text
from ascendsim.report.tables import TextTable
from ascendsim.report.validation import DEFINITIONS, UNMEASURED, outside_part, quoted_part, table_text

if TYPE_CHECKING:
    from ascendsim.profile import Profile
    from ascendsim.validate.run import Validation
    from ascendsim.validate.schema import Row, Unusable

PRODUCTS = ("910B", "910_93", "910_95", "310P", "910")
OUTSIDE = "<!-- what follows needs the outside table -->"
# A change below this is no effect.
SMALL = 0.0005


def write_validation(folder: Path, quoted: Validation, outcome: Validation) -> None:
    """Write the page of a validation and its scatter plot into a folder."""
    from ascendsim.report.scatter import plot_scatter

    make_folder(folder)
    write_text(folder / "validation.md", validation_page(quoted, outcome, []))
    if outcome.cases:
        plot_scatter(folder / "validation.png", outcome.cases)


def validation_page(quoted: Validation, outcome: Validation, constants: Sequence[str]) -> str:
    """Return the page: what is quoted, then, after a mark, what comes of the table at hand."""
    parts = ["# Measured and estimated", DEFINITIONS, UNMEASURED, *quoted_part(quoted)]
    parts += [OUTSIDE, *outside_part(outcome), *constants]
    return "\n\n".join(parts) + "\n"


def constants_part(rows: Sequence[Row | Unusable]) -> list[str]:
    """Return the calibrated constants of each product, and what the errors of their rows are without them."""
    from ascendsim.validate.ablation import ablations

    parts = [
        "## Calibrated constants",
        "Median and mean of the errors of the rows named, with and without.",
    ]
    for product in PRODUCTS:
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
            for item in ablations(product, rows)
        ]
        if not table:
            parts.append(f"**{product}**: none; there is nothing to fit them on.")
            continue
        headings = ("constant", "value", "without", "fitted on rows", "rows", "errors", "errors without")
        parts.append(table_text(TextTable(product, headings, frozenset({0, 3}), tuple(table))))
    return parts


def profiles_page() -> str:
    """Return the page with all figures of all products side by side."""
    profiles = [load_profile(product) for product in PRODUCTS]
    paths = list(dict.fromkeys(path for profile in profiles for path in profile.figures))
    rows = [(f"`{path}`", *(_cell(profile, path) for profile in profiles)) for path in sorted(paths)]
    headings = ("figure", *(f"{profile.product} ({profile.variant})" for profile in profiles))
    variants = [
        (product.name, product.default_variant, ", ".join(product.variants)) for product in list_products()
    ]
    evidence = [(profile.product, profile.evidence) for profile in profiles]
    return (
        "\n\n".join(
            (
                "# Products side by side",
                "Every figure of the five products; `ascendsim profiles NAME` adds its source, "
                "`docs/profiles.md` explains the names. An asterisk marks what nobody published or measured; "
                "its range follows.",
                table_text(
                    TextTable(
                        "What was measured", ("product", "in public"), frozenset({0, 1}), tuple(evidence)
                    )
                ),
                UNMEASURED,
                table_text(
                    TextTable(
                        "Variants",
                        ("product", "plain name means", "variants"),
                        frozenset({0, 1, 2}),
                        tuple(variants),
                    )
                ),
                table_text(TextTable("Figures", headings, frozenset({0}), tuple(rows))),
            )
        )
        + "\n"
    )


def _cell(profile: Profile, path: str) -> str:
    """Return a figure as a cell; a product that lacks it has none."""
    figure = profile.figures.get(path)
    if figure is None:
        return ""
    text = _text(figure.value)
    if figure.confidence != "assumed" or figure.range is None:
        return text
    ends = [_text(end) for end in figure.range]
    return f"{text}* ({' or '.join(ends) if isinstance(figure.value, str) else ' to '.join(ends)})"


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        return " ".join(str(part) for part in value)
    return f"{float(value):g}" if not isinstance(value, str) else value


def sensitivity_page() -> str:
    """Return the page that moves every assumed figure of every product to both ends of its range."""
    from ascendsim.studies.sensitivity import LAYER_NAME, effects

    parts = [
        "# What the assumed figures move",
        "Each figure that nobody published or measured at both ends of its range, all others and the plans "
        f"as they are: the change of the time of both gradients of {LAYER_NAME}. Figures that move it by "
        f"less than {SMALL:.2%} at both ends are named below each table; accumulation models move bits, not "
        "cycles.",
        UNMEASURED,
    ]
    for product in PRODUCTS:
        found = sorted(effects(product), key=lambda effect: (-effect.size, effect.path))
        moving = [effect for effect in found if effect.size >= SMALL]
        rows = tuple(
            (
                f"`{effect.path}`",
                _text(effect.figure.value),
                *(
                    _text(end)
                    for end in (effect.figure.range or ("", ""))[:: len(effect.figure.range or "..") - 1]
                ),
                *(
                    "not possible" if change is None else f"{change:+.1%}"
                    for change in (effect.low, effect.high)
                ),
            )
            for effect in moving
        )
        headings = ("figure", "value", "low", "high", "time at low", "time at high")
        parts.append(table_text(TextTable(product, headings, frozenset({0}), rows)))
        still = ", ".join(f"`{effect.path}`" for effect in found if effect.size < SMALL)
        parts.append(f"No effect here: {still}." if still else "Every assumed figure moves it.")
    return "\n\n".join(parts) + "\n"
