"""Is each of many estimates, or tasks, the one that it would be alone, whoever works on it?"""

import os
import pickle
import signal
import subprocess
import sys
import time
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import pytest
from rich.console import Console

import ascendsim
from ascendsim import ConvProblem, Item, Tiling, estimate, estimate_many, load_profile
from ascendsim.errors import AclnnError, CapacityError, ConfigError, UnsupportedError, WorkerError
from ascendsim.ops.results import Estimate
from ascendsim.parallel import in_order, portion_size, usable_cores, worker_count
from ascendsim.report.document import CallReport, run_document
from tests.helpers import other_processes as jobs
from tests.helpers.report_samples import assert_alike
from tests.program.test_pickles import OwnNest

# --- Is each estimate of many the one that `estimate` makes, however many processes work? --------------

SMALL = ConvProblem((1, 16, 6, 6), (32, 16, 3, 3), padding=1)
POINT = ConvProblem((2, 32, 4, 4), (16, 32, 1, 1))
HUGE = Tiling(base_m=4096, base_n=4096, base_k=4096)
# (item, what it gives: None for an estimate, or the kind of the error)
CASES = (
    (Item(SMALL, product="910B"), None),
    (Item(SMALL, product="910B", output_mask=(True, False, False), l2_start="cold"), None),
    (Item(SMALL, "float32", 1, product="910_95"), None),
    (Item(SMALL, product="no such product"), ConfigError),
    (Item(POINT, "float17"), UnsupportedError),
    (Item(POINT, product=load_profile("910", overrides={"scalar.issue_cycles": 9})), None),
    (Item(SMALL, "float8_e4m3fn", product="910B"), AclnnError),
    (Item(SMALL, tiling={"grad_input": HUGE}), CapacityError),
    (Item(SMALL, schedule=OwnNest), None),
    (Item(POINT, strides={"input": (512, 1, 128, 32)}), None),
    (Item("no problem"), ConfigError),
    (Item(POINT, product=Path("no/such/file.toml")), ConfigError),
    (Item(SMALL, product="910B"), None),
)
ITEMS = [item for item, _ in CASES]


@pytest.fixture(scope="module")
def answers():
    """The answers of one, two and three processes."""
    return {workers: estimate_many(ITEMS, workers=workers) for workers in (1, 2, 3)}


def alone(item):
    return estimate(item.problem, item.dtype, item.cube_math_type, **item.options)


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("number", range(len(CASES)))
def test_each_answer_is_that_of_the_call_alone(answers, workers, number):
    item, kind = CASES[number]
    found = answers[workers][number]
    if kind is None:
        assert_alike(alone(item), found)
        assert found == alone(item)
        return
    # The very error that the call raises, in the place of its estimate.
    with pytest.raises(kind) as told:
        alone(item)
    assert type(found) is type(told.value)
    assert str(found) == str(told.value)
    assert found.args == told.value.args
    assert found.__notes__ == [f"item {number} of estimate_many, counted from 0"]


def test_answers_do_not_depend_on_the_number_of_workers(answers):
    for number in range(len(CASES)):
        one, *others = (found[number] for found in answers.values())
        for other in others:
            assert pickle.dumps(plain(one)) == pickle.dumps(plain(other))


def plain(answer):
    """What an answer says, in plain values; its report has every number of it."""
    if not isinstance(answer, Estimate):
        return type(answer).__name__, str(answer), answer.__notes__
    return repr(run_document("a call", {}, [CallReport(answer, load_profile(answer.variant))], []))


def test_a_mapping_is_an_item():
    made = estimate_many([{"problem": SMALL, "dtype": "float32", "product": "910_95"}], workers=1)
    assert made == [estimate(SMALL, "float32", product="910_95")]


def test_any_iterable_will_do_and_none_is_none():
    assert estimate_many(iter(ITEMS[:2]), workers=1) == [alone(item) for item in ITEMS[:2]]
    assert estimate_many([]) == []


def test_an_item_is_frozen_and_a_value():
    item = Item(SMALL, "float32", 1, product="910", output_mask=(True, True, False))
    assert (item.dtype, item.cube_math_type, item.product) == ("float32", 1, "910")
    assert Item(SMALL).product == "910B"  # as of `estimate`
    with pytest.raises(FrozenInstanceError):
        item.dtype = "float16"
    with pytest.raises(TypeError):
        item.options["product"] = "910B"
    assert pickle.loads(pickle.dumps(item)) == item
    assert item == Item(SMALL, "float32", 1, product="910", output_mask=(True, True, False))
    assert item != Item(SMALL, "float32", 1, product="910")
    assert replace(SMALL) == item.problem


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"problem": SMALL, "produkt": "910"},
            r"'produkt'; did you mean product\?",
        ),
        ({"dtype": "float16"}, "missing 1 required positional argument: 'problem'"),
    ],
)
def test_a_slip_in_an_item_is_told_before_anything_runs(given, words, monkeypatch):
    monkeypatch.setattr("ascendsim.ops.many.in_order", None)
    with pytest.raises(TypeError, match=words) as told:
        estimate_many([Item(SMALL), given])
    assert told.value.__notes__ == ["item 1 of estimate_many, counted from 0"]


def test_what_is_no_item_is_told_with_its_number():
    with pytest.raises(ConfigError, match=r"item 1 \(counted from 0\) is 5; it must be Item"):
        estimate_many([Item(SMALL), 5])
    with pytest.raises(ConfigError, match="workers is 0"):
        estimate_many([Item(SMALL)], workers=0)


def test_a_class_that_no_other_process_can_find_is_told():
    class Local(OwnNest):
        pass

    items = [Item(SMALL, schedule=OwnNest), Item(SMALL, schedule=Local)]
    with pytest.raises(ConfigError, match=r"item 1 cannot be sent to another process.*workers=1"):
        estimate_many(items, workers=2)
    assert estimate_many(items, workers=1)[1].cycles == estimate(SMALL, schedule=Local).cycles


def test_an_error_that_is_no_mistake_of_the_caller_is_raised(monkeypatch):
    def slip(*_, **__):
        raise ZeroDivisionError("a slip in the simulator")

    monkeypatch.setattr("ascendsim.ops.many.estimate_layer", slip)
    with pytest.raises(ZeroDivisionError) as told:
        estimate_many([Item(SMALL)], workers=1)
    assert told.value.__notes__ == ["while working on item 0, counted from 0"]


def test_each_product_is_loaded_once(monkeypatch):
    loaded = []

    def load(name):
        loaded.append(name)
        return load_profile(name)

    monkeypatch.setattr("ascendsim.ops.many.load_profile", load)
    estimate_many([Item(SMALL, product=name) for name in ("910B", "910", "910B", "910B", "910")], workers=1)
    assert loaded == ["910B", "910"]


def test_timelines_are_not_kept_until_somebody_asks(answers):
    def held(answer):
        return [kernel.timed._made for kernel in answer.kernels]

    again = estimate_many(ITEMS[:1], workers=1)[0]
    assert set(held(again)) == {None}
    assert set(held(pickle.loads(pickle.dumps(answers[2][0])))) == {None}
    assert again.kernels[0].timeline.cycles == again.kernels[0].cycles


class Terminal:
    """Standard error, as a terminal or a pipe."""

    def __init__(self, *, terminal):
        self.text, self.terminal = "", terminal

    def isatty(self):
        return self.terminal

    def write(self, text):
        self.text += text

    def flush(self):
        pass


@pytest.mark.parametrize("workers", [1, 2])
def test_progress_is_shown_on_a_terminal_and_not_in_a_pipe(workers, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    for terminal in (True, False):
        error = Terminal(terminal=terminal)
        monkeypatch.setattr(sys, "stderr", error)
        estimate_many(ITEMS[:2], workers=workers)
        assert ("0/2" in error.text) == terminal
        assert bool(error.text) == terminal
    assert Console(stderr=True).is_terminal is False


def test_both_names_are_public():
    assert {"Item", "estimate_many"} <= set(ascendsim.__all__)


# --- Are tasks worked on in order, by as many processes as asked, of which none is left? ---------------

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_answers_come_in_the_order_of_the_tasks(workers):
    # 100 tasks go to two workers in portions of three, and the order inside one counts as well.
    assert in_order(jobs.square, list(range(100)), workers) == [number * number for number in range(100)]


def test_one_worker_is_this_process_and_several_are_others():
    assert set(in_order(jobs.process, range(8), 1)) == {os.getpid()}
    others = set(in_order(jobs.process, range(8), 2))
    assert os.getpid() not in others
    assert 1 <= len(others) <= 2


def test_nothing_to_do_and_one_thing_to_do_start_no_process():
    assert in_order(jobs.process, [], 4) == []
    assert in_order(jobs.process, [1], 4) == [os.getpid()]


@pytest.mark.parametrize("workers", [1, 2])
def test_progress_is_told_once_for_each_task_in_order(workers):
    told = []
    in_order(jobs.square, range(20), workers, told.append)
    assert told == list(range(20))


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("function", "kind"), [(jobs.refuse_three, ConfigError), (jobs.slip_at_three, ZeroDivisionError)]
)
def test_an_error_is_that_of_the_function_and_names_the_task(workers, function, kind):
    with pytest.raises(kind) as told:
        in_order(function, range(6), workers)
    assert told.value.__notes__[0] == "while working on item 3, counted from 0"


def test_a_worker_that_ends_early_is_told():
    with pytest.raises(WorkerError, match=r"0 of 5 answers have come.*__main__.*workers=1"):
        in_order(jobs.end, range(5), 2)


def test_what_cannot_be_sent_is_named():
    with pytest.raises(ConfigError, match=r"item 1 cannot be sent to another process.*workers=1"):
        in_order(jobs.square, [1, lambda: None], 2)
    with pytest.raises(ConfigError, match="the function cannot be sent"):
        in_order(lambda number: number, [1, 2], 2)


def test_a_function_keeps_what_it_has_found_out_in_its_process():
    by_process = {}
    for who, asked in in_order(jobs.Counting(), range(70), 2):
        by_process.setdefault(who, []).append(asked)
    # 70 tasks in portions of 70 // (2 x 16) = 2: each worker counts on from portion to portion.
    for asked in by_process.values():
        assert asked == list(range(1, len(asked) + 1))


def test_portions():
    assert portion_size(1, 2) == 1
    assert portion_size(92, 2) == 2  # 92 // 32
    assert portion_size(10_000, 2) == 32  # 312 would leave a worker alone with the last for long
    assert portion_size(500, 16) == 1  # 500 // 256


@pytest.mark.parametrize("workers", [0, -1, 1.5, "2", True])
def test_a_number_of_workers_without_a_meaning(workers):
    with pytest.raises(ConfigError, match=r"workers is .*; it must be 1 or more, or None"):
        worker_count(workers, 5)


@pytest.fixture
def three_cores(monkeypatch):
    monkeypatch.setattr("ascendsim.parallel.usable_cores", lambda: 3)


@pytest.mark.usefixtures("three_cores")
def test_tasks_that_take_less_than_a_start_start_no_process(monkeypatch):
    # However slow the machine is on which this runs.
    monkeypatch.setattr("ascendsim.parallel.START_SECONDS", 3600.0)
    assert set(in_order(jobs.process, range(50))) == {os.getpid()}


@pytest.mark.slow
@pytest.mark.usefixtures("three_cores")
def test_what_is_left_after_as_long_as_a_start_goes_to_workers(monkeypatch):
    monkeypatch.setattr("ascendsim.parallel.START_SECONDS", -1.0)
    told = []
    first, *others = in_order(jobs.process, range(8), None, told.append)
    assert first == os.getpid()
    assert os.getpid() not in others
    assert told == list(range(8))
    assert in_order(jobs.square, list(range(100))) == [number * number for number in range(100)]
    # What is told counts all tasks, those done here too.
    with pytest.raises(ConfigError) as error:
        in_order(jobs.refuse_three, range(6))
    assert error.value.__notes__[0] == "while working on item 3, counted from 0"
    with pytest.raises(WorkerError, match="1 of 5 answers have come"):
        in_order(jobs.end_elsewhere, range(5))


def test_no_more_workers_than_tasks_and_by_default_the_usable_cores(monkeypatch):
    assert worker_count(8, 3) == 3
    assert worker_count(2, 3) == 2
    assert worker_count(8, 0) == 1
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {1, 5, 6}, raising=False)
    assert usable_cores() == worker_count(None, 100) == 3
    monkeypatch.delattr("os.sched_getaffinity")
    monkeypatch.setattr("os.cpu_count", lambda: None)
    assert usable_cores() == 1


# ---- Ends

# A shell that runs a command in the background lets it ignore the interrupt, and so its children: not here.
SCRIPT = """
import signal
import sys
from functools import partial
signal.signal(signal.SIGINT, signal.default_int_handler)
from tests.helpers import other_processes as parallel_jobs
from ascendsim.parallel import in_order
if __name__ == "__main__":
    in_order(partial(parallel_jobs.square_or_wait, {folder!r}), [0, 0, 1, 2], 2)
"""


def alive(process):
    """Whether a process runs; one that has ended and that nobody has asked about yet does not."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.02)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked up in /proc")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda how: how.name)
def test_no_worker_is_left_when_the_process_that_asked_ends(how, tmp_path):
    script, folder = tmp_path / "script.py", tmp_path / "workers"
    folder.mkdir()
    script.write_text(SCRIPT.format(folder=str(folder)))
    asking = subprocess.Popen(
        [sys.executable, str(script)],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        start_new_session=True,  # so that only this one gets the signal, as in a notebook
    )
    wait_for(lambda: len(list(folder.iterdir())) == 2)
    workers = [int(path.name) for path in folder.iterdir()]
    assert all(alive(worker) for worker in workers)
    asking.send_signal(how)
    _, told = asking.communicate(timeout=60)
    wait_for(lambda: not any(alive(worker) for worker in workers))
    assert asking.returncode == -how
    # One traceback, that of the interrupt; workers end without a word.
    assert told.count("Traceback") == (how is signal.SIGINT)
    assert told.rstrip().endswith("KeyboardInterrupt") == (how is signal.SIGINT)


def test_a_script_that_does_its_work_as_it_is_imported_is_told_what_to_do(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from tests.helpers import other_processes as parallel_jobs\n"
        "from ascendsim.parallel import in_order\nprint(in_order(parallel_jobs.square, [1, 2], 2))\n"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=environment)
    assert done.returncode == 1
    # Python may add a warning of its own at the end, of semaphores that the workers have left.
    [last] = [line for line in done.stderr.splitlines() if line.startswith("ascendsim.errors.WorkerError: ")]
    assert '`if __name__ == "__main__":`' in last
