"""Plans as the text of a file, in TOML or JSON, and what errors about a plan say of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ascendsim.errors import CapacityError, ConfigError

# Fields of a plan by name, by what they make ("grad_input", "grad_weight", "matmul"), by layer of a network;
# "" is the layer of a single call.
Tables = Mapping[str, Mapping[str, Mapping[str, Any]]]
FORMS = ("toml", "json")


def form_of(path: Path | str) -> str:
    """Return the form in which a file of plans is written, by its ending.

    Raises   ConfigError for another ending
    """
    ending = Path(path).suffix
    if ending.removeprefix(".") not in FORMS:
        raise ConfigError(f"{path}: a file of plans ends in .toml or .json, not in {ending or 'nothing'}")
    return ending[1:]


def plans_text(tables: Tables, form: str, about: str = "") -> str:
    """Return the text of a file of plans.

    tables   texts, whole numbers and truth values by field; "chosen_by" among them becomes a comment
    form     one of FORMS
    about    a comment at the top; JSON has none
    """
    # Imported here: few calls write a file, and every call imports this module.
    import json

    if form == "json":
        plain = {
            layer: {made: plan_fields(values) for made, values in each.items()}
            for layer, each in tables.items()
        }
        return json.dumps({**plain.pop("", {}), **plain}, indent=1) + "\n"
    lines = [f"# {about}"] if about else []
    for layer, each in tables.items():
        for made, values in each.items():
            heading = f"[{json.dumps(layer)}.{made}]" if layer else f"[{made}]"
            by = f"  # chosen by {values['chosen_by']}" if values.get("chosen_by") else ""
            # Of texts, whole numbers and truth values the two forms write the same.
            written = [f"{name} = {json.dumps(value)}" for name, value in plan_fields(values).items()]
            lines += ["", heading + by, *written]
    return "\n".join(lines).lstrip("\n") + "\n"


def plan_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a plan, without who chose it."""
    return {name: value for name, value in values.items() if name != "chosen_by"}


@contextmanager
def saying_whose(made: str, plan: Any) -> Iterator[None]:
    """Say of errors about a plan which gradient it is for (`made`), and the file that it was read from.

    plan   a plan, whole or in part; None: one without a file
    """
    try:
        yield
    except (CapacityError, ConfigError) as error:
        text, file = str(error), plan.file if plan else ""
        if plan and not text.startswith(("tiling", file or "tiling")):
            text = f"tiling of {made}: {text}"
        if not text.startswith(file):
            text = f"{file}: {text}"
        # Its class and what it carries stay.
        error.args = (text,)
        raise
