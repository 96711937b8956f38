"""Draw random calls for some seconds, and say how to draw one that fails again."""

from __future__ import annotations

import argparse
import contextlib
import io
import random
import resource
import sys
import time
import traceback
from collections import Counter

from fuzz.damage import command_line, damaged_file, damaged_store, interrupted, killed_study
from fuzz.files import call_file, rule_file
from fuzz.judge import must
from fuzz.nasty import nasty
from fuzz.status import status
from fuzz.training import gradients_only, torch_layers
from fuzz.values import definition, tbc, two_phases, views

FUZZERS = {
    fuzzer.__name__: fuzzer
    for fuzzer in (
        *(status, definition, two_phases, views, tbc, gradients_only, torch_layers),
        *(nasty, call_file, rule_file, damaged_file, damaged_store, command_line, killed_study, interrupted),
    )
}
# Of checks and refusals, of any size; what is computed may take as long as it takes.
MOST_SECONDS, MOST_BYTES = 5.0, 2**30
SHOWN_FAILURES = 10


def run(name: str, seed: int, number: int) -> str:
    """Make one call; return what came of it.

    Raises   WrongError for what should not be, and whatever else comes out of a door
    """
    before, started = _peak_bytes(), time.process_time()
    # The command line of `check` prints; only what it returns counts here.
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        found = FUZZERS[name](random.Random(f"{name} {seed} {number}"))
    if found != "ran":
        seconds, grown = time.process_time() - started, _peak_bytes() - before
        must(seconds < MOST_SECONDS, f"a refusal took {seconds:.1f} s")
        must(grown < MOST_BYTES, f"a refusal took {grown / 2**20:.0f} MiB")
    return found


def fuzz(
    names: list[str], seed: int, seconds: float, calls: int | None = None
) -> tuple[dict[str, Counter], dict[str, str]]:
    """Make calls of each fuzzer in turn, for some seconds in all or so many of each.

    Returns  how often each came to what, and of the failures the first at each place
    """
    outcomes: dict[str, Counter] = {name: Counter() for name in names}
    failures: dict[str, str] = {}
    for name in names:
        until, number = time.monotonic() + seconds / len(names), 0
        while time.monotonic() < until if calls is None else number < calls:
            try:
                outcomes[name][run(name, seed, number)] += 1
            except Exception as error:
                outcomes[name]["FAILED"] += 1
                last = traceback.extract_tb(error.__traceback__)[-1]
                paste = f"make fuzz FUZZ='--only {name} --seed {seed} --call {number}'"
                text = "".join(traceback.format_exception(error, limit=-6))
                failures.setdefault(
                    f"{type(error).__name__} {last.filename}:{last.lineno}", f"{paste}\n{text}"
                )
            number += 1
    return outcomes, failures


def main() -> int:
    """Fuzz as the command line says; 1 if anything failed."""
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="for all fuzzers together (default 60)")
    parser.add_argument("--calls", type=int, help="make so many of each instead")
    parser.add_argument("--seed", type=int, default=0, help="other seeds draw other calls (default 0)")
    parser.add_argument(
        "--only", action="append", choices=sorted(FUZZERS), help="one fuzzer; repeat it for more"
    )
    parser.add_argument("--call", type=int, help="make this one call again, and let its error through")
    arguments = parser.parse_args()
    names = arguments.only or list(FUZZERS)
    if arguments.call is not None:
        print({name: run(name, arguments.seed, arguments.call) for name in names})
        return 0
    outcomes, failures = fuzz(names, arguments.seed, arguments.seconds, arguments.calls)
    for name, counts in outcomes.items():
        said = ", ".join(f"{count} {what}" for what, count in counts.most_common())
        print(f"{name}: {counts.total()} calls: {said}")
    for failure in list(failures.values())[:SHOWN_FAILURES]:
        print(f"\nTo see this again: {failure}")
    return 1 if failures else 0


def _peak_bytes() -> int:
    """Return the most memory that this process has had so far."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


if __name__ == "__main__":
    raise SystemExit(main())
