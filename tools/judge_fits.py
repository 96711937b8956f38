"""Judge fitted figures by rows that they did not see, and write the tables into reports/fits.md.

    python tools/judge_fits.py TABLE [CLASS ...]

TABLE is what `validate --data` reads. Each network (on the 910B2, where there is one, each layer and each
kernel) is left out: the figures that saw its rows are fitted anew on the others and judged by it. Then every
fitted figure is taken away, and what that does to kernels that it was not fitted on is counted: to those of
the classes that are named (convolution, layouts, matmul), or of all. With matrix products it takes ten
minutes and more.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from ablation import Effect, LeftOut, effects, leave_out
from ascendsim.errors import DataError
from ascendsim.profile import list_products
from ascendsim.report.markdown import markdown_table
from ascendsim.studies.table import Table, text_table
from ascendsim.validate.compare import Summary
from ascendsim.validate.schema import CLASSES, MeasuredRow, read_rows

PAGE = Path(__file__).parent.parent / "reports" / "fits.md"
BEGIN, END = "<!-- written by tools/judge_fits.py -->\n", "<!-- end of what it writes -->\n"
# Product, what is left out, what the ids of its rows begin with, and those of the rows to fit on.
LEFT_OUT = (
    ("910", "YOLOv5s", "hpm-yolov5", ("hpm-", "mi-run")),
    ("910", "ResNet-50", "hpm-resnet50", ("hpm-", "mi-run")),
    ("910B", "AlexNet conv2", "msi-alex-conv2", ("msi-alex-",)),
    ("910B", "AlexNet conv4", "msi-alex-conv4", ("msi-alex-",)),
    ("910B", "conv2 grad_weight", "msi-alex-conv2-dW", ("msi-alex-",)),
    ("910B", "conv4 grad_weight", "msi-alex-conv4-dW", ("msi-alex-",)),
    ("910B", "conv2 grad_input", "msi-alex-conv2-dX", ("msi-alex-",)),
    ("910B", "conv4 grad_input", "msi-alex-conv4-dX", ("msi-alex-",)),
)


def left_out(rows: Sequence[MeasuredRow]) -> Iterator[LeftOut]:
    """Yield what comes of leaving out each network, layer or kernel of which rows are at hand."""
    convolutions = [row for row in rows if row.kind == "convolution"]
    for product, name, prefix, beside in LEFT_OUT:
        # Forward convolutions of the same networks judge; they are not what the network is left out for.
        held = [row for row in convolutions if row.id.startswith(prefix) and row.kernel != "forward"]
        others = [row for row in convolutions if row.id.startswith(beside) and row not in held]
        if held and others:
            yield leave_out(f"{product}: {name}", product, held, others)


def left_out_table(found: Sequence[LeftOut]) -> Table:
    """Show the errors of what was left out."""
    rows = tuple(
        (
            item.name,
            str(item.fitted.count),
            ", ".join(f"`{path}` {value:.4g}" for path, value in item.values.items()) or "none saw them",
            *(_errors(summary) for summary in (item.fitted, item.committed, item.unfitted)),
        )
        for item in found
    )
    headings = (
        "left out",
        "kernels",
        "figures fitted without it",
        "errors with these",
        "as committed",
        "with none",
    )
    return text_table("", headings, frozenset({0, 2}), rows)


def _errors(summary: Summary) -> str:
    rank = "" if summary.rank != summary.rank else f", rank {summary.rank:.3f}"
    return f"{summary.median:.1%}, p90 {summary.p90:.1%}{rank}"


def effects_table(found: Sequence[Effect]) -> Table:
    """Show what each figure does to kernels that it did not see, the largest changes first."""
    rows = tuple(
        (
            f"`{item.path}`",
            f"{item.moved} of {item.count}",
            f"{item.kept[0]:.1%}, {item.kept[1]:.1%}",
            f"{item.dropped[0]:.1%}, {item.dropped[1]:.1%}",
        )
        for item in sorted(found, key=lambda item: item.kept[1] - item.dropped[1])
        if item.moved
    )
    return text_table("", ("figure", "rows that it moves", "errors", "without it"), frozenset({0}), rows)


def section(rows: Sequence[MeasuredRow], classes: Sequence[str] = ()) -> str:
    """Return what stands between the two marks of the page; effects are those on some classes, or all."""
    own = [row for row in rows if not classes or row.kind in classes]
    parts = [markdown_table(left_out_table(list(left_out(rows))))]
    for product in list_products():
        found = list(effects(product.name, own))
        table = effects_table(found)
        still = sum(not item.moved for item in found)
        if table.rows:
            parts.append(f"{product.name}; {still} more figures move no kernel that they were not fitted on:")
            parts.append(markdown_table(table))
    return "\n" + "\n\n".join(parts) + "\n\n"


def main(words: Sequence[str]) -> int:
    """Write the section."""
    if not words or not set(words[1:]) <= set(CLASSES):
        print(f"usage: python tools/judge_fits.py TABLE [{'] ['.join(CLASSES)}]", file=sys.stderr)
        return 2
    try:
        rows = [row for row in read_rows(Path(words[0])) if isinstance(row, MeasuredRow)]
    except DataError as error:
        print(error, file=sys.stderr)
        return 2
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    PAGE.write_text(
        before + BEGIN + section(rows, words[1:]) + END + rest.partition(END)[2], encoding="utf-8"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
