"""Do cycles, bytes, plans and bits of many calls stand as they were?  That says nothing of right or wrong.

Other tests ask whether they are right.  This one shows what a change moves that was meant to move nothing:
it takes the cases of `tools/fingerprint.py` and holds each to the cycles and the digest in `standing.csv`.
Where they are meant to move, `python tools/fingerprint.py --only CASE --against main` says what did, and
`pytest tests/validation/test_standing.py --update` writes them anew.
"""

import csv
import json
from pathlib import Path

import pytest

import fingerprint
from fingerprint_cases import cases

FILE = Path(__file__).with_name("standing.csv")
# Commands and whole networks take long, and other tests hold what they print.
LEFT_OUT = ("command", "layers")
CASES = [case for case in cases() if case.name.partition("/")[0] not in LEFT_OUT]
KINDS = sorted({case.name.partition("/")[0] for case in CASES})


def figures_of(case):
    """Return the cycles of all kernels of a case together, and a digest of all that is known of them."""
    # Notes are words: what they say is tested where they are made.
    kernels = [
        {name: value for name, value in record.items() if name != "notes"}
        for record in fingerprint.records_of(case)
        if record["kernel"] != "asked"
    ]
    text = json.dumps(kernels, sort_keys=True)
    return str(sum(kernel.get("cycles", 0) for kernel in kernels)), fingerprint.digest(text)[:8]


def stored():
    """Return what the file says: the name of a case with its cycles and its digest."""
    with FILE.open(newline="") as lines:
        return {name: (cycles, digest) for name, cycles, digest in csv.reader(lines)}


@pytest.mark.parametrize("kind", KINDS)
def test_what_many_calls_give_stands(kind, update):
    own = [case for case in CASES if case.name.startswith(f"{kind}/")]
    found = {case.name: figures_of(case) for case in own}
    kept = {name: row for name, row in stored().items() if name.startswith(f"{kind}/")}
    if update:
        rows = {**{name: row for name, row in stored().items() if name not in kept}, **found}
        FILE.write_text(
            "".join(f'"{name}",{cycles},{digest}\n' for name, (cycles, digest) in sorted(rows.items()))
        )
        return
    assert kept.keys() == found.keys()
    moved = [f"{name}: {kept[name]} -> {row}" for name, row in found.items() if kept[name] != row]
    assert not moved, f"{len(moved)} of {len(found)} moved, see the top of this file:\n" + "\n".join(
        moved[:20]
    )
