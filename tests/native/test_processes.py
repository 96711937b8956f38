"""Do processes that fork beside threads, or free much memory, go on as any other?"""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

# --- Does a process that is forked beside threads end, with the numbers of any other? ------------------

ROOT = Path(__file__).parents[2]
needed_by_forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks on this system")


def run(*words, seconds=60):
    """Run a program that forks in a process without the threads of this one."""
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def _compiled():
    """Fill the cache of machine code: a child that compiles for itself takes as long as one that hangs."""
    run(
        "-c",
        "from tests.helpers.other_processes import computed\nfor seed in range(8): computed(seed)",
        seconds=600,
    )


# Cold: threads import what they compute with, and load machine code, while children are forked.
@needed_by_forks
@pytest.mark.usefixtures("_compiled")
@pytest.mark.parametrize(
    "children", [pytest.param(12, id="12"), pytest.param(200, id="200", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("start", ["cold", "warm"])
def test_children_forked_beside_threads_that_compute_get_the_right_numbers(start, children):
    run("-m", "tests.helpers.other_processes", start, str(children), seconds=600)


# A thread is in the middle of something when the child is forked that does the same.
BESIDE = """
import os, threading, time
os.register_at_fork(before=lambda: later())
import ascendsim.native
from tests.helpers.other_processes import answer_of, forked

ascendsim.__path__.append({folder!r})
begun, later = threading.Event(), lambda: None
{names}
def slow():
    {thread}
def begin():
    threading.Thread(target=slow).start()
    assert begun.wait(20)
{begin}
def child():
    {child}
answer = answer_of(*forked(child))
assert answer == ({answer!r}, 0), answer
"""
IMPORTED = "from ascendsim.halfway import BY; return 'parent' if BY == os.getppid() else 'child'"


def beside(folder, *, thread, child=IMPORTED, answer="parent", names="", begin="begin()"):
    """Fork a child while a thread is at work, and compare its answer."""
    # A module of the package as far as Python knows, which takes a while to import.
    (folder / "halfway.py").write_text(
        "import os, sys, time\nfrom contextlib import nullcontext\n"
        "main = sys.modules['__main__']\n"
        "main.begun.set()\n"
        "time.sleep(0.3)\n"
        "with getattr(main, 'lock', nullcontext()):\n"
        "    BY = os.getpid()\n"
    )
    told = {"folder": str(folder), "names": names, "begin": begin, "answer": answer}
    run("-c", BESIDE.format(thread=thread, child=child, **told))


@needed_by_forks
def test_a_child_has_what_another_thread_was_importing(tmp_path):
    beside(tmp_path, thread="import ascendsim.halfway")


COMPILERS = {
    "ours": "from ascendsim.native.process import COMPILING as lock",
    "numba": "from numba.core.compiler_lock import global_compiler_lock as lock",
    "llvmlite": "from llvmlite.binding.ffi import lib; lock = lib._lock",
}


@needed_by_forks
@pytest.mark.parametrize("names", COMPILERS.values(), ids=COMPILERS)
def test_a_child_compiles_what_another_thread_was_compiling(names, tmp_path):
    held = "with lock: begun.set(); time.sleep(0.3)"
    beside(tmp_path, names=names, thread=held, child=f"{held}; return 'through'", answer="through")


@needed_by_forks
def test_a_fork_waits_again_for_what_began_while_it_waited(tmp_path):
    # The import needs the compiler, which the fork that waits for it must not have.
    held = "with lock: begun.set(); time.sleep(0.2)"
    beside(tmp_path, names=COMPILERS["ours"], thread=f"{held}\n    import ascendsim.halfway")


@needed_by_forks
def test_a_child_imports_anew_what_was_begun_in_the_last_moment(tmp_path):
    # Python calls those who are to be told of a fork in reverse: here ours, which has then waited in vain.
    beside(tmp_path, thread="import ascendsim.halfway", begin="later = begin", answer="child")


@needed_by_forks
def test_a_fork_amid_an_import_of_its_own_thread_waits_for_nothing(tmp_path):
    (tmp_path / "amid.py").write_text(
        "from tests.helpers.other_processes import answer_of, forked\n"
        "assert answer_of(*forked(lambda: 'through')) == ('through', 0)\n"
    )
    paths = f"import ascendsim.native; ascendsim.__path__.append({str(tmp_path)!r})"
    run("-c", f"{paths}; import ascendsim.amid")


@needed_by_forks
def test_a_fork_does_not_wait_for_an_import_of_others(tmp_path):
    # A program that is imported, as servers are, and forks from another thread until it is told to stop.
    (tmp_path / "served.py").write_text(
        "import ascendsim.native\n"
        "from threading import Thread\n"
        "from tests.helpers.other_processes import answer_of, forked\n"
        "found = []\n"
        "thread = Thread(target=lambda: found.append(answer_of(*forked(lambda: 'through'))), daemon=True)\n"
        "thread.start()\n"
        "thread.join(20)\n"
        "assert found == [('through', 0)]\n"
    )
    run("-c", f"import sys; sys.path.append({str(tmp_path)!r}); import served")


# --- Does a process that computes gradients keep what it has freed? ------------------------------------

# Page faults of the second of two rounds that take and free as much, before and after the call.
ROUNDS = """
from resource import RUSAGE_SELF, getrusage
import numpy as np
from ascendsim.native.process import keep_freed_memory

def faults():
    found = []
    for _ in range(2):
        before = getrusage(RUSAGE_SELF).ru_minflt
        arrays = [np.ones(1 << 19) for _ in range(4)]
        del arrays
        found.append(getrusage(RUSAGE_SELF).ru_minflt - before)
    return found[-1]

before = faults()
peak = getrusage(RUSAGE_SELF).ru_maxrss
keep_freed_memory()
print(before, faults(), getrusage(RUSAGE_SELF).ru_maxrss - peak)
"""
# What a call takes, in a process that does nothing else.
CALLS = """
from resource import RUSAGE_SELF, getrusage
import numpy as np
from ascendsim import convolution_backward

dy, x, w = (np.ones(shape, np.float16) for shape in [(4, 128, 28, 28), (4, 128, 28, 28), (128, 128, 3, 3)])
rest = [128], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, (True, True, False), 0

def faults():
    before = getrusage(RUSAGE_SELF).ru_minflt
    convolution_backward(dy, x, w, *rest, product="910B2", accumulation="seq:RNE", timing=False)
    return getrusage(RUSAGE_SELF).ru_minflt - before

print(*[faults() for _ in range(4)])
"""

needed_by_freed_memory = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="another C library has other rules for what it gives back"
)


def printed(code, **options):
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, **options)
    return [int(word) for word in made.stdout.split()]


@needed_by_freed_memory
def test_memory_that_is_freed_is_there_for_the_next_round():
    before, after, more_kib = printed(ROUNDS)
    # 16 MiB are 4,096 pages, or fewer larger ones.
    assert before > 8
    assert after < before / 4
    # The block itself is never touched: all that is kept is what the rounds took.
    assert more_kib < 20 << 10


@needed_by_freed_memory
def test_equal_calls_take_no_memory_anew():
    first, *_, last = printed(CALLS)
    # The gradients and what is made on the way are 2,400 pages.
    assert first > 2400 > 100 > last
