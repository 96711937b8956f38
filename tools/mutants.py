"""Draw mutants of a part of the package by a seed, and see whether the fast tests notice each of them.

    python tools/mutants.py [--part numerics] [--count 120] [--seed 1] [--skip 0] [--workers 1] [--list]

A mutant is the package with one place changed: a comparison that takes or leaves its edge, another operator,
a number one further, a condition the other way round, a step left out. Parts are folders or files below
`ascendsim`; without any it is the arithmetic. Places are drawn from all that the syntax trees hold, so nobody
chooses what is easy to notice. A mutant counts as killed when a test fails on it; one that cannot even be
imported is replaced by the next one drawn. A long run may be made in pieces: `--skip 40 --count 20` are the
41st to 60th that are drawn.

Mutants that change no result are listed in `tools/equivalent_mutants.toml`, each with the reason. All others
that survive are printed, and the exit status is 1 if fewer than 95 % of those that are left were killed.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from mutant_places import PARTS, ROOT, Mutant, drawn, named
from mutant_tests import tests_of

COPIED = ("ascendsim", "tests", "tools", "docs", "configs", "examples", "reports")
LEAST_KILLED = 0.95
# A mutant that computes or waits for ever is noticed as well: by the seconds of a processor, so many times
# those that its tests take without it and never below the least, and by the clock. A busy machine makes no
# mutant a killed one. The tests without a change may take an hour.
TIMES, LEAST_SECONDS, WAITING = 5, 60, 3600
# What is compiled: a mutant of another part may use the machine code of those before it.
COMPILED = ("numerics/", "native/", "timing/")


def limited(command: list[str], seconds: int) -> list[str]:
    """Return a command that is ended when it has computed for so long."""
    return ["sh", "-c", f'ulimit -t {seconds} && exec "$@"', "limited", *command]


def fate(mutant: Mutant | None, runs: list[list[str]], kept: str | None, seconds: int = WAITING) -> str:
    """Return what becomes of a mutant under some tests: killed, survived, or broken if it cannot be imported.

    None is the package as it stands. `kept` is a folder for the machine code of what is not changed; None:
    all is compiled anew. `seconds` of a processor are what each run of pytest may take.
    """
    with tempfile.TemporaryDirectory(prefix="mutant-") as place:
        folder = Path(place)
        for name in COPIED:
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", folder)
        if mutant:
            file = folder / "ascendsim" / f"{mutant.file}.py"
            text = file.read_text()
            file.write_text(text[: mutant.start] + mutant.new + text[mutant.stop :])
        own = {"PYTHONPATH": place, "XDG_CACHE_HOME": f"{place}/cache", "PYTHONDONTWRITEBYTECODE": "1"}
        if kept:
            own["NUMBA_CACHE_DIR"] = kept
        environment = {name: value for name, value in os.environ.items() if name != "ASCENDSIM_DATA"} | own
        for arguments in runs:
            command = limited([sys.executable, "-m", "pytest", "-x", "-q", *arguments], seconds)
            try:
                done = subprocess.run(
                    command, cwd=folder, env=environment, capture_output=True, timeout=WAITING
                )
            except subprocess.TimeoutExpired:
                return "killed"
            if done.returncode:
                # No number of pytest tells a test that failed from one that could not be collected.
                return "killed" if mutant and imported(mutant, folder, environment, seconds) else "broken"
    return "survived"


def imported(mutant: Mutant, folder: Path, environment: Mapping[str, str], seconds: int) -> bool:
    """Return whether the changed file of a copy of the package can be imported, or computes for ever then."""
    code = f"import ascendsim.{mutant.file.replace('/', '.')}"
    command = limited([sys.executable, "-c", code], seconds)
    try:
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, timeout=WAITING)
    except subprocess.TimeoutExpired:
        return True
    # Python ends with 1 where an import fails; what a signal ends was under way.
    return done.returncode != 1


class Baselines:
    """Run each set of tests once on the package as it stands, one after the other, and keep its time."""

    def __init__(self, kept: str) -> None:
        self._kept = kept
        self._seconds: dict[str, int] = {}

    def asked(self, mutant: Mutant) -> tuple[list[list[str]], str | None, int]:
        """Return the tests of a mutant, the folder of its machine code, and its limit in seconds.

        The run ends if these tests fail without any change: they would kill every mutant.
        """
        runs, kept = tests_of(mutant.file), None if mutant.file.startswith(COMPILED) else self._kept
        key = repr((runs, kept))
        if key not in self._seconds:
            before = processor_seconds()
            if fate(None, runs, kept) != "survived":
                words = " ".join(word for run in runs for word in run)
                sys.exit(f"the tests fail without any change, so they tell nothing of a mutant: {words}")
            self._seconds[key] = max(LEAST_SECONDS, int(TIMES * (processor_seconds() - before)))
        return runs, kept, self._seconds[key]


def processor_seconds() -> float:
    """Return the seconds of a processor that all ended processes of this one took."""
    used = os.times()
    return used.children_user + used.children_system


def equivalents() -> dict[str, str]:
    """Return the mutants that change no result, with the reason."""
    listed = tomllib.loads((ROOT / "tools" / "equivalent_mutants.toml").read_text())["mutant"]
    return {named(row): row["reason"] for row in listed}


def run(
    seed: int, count: int, workers: int, skip: int = 0, parts: Sequence[str] = PARTS
) -> tuple[int, list[Mutant]]:
    """Run so many mutants; return how many were killed, and those that survived and are not equivalent."""
    known = equivalents()
    mutants = [mutant for mutant in drawn(seed, parts) if mutant.name not in known][skip:]
    survivors: list[Mutant] = []
    killed, waiting = 0, iter(mutants)
    with tempfile.TemporaryDirectory(prefix="compiled-") as kept, ThreadPoolExecutor(workers) as pool:
        baselines = Baselines(kept)
        while killed + len(survivors) < count:
            batch = [next(waiting) for _ in range(count - killed - len(survivors))]
            # All of them first: no mutant runs while a set of tests is timed.
            asked = [(mutant, *baselines.asked(mutant)) for mutant in batch]
            running = {pool.submit(fate, *each): each[0] for each in asked}
            for future in as_completed(running):
                mutant, found = running[future], future.result()
                print(f"{found:9s} {mutant.name}", flush=True)
                killed += found == "killed"
                survivors += [mutant] if found == "survived" else []
    return killed, survivors


def main() -> int:
    """Read the words of the command line, run, and say how it went."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--part", nargs="+", default=PARTS, help="folders or files below ascendsim")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=120)
    parser.add_argument("--skip", type=int, default=0, help="leave out the first so many")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--list", action="store_true", help="print what is drawn and run nothing")
    words = parser.parse_args()
    if words.list:
        some = drawn(words.seed, words.part)[words.skip : words.skip + words.count]
        print("\n".join(mutant.name for mutant in some))
        return 0
    killed, survivors = run(words.seed, words.count, words.workers, words.skip, words.part)
    print(f"{killed} of {words.count} killed; survivors:", *(mutant.name for mutant in survivors), sep="\n")
    return int(killed < LEAST_KILLED * words.count)


if __name__ == "__main__":
    sys.exit(main())
