"""`ascendsim check`: ask the interface about calls, product by product and rule set by rule set."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from ascendsim.errors import AclnnError, ConfigError
from ascendsim.progress import progress

if TYPE_CHECKING:
    from ascendsim.cli.checks.calls import AskedCall

ACCEPTED, REFUSED = 0, 1
DEFAULT_RULES = ("documented", "shipped")
Answer = dict[str, Any]


def check(arguments: Any) -> int:
    """Check what was asked for and print the answers.

    Returns  0 if every answer is success or what was expected, 1 if not
    """
    asked = _asked(arguments)
    # All names are looked up before the first call is checked: a slip in the last is told at once.
    wanted = [
        (place, product, rules)
        for place, call in enumerate(asked)
        for product, rules in _pairs(call, arguments.product or call.products, arguments.rules or call.rules)
    ]
    answers: list[list[Answer]] = [[] for _ in asked]
    with progress(len(wanted)) as advance:
        for place, product, rules in wanted:
            advance(f"{product} {rules}")
            answers[place].append(_answer(asked[place], product, rules))
    every = [answer for own in answers for answer in own]
    if arguments.json:
        print(json.dumps(every, indent=1))
    else:
        from ascendsim.report.answers import print_answers

        titles = _titles({rules for _, _, rules in wanted})
        chosen = arguments.product or any(call.products for call in asked)
        print_answers(answers, titles, "" if chosen else _left_out(every, titles))
    return ACCEPTED if all(answer["as_expected"] for answer in every) else REFUSED


def _asked(arguments: Any) -> list[AskedCall]:
    from ascendsim.cli.checks.calls import call_in_words, calls_in_file

    if arguments.file is None:
        return [call_in_words(arguments)]
    if arguments.input is not None or arguments.weight is not None:
        raise ConfigError("a file and --input or --weight cannot be combined: the file gives the sizes")
    return calls_in_file(arguments.file)


def _pairs(asked: AskedCall, products: Any, rules: Any) -> list[tuple[str, str]]:
    """Return the (product, rule set) to ask: without products, those on which the rules have the operator.

    Raises   ConfigError with near misses for unknown names
    """
    from ascendsim.cli.checks.calls import TBC
    from ascendsim.rules import load_rules

    sets = {name: load_rules(name) for name in _rule_sets(rules or DEFAULT_RULES)}
    for product in products or ():
        _require_known(product)
    part = "tbc" if asked.call.api == TBC else "convolution"
    every = [(product, name) for product in products or _every_product() for name in sets]
    if products:
        return every
    # A user's own rules may have the operator nowhere; then all refuse, which is an answer as well.
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
    from ascendsim.rules import known_product, rule_product

    # The rules know products that no file describes, and a file describes one that no rule names.
    if product.endswith(".toml"):
        load_profile(product)
    else:
        rule_product(known_product(product))


def _answer(asked: AskedCall, product: str, rules: str) -> Answer:
    """Return what the interface answers: success with what it decides, or the status with the reason."""
    from ascendsim.aclnn.interface import first_phase

    answer: Answer = {"call": asked.name, "api": asked.call.api, "product": product, "rules": rules}
    try:
        workspace, executor = first_phase(asked.call, {}, product, rules)
        decision = executor.decision
        answer |= {
            "status": 0,
            "name": "success",
            "compute_dtype": decision.compute_dtype,
            "promoted_dtype": decision.promoted_dtype,
            "empty": decision.empty,
            "workspace_bytes": workspace,
            "warnings": list(decision.warnings),
        }
    except AclnnError as error:
        answer |= {"status": error.status, "name": error.name, "check": error.check, "reason": error.reason}
    answer["expected"] = asked.expected
    answer["as_expected"] = answer["status"] == (asked.expected or 0)
    return answer


def _titles(names: Collection[str]) -> Mapping[str, str]:
    """Return the titles of rule sets by name, the default ones first."""
    from ascendsim.rules import load_rules

    ordered = sorted(names, key=lambda name: (name not in DEFAULT_RULES, name))
    return {name: load_rules(name).title for name in ordered}


def _left_out(answers: list[Answer], names: Collection[str]) -> str:
    """Name the products that were not asked, with the rule sets if others were."""
    asked = {(answer["product"], answer["rules"]) for answer in answers}
    parts = []
    for product in _every_product():
        missing = [name for name in names if (product, name) not in asked]
        if missing:
            parts.append(product if len(missing) == len(names) else f"{product} by {' and '.join(missing)}")
    return ", ".join(parts)
