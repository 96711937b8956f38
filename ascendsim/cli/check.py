"""`ascendsim check`: what the interface answers to a call, product by product and rule set by rule set."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ascendsim.cli.progress import progress
from ascendsim.errors import AclnnError, ConfigError

if TYPE_CHECKING:
    from ascendsim.cli.check_calls import AskedCall

ACCEPTED, REFUSED = 0, 1
DEFAULT_RULES = ("documented", "shipped")
Row = dict[str, Any]


def check(arguments: Any) -> int:
    """Check what was asked for and print the answers.

    Returns  0 if every answer is success or what was expected, 1 if not
    """
    asked = _asked(arguments)
    wanted = [
        (place, product, rules)
        for place, call in enumerate(asked)
        for product, rules in _pairs(call, arguments.product or call.products, arguments.rules or call.rules)
    ]
    answers: list[list[Row]] = [[] for _ in asked]
    with progress(len(wanted)) as advance:
        for place, product, rules in wanted:
            advance(f"{product} {rules}")
            answers[place].append(_answer(asked[place], product, rules))
    rows = [row for own in answers for row in own]
    if arguments.json:
        print(json.dumps(rows, indent=1))
    else:
        _print(asked, answers)
        _print_rules(rows, defaulted=not (arguments.product or any(call.products for call in asked)))
    return ACCEPTED if all(row["as_expected"] for row in rows) else REFUSED


def _asked(arguments: Any) -> list[AskedCall]:
    from ascendsim.cli.check_calls import call_in_words, calls_in_file

    if arguments.file is None:
        return [call_in_words(arguments)]
    if arguments.input is not None or arguments.weight is not None:
        raise ConfigError("a file and --input or --weight cannot be combined: the file gives the sizes")
    return calls_in_file(arguments.file)


def _pairs(asked: AskedCall, products: Any, rules: Any) -> list[tuple[str, str]]:
    """Return the (product, rule set) to ask: without products, those on which the rules have the operator.

    Raises   ConfigError with near misses for unknown names
    """
    from ascendsim.cli.check_calls import TBC
    from ascendsim.rules import load_rules

    sets = {name: load_rules(name) for name in _rule_sets(rules or DEFAULT_RULES)}
    for product in products or ():
        _require_known(product)
    part = "tbc" if asked.call.api == TBC else "convolution"
    every = [(product, name) for product in products or _every_product() for name in sets]
    if products:
        return every
    return [pair for pair in every if pair[0] in getattr(sets[pair[1]], part).products] or every


def _every_product() -> tuple[str, ...]:
    from ascendsim.rules import product_names

    return tuple(product.name for product in product_names())


def _rule_sets(names: Any) -> tuple[str, ...]:
    from ascendsim.rules import rule_set_names

    return rule_set_names() if "all" in names else tuple(names)


def _require_known(product: str) -> None:
    """Check the name of a product.

    Raises   ConfigError with near misses
    """
    from ascendsim.profile import load_profile
    from ascendsim.rules import rule_product

    if product.endswith(".toml"):
        load_profile(product)
    else:
        rule_product(product)


def _answer(asked: AskedCall, product: str, rules: str) -> Row:
    """Return what the interface answers, as a record."""
    from ascendsim.aclnn.interface import first_phase

    row: Row = {"call": asked.name, "api": asked.call.api, "product": product, "rules": rules}
    try:
        workspace, executor = first_phase(asked.call, {}, product, rules)
        decision = executor.decision
        row |= {
            "status": 0,
            "name": "success",
            "compute_dtype": decision.compute_dtype,
            "promoted_dtype": decision.promoted_dtype,
            "empty": decision.empty,
            "workspace_bytes": workspace,
            "warnings": list(decision.warnings),
        }
    except AclnnError as error:
        row |= {"status": error.status, "name": error.name, "check": error.check, "reason": error.reason}
    row["expected"] = asked.expected
    row["as_expected"] = row["status"] == (asked.expected or 0)
    return row


def _print(asked: list[AskedCall], answers: list[list[Row]]) -> None:
    from ascendsim.report.tables import TextTable
    from ascendsim.report.terminal import make_console, print_table

    console = make_console()
    for place, (call, own) in enumerate(zip(asked, answers, strict=True)):
        expected = "" if call.expected is None else f", expected {call.expected}"
        if place:
            console.print()
        console.out(f"{call.name}{expected}", highlight=False)
        cells = tuple((row["product"], row["rules"], _status(row), _detail(row)) for row in own)
        print_table(
            console, TextTable("", ("product", "rules", "status", "answer"), frozenset({0, 1, 3}), cells)
        )


def _print_rules(rows: list[Row], *, defaulted: bool) -> None:
    """Say what each rule set is, and which products were left out."""
    from ascendsim.report.terminal import make_console, print_text
    from ascendsim.rules import load_rules

    console = make_console()
    console.print()
    names = sorted({row["rules"] for row in rows}, key=lambda name: (name not in DEFAULT_RULES, name))
    for name in names:
        print_text(console, f"Rules {name}: {load_rules(name).title}.")
    if set(DEFAULT_RULES) <= set(names):
        print_text(console, "Where they differ, documented is what is promised and shipped what happens.")
    if defaulted and (left_out := _left_out(rows, tuple(names))):
        print_text(console, f"Left out, without the operator: {left_out} (--product asks them).")


def _left_out(rows: list[Row], names: tuple[str, ...]) -> str:
    """Name the products that were not asked, with the rule sets if others were."""
    asked = {(row["product"], row["rules"]) for row in rows}
    parts = []
    for product in _every_product():
        missing = [name for name in names if (product, name) not in asked]
        if missing:
            parts.append(product if len(missing) == len(names) else f"{product} by {' and '.join(missing)}")
    return ", ".join(parts)


def _status(row: Row) -> str:
    mark = "" if row["expected"] is None or row["as_expected"] else " (!)"
    return f"{row['status']}{mark}"


def _detail(row: Row) -> str:
    if row["status"]:
        return f"{row['name']}, check {row['check']}: {row['reason']}"
    how = "empty, writes zeros" if row["empty"] else f"computes in {row['compute_dtype']}"
    notes = "".join(f"; warning: {warning}" for warning in row["warnings"])
    return f"accepted, {how}, workspace {row['workspace_bytes']:,} bytes{notes}"
