"""What tests run in other processes: jobs, children that are forked, a changed copy of the project."""

import faulthandler
import hashlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from multiprocessing import parent_process
from pathlib import Path
from random import Random
from threading import Event
from typing import NamedTuple

import numpy as np
import numpy.random
import pytest

from ascendsim import ConvProblem, convolution_backward, estimate, matmul
from ascendsim.errors import ConfigError

# --- Functions that the tests give to worker processes, which import them from here. -------------------


def square(number):
    return number * number


def square_or_wait(folder, number):
    """Square a number; the first one tells who works on it and is not through for long."""
    if number == 0:
        (Path(folder) / str(os.getpid())).touch()
        time.sleep(600)
    return number * number


def process(_):
    return os.getpid()


def refuse_three(number):
    if number == 3:
        raise ConfigError("three is refused")
    return number


def slip_at_three(number):
    return 1 // (number - 3)


def end(_):
    os._exit(3)


def end_elsewhere(_):
    if parent_process() is not None:
        os._exit(3)


class Counting:
    """Counts what it has been asked in this process."""

    def __init__(self):
        self.asked = 0

    def __call__(self, _):
        self.asked += 1
        return os.getpid(), self.asked


# --- A copy of the project with one line changed, and some tests run on it. ----------------------------

ROOT = Path(__file__).parents[2]
# A changed line can make a loop endless. In seconds of processors, so that a busy machine changes nothing.
PATIENCE = 300
COPIED = ("ascendsim", "tests", "docs", "reports", "configs")


class Mutation(NamedTuple):
    """One change to one file, named without its ending, and the test files that have to notice.

    No tests: those that are usual for such rows. `pick` is an expression that picks among them.
    """

    file: str
    old: str
    new: str
    tests: str = ""
    pick: str = ""


def source_of(file):
    """The text of a file of the package, by its path without the ending."""
    return (ROOT / "ascendsim" / f"{file}.py").read_text()


def file_of(name):
    """The path of a test file, by its name without the ending, whichever folder it is in."""
    [path] = (ROOT / "tests").glob(f"*/{name}.py")
    return str(path.relative_to(ROOT))


def run_copy(folder, file, old, new, tests):
    """Run tests (names, with spaces between) on a copy with one change; return the finished process.

    Exit status 1: tests ran and some failed; 0: nobody noticed; 2: the copy cannot even be imported; minus
    SIGXCPU: the tests of the copy found no end.
    """
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    if file:
        (folder / "ascendsim" / f"{file}.py").write_text(source_of(file).replace(old, new))
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("ASCENDSIM_DATA", None)  # the project's own tests must notice
    command = [sys.executable, "-m", "pytest", "-x", *(file_of(name) for name in tests.split())]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, preexec_fn=limit_time
    )


def limit_time():
    """End the process that calls this, and each that it starts, when it has computed for too long."""
    resource.setrlimit(resource.RLIMIT_CPU, (PATIENCE, PATIENCE + 5))


def assert_noticed(done):
    """A test must have failed or found no end, not the import."""
    assert done.returncode in (1, -signal.SIGXCPU), (
        f"no test noticed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    )


def checks_of(every, tests):
    """The three tests of a table of mutations, which the test files `tests` have to notice.

    Each line to change must stand once; an unchanged copy must pass; each changed copy must fail (both slow).
    """
    named = pytest.mark.parametrize("mutation", every, ids=lambda m: f"{m.file}:{m.new}")

    @named
    def stands_once(mutation):
        assert source_of(mutation.file).count(mutation.old) == 1

    @pytest.mark.slow
    def passes_unchanged(tmp_path):
        done = run_copy(tmp_path, "", "", "", tests)
        assert done.returncode == 0, done.stdout[-2000:]

    @pytest.mark.slow
    @named
    def makes_a_test_fail(mutation, tmp_path):
        assert_noticed(run_copy(tmp_path, mutation.file, mutation.old, mutation.new, mutation.tests or tests))

    return stands_once, passes_unchanged, makes_a_test_fail


# --- Fork children beside threads that compute, and see that each ends with the right numbers. ---------
# A program of its own, whose process has no other threads: `python -m tests.helpers.other_processes warm 40`.

# A child that takes longer hangs: usually it is through in half a second.
SECONDS = 20
THREADS = 4
AT_ONCE = 4


def computed(seed):
    """Return a digest of the answers of four small calls that hardly anybody has made before."""
    draw, values, digest = Random(seed), np.random.default_rng(seed), hashlib.sha256()

    def tensors(*shapes):
        return [values.standard_normal(shape).astype(np.float16) for shape in shapes]

    for timing in (True, False):
        problem = drawn(draw)
        given = tensors(problem.grad_output, problem.input, problem.weight)
        rest = None, problem.stride, problem.padding, 1, False, 0, 1, (True, True, False), 0
        made = convolution_backward(*given, *rest, product="910B2", timing=timing)
        digest.update(made.grad_input.tobytes() + made.grad_weight.tobytes())
        digest.update(str(made.cycles if timing else None).encode())
    digest.update(str(estimate(drawn(draw), product="910B2").cycles).encode())
    m, k, n = (draw.randrange(1, 40) for _ in range(3))
    product = matmul(*tensors((m, k), (k, n)), product="910B2")
    digest.update(product.output.tobytes() + str(product.cycles).encode())
    return digest.hexdigest()


def drawn(draw):
    """Return one of a million small convolutions."""
    kernel, channels = draw.randrange(1, 4), draw.randrange(1, 40)
    image = 1, channels, draw.randrange(kernel, 12), draw.randrange(kernel, 12)
    weight = draw.randrange(1, 40), channels, kernel, kernel
    return ConvProblem(image, weight, stride=draw.randrange(1, 3), padding=draw.randrange(kernel))


def forked(function, *arguments):
    """Return the process of a child that calls a function, and where it writes the answer."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        # What Python warns of since 3.12 is what is tried here.
        warnings.filterwarnings("ignore", ".* is multi-threaded, use of fork", DeprecationWarning)
        child = os.fork()
    if child:
        os.close(writer)
        return child, reader
    status = 1
    try:
        # Ends the child, and tells where it was.
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        os.write(writer, function(*arguments).encode())
        status = 0
    except BaseException as error:
        print(f"child: {error!r}", file=sys.stderr, flush=True)
    finally:
        os._exit(status)


def answer_of(child, reader):
    """Return what a child wrote, and its status."""
    with os.fdopen(reader) as file:
        told = file.read()
    return told, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def computing(stop, seeds):
    """Compute until told to stop; return how often."""
    rounds = 0
    while not stop.is_set():
        computed(next(seeds))
        rounds += 1
    return rounds


def wrong(children):
    """Fork so many children beside threads that compute all the time; return those that went wrong."""
    stop, seeds, running, found = Event(), count(10**6), deque(), {}
    with ThreadPoolExecutor(THREADS) as pool:
        threads = [pool.submit(computing, stop, seeds) for _ in range(THREADS)]
        for seed in range(children):
            if len(running) == AT_ONCE:
                first, process = running.popleft()
                found[first] = answer_of(*process)
            running.append((seed, forked(computed, seed)))
        found |= {seed: answer_of(*process) for seed, process in running}
        stop.set()
        assert all(thread.result() for thread in threads), "a thread has computed nothing"
    # Only now: what the parent has computed before a child would know.
    return {seed: got for seed, got in found.items() if got != (computed(seed), 0)}


def main(start, children):
    """Return the number of children that went wrong; print what they answered."""
    if start == "warm":
        computed(10**9)
    found = wrong(int(children))
    for seed, (told, status) in found.items():
        print(f"child {seed}: status {status}, answered {told!r}", file=sys.stderr)
    print(f"{len(found)} of {children} went wrong", file=sys.stderr)
    return min(len(found), 100)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
