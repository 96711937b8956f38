"""Layers with every field of their plan, computed from the operators' written rules.

The outside data has two files of them: `plan_vectors.json` (the operators of volumes and of 910_95) and
`plan_vectors_2d.json` (the library that plans a 2-D grad_weight of the 910B).
"""

import json

from tests.helpers.vendor_tilings import FIELDS, FURTHER

# Fields of both operators beside those of `vendor_tilings.FIELDS`, ours by the vendor's.
MORE = {
    "al0_buffers": "al0Pbuffer",
    "bl0_buffers": "bl0Pbuffer",
    "cl0_buffers": "cl0Pbuffer",
}


def vectors(data_dir, op, arch):
    """Return the records of one operator, each with its number in the file."""
    found = json.loads((data_dir / "plan_vectors.json").read_text())["records"]
    return [(at, one) for at, one in enumerate(found) if (one["op"], one["arch"]) == (op, arch)]


def vectors_2d(data_dir):
    """Return the 2-D records, each with its number in the file."""
    return list(enumerate(json.loads((data_dir / "plan_vectors_2d.json").read_text())["records"]))


def told(plan, op):
    """Return what a plan says, by the vendor's names: our own fields, and what no nest reads of it."""
    ours = {**FIELDS, **MORE, **FURTHER[op]}
    return {theirs: int(getattr(plan, name)) for name, theirs in ours.items()} | dict(plan.host)


def differences(plan, record):
    """Return the fields in which a plan is not what the record says: name: (ours, the record's).

    A field that the plan does not know counts as different.
    """
    if plan is None:
        return {"plan": (None, record["strategy"])}
    found = {"block_dim": plan.used_cores, "strategy": plan.strategy, **told(plan, record["op"])}
    said = {"block_dim": record["block_dim"], "strategy": record["strategy"], **record["expected"]}
    return {name: (found.get(name), value) for name, value in said.items() if found.get(name) != value}
