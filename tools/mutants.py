"""Draw mutants of the arithmetic by a seed, and see whether the fast tests notice each of them.

    python tools/mutants.py [--count 120] [--seed 1] [--skip 0] [--workers 1] [--list]

A mutant is the package with one place of `ascendsim/numerics` changed: a comparison that takes or leaves its
edge, another operator, a number one further, a condition the other way round, a step left out. Places are
drawn from all that the syntax trees hold, so nobody chooses what is easy to notice. A mutant counts as killed
when a test fails on it; one that cannot even be imported is replaced by the next one drawn. A long run may be
made in pieces: `--skip 40 --count 20` are the 41st to 60th that are drawn.

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
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from mutant_places import ROOT, Mutant, drawn, named

COPIED = ("ascendsim", "tests", "docs", "configs")
LEAST_KILLED = 0.95
# A mutant that computes or waits for ever is noticed as well. In seconds of a processor, of which all tests
# together take 90, and by the clock: a busy machine makes no mutant a killed one.
SECONDS, WAITING = 450, 3600

# The fast tests that concern a file, first those that are quick to fail: a name, or a name and which of it.
FORMATS = ("test_casts", "test_hf32", "test_hifloat8", "test_formats", "test_controls", "test_metrics")
PARTS = ("test_accumulation_parts", "test_accumulation_panels", "test_accumulation_packing")
KERNELS = ("test_accumulation_edges", "test_accumulation_kernels", "test_default_arithmetic")
TESTS = {
    "formats/ulp": ("test_standards", "test_metrics"),
    "formats": (*FORMATS, "test_default_arithmetic cast or narrowing or definitions or grid"),
    "metric": ("test_metrics", "test_standards", "test_docs"),
    "standards": ("test_standards", "test_metrics", "test_formats"),
    "accumulation/models": ("test_accumulation_models", "test_model_hints", "test_accumulation_twins"),
    "accumulation/settings": ("test_accumulation_models", "test_matmul_int8", "test_options"),
    "accumulation/integers": ("test_accumulation_models", "test_matmul_int8", "test_accumulation_edges"),
    "accumulation/twins": ("test_accumulation_twins", *KERNELS[:2]),
    "compiled/gathered/halves": ("test_half_conversions",),
    "compiled/gathered/threads": ("test_threads", "test_gathered_products"),
    "compiled/gathered": ("test_gathered_products",),
    "compiled/kernels/align": ("test_accumulation_kernels align", *KERNELS),
    "compiled/kernels/block": ("test_accumulation_kernels block", *KERNELS),
    "compiled/block_sums": ("test_accumulation_kernels block", *KERNELS),
    "compiled/kernels/chain": ("test_accumulation_kernels seq", *KERNELS),
    "compiled/kernels/fused": ("test_accumulation_kernels seq", *KERNELS),
    "compiled/kernels/half": ("test_accumulation_kernels seq", *KERNELS),
    "compiled/kernels/tree": ("test_accumulation_kernels tree", *KERNELS),
    "accumulation": ("test_accumulation_models", "test_accumulation_twins", *KERNELS),
    "compiled": (*PARTS, *KERNELS),
    "": (*FORMATS, *PARTS, *KERNELS),
}


def tests_of(file: str) -> list[list[str]]:
    """Return the runs of pytest that concern a file, as its arguments."""
    names = next(tests for part, tests in TESTS.items() if file.startswith(part))
    runs: list[list[str]] = []
    for name, _, pick in (name.partition(" ") for name in names):
        if pick:
            runs.append(["-k", pick, f"tests/{name}.py"])
        elif runs and "-k" not in runs[-1]:
            runs[-1].append(f"tests/{name}.py")
        else:
            runs.append([f"tests/{name}.py"])
    return runs


def limited(command: list[str], seconds: int = SECONDS) -> list[str]:
    """Return a command that is ended when it has computed for so long."""
    return ["sh", "-c", f'ulimit -t {seconds} && exec "$@"', "limited", *command]


def fate(mutant: Mutant | None, runs: list[list[str]]) -> str:
    """Return what becomes of a mutant under some tests: killed, survived, or broken if it cannot be imported.

    None is the package as it stands.
    """
    with tempfile.TemporaryDirectory(prefix="mutant-") as place:
        folder = Path(place)
        for name in COPIED:
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", folder)
        if mutant:
            file = folder / "ascendsim" / "numerics" / f"{mutant.file}.py"
            text = file.read_text()
            file.write_text(text[: mutant.start] + mutant.new + text[mutant.stop :])
        own = {"PYTHONPATH": place, "XDG_CACHE_HOME": f"{place}/cache", "PYTHONDONTWRITEBYTECODE": "1"}
        environment = {name: value for name, value in os.environ.items() if name != "ASCENDSIM_DATA"} | own
        for arguments in runs:
            command = limited([sys.executable, "-m", "pytest", "-x", "-q", *arguments])
            try:
                done = subprocess.run(
                    command, cwd=folder, env=environment, capture_output=True, timeout=WAITING
                )
            except subprocess.TimeoutExpired:
                return "killed"
            if done.returncode:
                # 1: a test failed; below 0: it ended the process; else no test could be collected.
                return "killed" if done.returncode == 1 or done.returncode < 0 else "broken"
    return "survived"


def require_passing() -> None:
    """End the run if a test fails on the package as it stands: every mutant would count as killed."""
    names = {name.partition(" ")[0] for tests in TESTS.values() for name in tests}
    if fate(None, [[f"tests/{name}.py" for name in sorted(names)]]) != "survived":
        sys.exit("the tests fail without any change, so they tell nothing of a mutant")


def equivalents() -> dict[str, str]:
    """Return the mutants that change no result, with the reason."""
    listed = tomllib.loads((ROOT / "tools" / "equivalent_mutants.toml").read_text())["mutant"]
    return {named(row): row["reason"] for row in listed}


def run(seed: int, count: int, workers: int, skip: int = 0) -> tuple[int, list[Mutant]]:
    """Run so many mutants; return how many were killed, and those that survived and are not equivalent."""
    require_passing()
    known = equivalents()
    survivors: list[Mutant] = []
    killed, waiting = 0, iter([mutant for mutant in drawn(seed) if mutant.name not in known][skip:])
    with ThreadPoolExecutor(workers) as pool:
        while killed + len(survivors) < count:
            batch = [next(waiting) for _ in range(count - killed - len(survivors))]
            running = {pool.submit(fate, mutant, tests_of(mutant.file)): mutant for mutant in batch}
            for future in as_completed(running):
                mutant, found = running[future], future.result()
                print(f"{found:9s} {mutant.name}", flush=True)
                killed += found == "killed"
                survivors += [mutant] if found == "survived" else []
    return killed, survivors


def main() -> int:
    """Read the words of the command line, run, and say how it went."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=120)
    parser.add_argument("--skip", type=int, default=0, help="leave out the first so many")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--list", action="store_true", help="print what is drawn and run nothing")
    words = parser.parse_args()
    if words.list:
        some = drawn(words.seed)[words.skip : words.skip + words.count]
        print("\n".join(mutant.name for mutant in some))
        return 0
    killed, survivors = run(words.seed, words.count, words.workers, words.skip)
    print(f"{killed} of {words.count} killed; survivors:", *(mutant.name for mutant in survivors), sep="\n")
    return int(killed < LEAST_KILLED * words.count)


if __name__ == "__main__":
    sys.exit(main())
