"""Find what is wrong with a tree of figures, as places and bare facts; `check` puts them into words."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ascendsim.profile.kinds import Kind
from ascendsim.profile.schema import CONFIDENCES, children


class Problem(NamedTuple):
    """One thing that is wrong.

    place   keys that lead there; the number of an item of a list
    fault   "missing", "unknown" (a key), "wrong" (a value), or "figure": its parts do not fit each other
    got     the value, if it is wrong
    rule    what a figure must be, if its parts do not fit each other
    """

    place: tuple[str, ...]
    fault: str
    got: Any = None
    rule: str = ""


FIELDS = ("value", "source", "confidence", "range", "note", "fitted_on", "without")
_REQUIRED = ("value", "source", "confidence")

_Finder = Callable[[Any, tuple[str, ...]], Iterator[Problem]]


def problems_of(node: Any, given: Any, place: tuple[str, ...] = ()) -> Iterator[Problem]:
    """Yield what is wrong in a table of figures, in the order of the schema, then unknown keys."""
    if isinstance(node, Kind):
        yield from _of_figure(node, given, place)
    elif not isinstance(given, dict):
        yield Problem(place, "wrong", given)
    else:
        wanted = children(node)
        for key, (entry, required) in wanted.items():
            if key in given:
                yield from problems_of(entry, given[key], (*place, key))
            elif required:
                yield Problem((*place, key), "missing")
        yield from _unknown(given, wanted, place)


def _of_figure(kind: Kind, given: Any, place: tuple[str, ...]) -> Iterator[Problem]:
    if not isinstance(given, dict):
        yield Problem(place, "wrong", given)
        return
    found: list[Problem] = []
    for key in FIELDS:
        if key in given:
            found += _of_field(kind, key, given[key], (*place, key))
        elif key in _REQUIRED:
            found.append(Problem((*place, key), "missing"))
    found += _unknown(given, FIELDS, place)
    yield from found
    # Whether the parts fit each other can be asked of right ones alone.
    rule = "" if found else _broken_rule(given)
    if rule:
        yield Problem(place, "figure", rule=rule)


def _of_field(kind: Kind, key: str, given: Any, place: tuple[str, ...]) -> Iterator[Problem]:
    if key in ("value", "without"):
        yield from _of_value(kind, given, place)
    elif key == "range":
        yield from _of_list(given, place, lambda item, where: _of_value(kind, item, where))
    elif key == "fitted_on":
        yield from _of_list(given, place, _of_text)
    elif key == "confidence":
        if not isinstance(given, str) or given not in CONFIDENCES:
            yield Problem(place, "wrong", given)
    else:
        yield from _of_text(given, place)


def _of_value(kind: Kind, given: Any, place: tuple[str, ...]) -> Iterator[Problem]:
    if not kind.listed:
        if not kind.fits(given):
            yield Problem(place, "wrong", given)
    elif not isinstance(given, list):
        yield Problem(place, "wrong", given)
    else:
        for number, item in enumerate(given):
            if not kind.fits(item):
                yield Problem((*place, str(number)), "wrong", item)


def _of_text(given: Any, place: tuple[str, ...]) -> Iterator[Problem]:
    if not isinstance(given, str) or not given.strip():
        yield Problem(place, "wrong", given)


def _of_list(given: Any, place: tuple[str, ...], of_item: _Finder) -> Iterator[Problem]:
    if not isinstance(given, list) or not given:
        yield Problem(place, "wrong", given)
        return
    for number, item in enumerate(given):
        yield from of_item(item, (*place, str(number)))


def _unknown(given: dict[Any, Any], known: Any, place: tuple[str, ...]) -> Iterator[Problem]:
    return (Problem((*place, str(key)), "unknown") for key in given if key not in known)


def _broken_rule(figure: dict[str, Any]) -> str:
    """Return the rule that the parts of a figure break together, if any."""
    bounds, value = figure.get("range"), figure["value"]
    if bounds is None:
        # A guess without a range looks like a fact: reports could not show how much hangs on it.
        if figure["confidence"] == "assumed":
            return "an assumed figure must carry a range, for example [low, high]"
    # Texts have no order: their range lists the alternatives.
    elif isinstance(value, str | bool | list):
        if value not in bounds:
            return "the range must list the alternatives, the value among them"
    elif len(bounds) != 2 or not bounds[0] <= value <= bounds[1]:
        return "the range must be [low, high] with the value inside"
    if "fitted_on" in figure or "without" in figure:
        # The ablation needs both: which rows to run again, and with what in the figure's place.
        marks = "fitted_on" in figure and "without" in figure
        if not marks or figure["confidence"] != "measured" or figure["without"] == value:
            return "a fitted figure must be measured and carry fitted_on and another value, without"
    return ""
