"""Take the figures and bits of a thousand calls, and say what a change of the code has moved.

    python tools/fingerprint.py [--only PATTERN] [--out FILE] [--against REV or FILE]

It runs every case of tools/fingerprint_cases.py through the public doors and keeps a record for each kernel:
cycles, bytes by source, busy cycles, waits by cause, every core; SHA-256 of the bits of gradients; what
commands print and write. `--against` does the same in another revision (or reads a file that `--out` wrote)
and compares: exit status 0 where all is equal, 1 where anything moved. A revision takes half a minute of two
cores, another one its compilation besides.
"""

import argparse
import contextlib
import fnmatch
import hashlib
import importlib.util
import io
import json
import multiprocessing
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

# Found here and not where a package is installed, which may be another checkout.
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from fingerprint_cases import Case, cases  # noqa: E402
from fingerprint_compare import compare  # noqa: E402

Record = dict[str, Any]
# Longer outputs are kept by their digest alone.
MOST_LINES = 10_000
# How far a long run is, which it says every so many seconds.
PROGRESS = re.compile(r".*\(\d+ s so far\)|\d+ of \d+ calls of this round, .*")
TEXTS = (".txt", ".md", ".csv", ".json", ".jsonl", ".toml", ".html", ".py")


def main(argv: Sequence[str] | None = None) -> int:
    """Take a fingerprint, write it, compare it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--against", metavar="REV", help="revision, or file of --out, to compare with")
    parser.add_argument("--only", metavar="PATTERN", default="*", help="cases, such as 'layers/910B/*'")
    parser.add_argument("--out", metavar="FILE", type=Path, help="write the records there, in JSON")
    parser.add_argument("--jobs", metavar="N", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument(
        "--root", metavar="DIR", type=Path, default=HERE.parent, help="checkout that is run (this one)"
    )
    asked = parser.parse_args(argv)
    chosen = [case for case in cases() if fnmatch.fnmatchcase(case.name, asked.only)]
    if not chosen:
        parser.error(f"--only is {asked.only!r}, and no case is called so; names are KIND/PRODUCT/WHAT")
    root = asked.root.resolve()
    if asked.against and not Path(asked.against).is_file() and not is_revision(asked.against, root):
        parser.error(f"--against is {asked.against!r}; it must be a revision of {root}, or a file of --out")
    taken = take(chosen, root, asked.jobs)
    if asked.out:
        asked.out.write_text(as_json(taken))
    print(f"{len(chosen)} cases, {len(taken)} records, digest {digest(as_json(taken))[:16]}")
    if asked.against is None:
        return 0
    if Path(asked.against).is_file():
        records = json.loads(Path(asked.against).read_text())
        before = [record for record in records if fnmatch.fnmatchcase(record["case"], asked.only)]
    else:
        before = take_revision(asked.against, root, asked.only, asked.jobs)
    lines, moved = compare(before, taken, asked.against)
    print("\n".join(lines))
    return int(moved)


def take(chosen: Sequence[Case], root: Path, jobs: int) -> list[Record]:
    """Run cases in processes of the package that lies in a checkout; records in the order of their names."""
    # Anew and not forked, so that the order of imports in a worker is the same whoever calls this.
    context = multiprocessing.get_context("spawn")
    with environment(root), ProcessPoolExecutor(jobs, context, begin, (str(root),)) as pool:
        found = list(pool.map(records_of, chosen, chunksize=2))
    return sorted((record for own in found for record in own), key=lambda r: (r["case"], r["kernel"]))


def is_revision(name: str, root: Path) -> bool:
    """Tell whether git knows a revision."""
    asked = ["git", "-C", str(root), "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"]
    return subprocess.run(asked, stdout=subprocess.DEVNULL).returncode == 0


def take_revision(revision: str, root: Path, only: str, jobs: int) -> list[Record]:
    """Run the cases of this file in another revision, in a worktree that goes afterwards."""
    git = ("git", "-C", str(root), "worktree")
    with tempfile.TemporaryDirectory() as folder:
        there, out = Path(folder) / "there", Path(folder) / "records.json"
        subprocess.run([*git, "add", "--quiet", "--detach", str(there), revision], check=True)
        try:
            words = ["--root", str(there), "--out", str(out), "--only", only, "--jobs", str(jobs)]
            done = subprocess.run([sys.executable, __file__, *words], stdout=subprocess.DEVNULL)
            if done.returncode:
                raise SystemExit(f"fingerprint: the cases did not run in {revision}; its error stands above")
            found: list[Record] = json.loads(out.read_text())
        finally:
            subprocess.run([*git, "remove", "--force", str(there)], check=True)
    return found


@contextlib.contextmanager
def environment(root: Path) -> Iterator[None]:
    """Set what workers begin with, as long as this lasts: their package, and a terminal of one width."""
    before = dict(os.environ)
    os.environ.update(PYTHONPATH=str(root), COLUMNS="100", LINES="40", MPLBACKEND="Agg", PYTHONHASHSEED="0")
    # Measured tables outside of the project would change what `validate` prints.
    os.environ.pop("ASCENDSIM_DATA", None)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def begin(root: str) -> None:
    """Make sure, in a worker, that the package is that of the checkout."""
    sys.path.insert(0, root)
    import ascendsim

    found = Path(ascendsim.__file__).resolve().parent.parent
    if found != Path(root):
        raise SystemExit(f"fingerprint: ascendsim comes from {found}; it must come from {root}")
    ROOT.append(root)


# Of a worker: the checkout whose package it runs.
ROOT: list[str] = []


def records_of(case: Case) -> list[Record]:
    """Run a case; an error is a record like others."""
    asked = {"kernel": "asked", "door": case.door, "asks": json.loads(json.dumps(case.asks))}
    try:
        found = DOORS[case.door](dict(asked["asks"]))
    except Exception as error:
        found = [{"kernel": "error", "error": f"{type(error).__name__}: {told(str(error))}"}]
    return [{"case": case.name, **record} for record in (asked, *found)]


def as_json(records: Sequence[Record]) -> str:
    """Return records as JSON, one line each."""
    return "[\n" + ",\n".join(json.dumps(record, sort_keys=True) for record in records) + "\n]\n"


def digest(text: str | bytes) -> str:
    """Return the SHA-256 of a text or of bytes."""
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()


# Figures


def estimate_conv(asks: Record) -> list[Record]:
    """Estimate the cycles of a convolution backward."""
    import ascendsim

    problem = ascendsim.ConvProblem(**asks.pop("problem"))
    if nest := asks.pop("own_nest", None):
        asks["schedule"] = loaded(nest)
    if gradient := asks.pop("draws", None):
        space = ascendsim.legal_tilings(problem, gradient, asks["product"])
        asks["tiling"] = {gradient: space.sample(1, seed=asks.pop("seed"))[0]}
    return figures(ascendsim.estimate(problem, **asks))


def estimate_product(asks: Record) -> list[Record]:
    """Estimate the cycles of a matrix product."""
    import ascendsim

    return figures(ascendsim.estimate_matmul(ascendsim.MatmulProblem(**asks.pop("problem")), **asks))


def loaded(where: str) -> type:
    """Return a class of a file of the checkout, given as FILE:CLASS."""
    file, name = where.split(":")
    spec = importlib.util.spec_from_file_location("own_nest", Path(ROOT[0]) / file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    kind: type = getattr(module, name)
    return kind


def figures(result: Any) -> list[Record]:
    """Return a record of a call, and one of each of its kernels."""
    seen: Counter[str] = Counter()
    names, found = [], []
    for kernel in result.kernels:
        seen[kernel.name] += 1
        # A call may run a change of layout twice.
        names.append(kernel.name + (f" #{seen[kernel.name]}" if seen[kernel.name] > 1 else ""))
        found.append({"kernel": names[-1], **kernel_figures(kernel)})
    said = ("product", "variant", "compute_dtype", "accumulation")
    whole = {"kernel": "call", "kernels": names, "notes": list(result.notes)}
    return [whole | {name: getattr(result, name) for name in said}, *found]


def kernel_figures(kernel: Any) -> Record:
    """Return what is known of a kernel's time, in flat fields without those that are 0."""
    own = dict(kernel.to_record())
    del own["kernel"]
    # All that were moved, whatever sources a record knows.
    own |= {f"bytes_{source}": count for source, count in kernel.bytes.items()}
    own |= {f"busy_{pipe}": cycles for pipe, cycles in kernel.busy.items()}
    waits: Counter[str] = Counter()
    every = []
    for at, phase in enumerate(kernel.times.phases):
        own[f"phase_{at}"] = f"{phase.name}: {phase.begin} to {phase.end}"
        for work in phase.cores:
            parts = {
                (pipe, cause): n for pipe, causes in work.waiting.items() for cause, n in causes.items() if n
            }
            for (pipe, cause), cycles in parts.items():
                waits[f"wait_{pipe}_{cause}"] += cycles * len(work.cores)
            busy = sorted((pipe, n) for pipe, n in work.busy.items() if n)
            # Of each core, whoever ran for it.
            every += [
                (at, str(core.kind), core.index, busy, sorted(parts.items()), work.done)
                for core in work.cores
            ]
    own |= waits | {"every_core": digest(json.dumps(sorted(every)))[:16]}
    if kernel.plan is not None:
        own["plan"] = plan_text(kernel.plan)
    return {name: value for name, value in own.items() if value not in (0, "")}


def plan_text(plan: Any) -> str:
    """Return a plan as a line: its fields as files of plans have them; of a class its name alone."""
    fields = plan.to_dict() if isinstance(plan.schedule, str) else {"schedule": plan.nest}
    return " ".join(f"{name}={value}" for name, value in fields.items())


def plan_call(asks: Record) -> list[Record]:
    """Plan a call of `plan_calls.txt`, each plan a line."""
    from fingerprint_plans import plans_of

    return [{"kernel": "plans", "text": [told(str(plan)) for plan in plans_of(asks["call"])]}]


# Bits


def tensor(seed: Sequence[int], shape: Sequence[int], dtype: str) -> Any:
    """Draw a tensor; one in fifty elements is far larger than the others, or 0."""
    import ml_dtypes
    import numpy as np

    random = np.random.default_rng(seed)
    if dtype == "int8":
        return random.integers(-128, 128, shape).astype(np.int8)
    values = random.standard_normal(shape).astype(np.float32)
    values *= random.choice(np.array([1, 64, 0], np.float32), shape, p=[0.96, 0.02, 0.02])
    if dtype == "hifloat8":
        from ascendsim.numerics.hifloat8 import HiFloat8Array

        return HiFloat8Array.from_float32(values)
    return values.astype(getattr(ml_dtypes, dtype, dtype))


def bits_of(name: str, array: Any) -> Record:
    """Return a record of the bits of a result."""
    import numpy as np

    stored = np.ascontiguousarray(getattr(array, "codes", array))
    text = f"{stored.dtype} {'x'.join(map(str, stored.shape))}"
    return {"kernel": f"bits of {name}", "stored": text, "sha256": digest(stored.tobytes())}


def gradient_bits(result: Any) -> list[Record]:
    """Return the bits of all gradients, and the figures of a call that was timed."""
    made = {name: getattr(result, name) for name in ("grad_input", "grad_weight", "grad_bias")}
    return [*figures(result), *(bits_of(name, array) for name, array in made.items() if array is not None)]


def run_conv(asks: Record) -> list[Record]:
    """Compute gradients."""
    import ascendsim

    problem = ascendsim.ConvProblem(**asks.pop("problem"))
    shapes = (problem.grad_output, problem.input, problem.weight)
    dtype, seed = asks.pop("dtype", "float16"), asks.pop("seed", 0)
    drawn = [tensor((seed, at), shape, dtype) for at, shape in enumerate(shapes)]
    p = problem
    attributes = (p.stride, p.padding, p.dilation, p.transposed, p.output_padding, p.groups)
    mask, math = asks.pop("output_mask", (True, True, True)), asks.pop("cube_math_type", 0)
    sizes = [p.grad_output[1]]
    return gradient_bits(ascendsim.convolution_backward(*drawn, sizes, *attributes, mask, math, **asks))


def run_tbc(asks: Record) -> list[Record]:
    """Compute the gradients of conv_tbc."""
    import ascendsim

    time, batch, taps, pad = (asks.pop(name) for name in ("time", "batch", "taps", "pad"))
    first, second = asks.pop("channels")
    shapes = (
        (time + 2 * pad + 1 - taps, batch, second),
        (time, batch, first),
        (taps, first, second),
        (second,),
    )
    drawn = [tensor((7, at), shape, "float16") for at, shape in enumerate(shapes)]
    return gradient_bits(ascendsim.conv_tbc_backward(*drawn, pad, 0, **asks))


def run_product(asks: Record) -> list[Record]:
    """Compute a matrix product."""
    import ascendsim

    m, k, n, dtype = (asks.pop(name) for name in ("m", "k", "n", "dtype"))
    result = ascendsim.matmul(tensor((1, 0), (m, k), dtype), tensor((1, 1), (k, n), dtype), **asks)
    return [*figures(result), bits_of("output", result.output)]


# Commands


def run_commands(asks: Record) -> list[Record]:
    """Run commands in a folder of their own: what they print, and what they leave there."""
    from ascendsim.cli import main as command

    found: list[Record] = []
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for name, text in asks["files"].items():
            Path(name).write_text(text)
        for at, line in enumerate(asks["words"], 1):
            out, err = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                try:
                    status = command(shlex.split(line.replace("{root}", ROOT[0])))
                except SystemExit as left:
                    status = left.code
            found.append({"kernel": f"{at} status", "text": [f"{line}: {status}"]})
            for name, stream in (("stdout", out), ("stderr", err)):
                found.append({"kernel": f"{at} {name}", **lines_of(stream.getvalue(), folder)})
        made = sorted(path for path in Path().rglob("*") if path.is_file() and path.name not in asks["files"])
        found += [written(path, folder) for path in made if not str(path).startswith("kept")]
    return found


def written(path: Path, folder: str) -> Record:
    """Return a record of a file; of pictures and archives that it is there."""
    own = {"kernel": f"file {path}"}
    return own | (lines_of(path.read_text(), folder) if path.suffix in TEXTS else {"text": ["there"]})


def lines_of(text: str, folder: str = "") -> Record:
    """Return the lines of a text as they are kept: where they are many, their digest."""
    lines = told(text, folder).splitlines()
    lines = [line for line in lines if not PROGRESS.fullmatch(line)]
    if len(lines) <= MOST_LINES:
        return {"text": lines}
    return {"text": [f"{len(lines)} lines, SHA-256 {digest(chr(10).join(lines))}"]}


def told(text: str, folder: str = "") -> str:
    """Return a text without what hangs on place and time."""
    for place, name in ((folder, "FOLDER"), (ROOT[0] if ROOT else "", "ROOT")):
        text = text.replace(place, name) if place else text
    return re.sub(r"data:image/[^\"')]*", "PICTURE", text)


DOORS: Mapping[str, Callable[[Record], list[Record]]] = {
    "estimate": estimate_conv,
    "estimate_matmul": estimate_product,
    "convolution_backward": run_conv,
    "conv_tbc_backward": run_tbc,
    "matmul": run_product,
    "command": run_commands,
    "plan": plan_call,
}


if __name__ == "__main__":
    sys.exit(main())
