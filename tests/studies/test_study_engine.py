"""Does a study answer each point once, whoever computes it, and however often it was killed?"""

import io
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from ascendsim import ConvProblem, Plan, Tiling, estimate, load_profile, progress
from ascendsim.errors import ConfigError, DataError
from ascendsim.report.document import CallReport, run_document
from ascendsim.report.tables import like_terms
from ascendsim.studies.engine import point as point_module
from ascendsim.studies.engine.measure import PointAnswer, measure
from ascendsim.studies.engine.point import StudyPoint, plan_of, plan_values
from ascendsim.studies.engine.run import Budget, Engine, Store, calls_table
from ascendsim.studies.records import PARTS
from tests.helpers import report_samples
from tests.helpers.report_samples import SMALL, counted, placed, points

# --- Does a study answer each point once, with what `estimate` says, whoever computes it? --------------


@pytest.fixture
def log(tmp_path, monkeypatch):
    """Labels of the points that were computed, in the order of their beginning."""
    path = tmp_path / "log"
    path.touch()
    monkeypatch.setenv("STUDY_LOG", str(path))
    return lambda: path.read_text().split("\n")[:-1]


def engine(store=None, jobs=1, compute=counted):
    return Engine(store or Store(), jobs, compute=compute)


# ---- Points and keys


def test_an_answer_is_what_estimate_says():
    changed = {"paths.GM_L1.bytes_per_cycle": 64}
    point = StudyPoint(SMALL, "910B2", changed, l2_start="cold", tiling="search")
    mask = (True, True, False)
    profile = load_profile("910B2", overrides=changed)
    expected = estimate(SMALL, product=profile, output_mask=mask, l2_start="cold", tiling="search")
    found = measure(point)
    assert found.records == expected.to_records()
    assert (found.cycles, found.time_us) == (expected.cycles, expected.time_us)
    assert found.plans == {kernel.name: kernel.plan for kernel in expected.kernels if kernel.plan}


OTHERS = {
    "problem": {"problem": ConvProblem((1, 16, 6, 6), (32, 16, 3, 3), padding=0)},
    "product": {"product": "910B3"},
    "a figure": {"changes": {"scalar.issue_cycles": 7}},
    "format": {"dtype": "bfloat16"},
    "cubeMathType": {"cube_math_type": 1},
    "mask": {"gradients": (True, False, False)},
    "start": {"l2_start": "cold"},
    "strategy": {"tiling": "search"},
    "plan": {"tiling": {"grad_weight": Plan("wgrad", Tiling(16, 16, 16))}},
}


@pytest.mark.parametrize("what", OTHERS)
def test_each_thing_that_an_answer_depends_on_makes_another_key(what):
    point = StudyPoint(SMALL, "910B2")
    assert replace(point, **OTHERS[what]).key != point.key


@pytest.mark.parametrize("product", ["910B2", "950PR_9589", "910A"])
def test_a_study_parts_a_time_as_a_run_does(product):
    problem, profile = ConvProblem((1, 24, 9, 9), (32, 24, 3, 3), padding=1), load_profile(product)
    found = measure(StudyPoint(problem, product))
    result = estimate(problem, product=profile, output_mask=(True, True, False), l2_start="warm")
    (run,) = run_document("t", {}, [CallReport(result, profile)], [])["products"]
    assert dict(zip(PARTS, found.parts_us, strict=True)) == pytest.approx(like_terms(run))
    assert sum(found.parts_us) == pytest.approx(found.time_us)


def test_a_name_for_a_point_makes_no_other_key():
    point = StudyPoint(SMALL, "910B2", label="one")
    assert replace(point, label="two").key == point.key
    # The plain name of a product is that of its usual variant, whose figures decide.
    usual = load_profile("910B").variant
    assert StudyPoint(SMALL, "910B").key == StudyPoint(SMALL, usual).key


def test_a_figure_at_the_value_it_has_makes_no_other_key():
    issue = load_profile("910B2").scalar.issue_cycles
    assert StudyPoint(SMALL, "910B2", {"scalar.issue_cycles": issue}).key == StudyPoint(SMALL, "910B2").key


def test_other_code_makes_other_keys(monkeypatch):
    before = StudyPoint(SMALL, "910B2").key
    monkeypatch.setattr(point_module, "code_version", lambda: "other code")
    assert StudyPoint(SMALL, "910B2").key != before


def test_a_product_file_that_is_edited_makes_another_key(tmp_path):
    path = tmp_path / "lab.toml"
    figure = '{{ value = {}, source = "our own count", confidence = "measured" }}'
    figure = f'base = "910B2"\n[scalar]\nissue_cycles = {figure}\n'
    path.write_text(figure.format(3))
    point = StudyPoint(SMALL, path, {"sync.flag_cycles": 20})
    before = point.key
    assert point.profile.scalar.issue_cycles == 3
    path.write_text(figure.format(4))
    assert point.key != before


def test_plans_go_through_plain_values():
    plan = Plan("wgrad", Tiling(32, 48, 64, k_split=3, used_cores=6, al1_buffers=1), "search")
    values = json.loads(json.dumps(plan_values(plan)))
    assert plan_of(values) == plan
    assert plan_of(values).chosen_by == "search"


def test_a_class_is_no_schedule_for_a_study():
    with pytest.raises(ConfigError, match="schedule is the class Own"):
        plan_values(Plan(type("Own", (), {}), Tiling(16, 16, 16)))


# ---- Who computes


def test_equal_points_are_computed_once(log):
    outcome = engine().answer([*points(3), *points(2)])
    assert log() == ["point 0", "point 1", "point 2"]
    # The answer of `counted` is the figure, 1 + its number.
    assert [answer.cycles for _, answer in outcome] == [1, 2, 3, 1, 2]
    assert outcome.computed == 3


def test_a_second_run_computes_nothing(tmp_path, log):
    path = tmp_path / "store.sqlite"
    with Store(path) as store:
        first = engine(store).answer(points())
    with Store(path) as store:
        second = engine(store).answer(points())
    assert (first.computed, second.computed) == (6, 0)
    assert len(log()) == 6
    assert calls_table(second).records() == calls_table(first).records()


def test_one_process_and_two_make_the_same_table():
    asked = [StudyPoint(SMALL, "910B2", l2_start=start, label=start) for start in ("warm", "cold", "handed")]
    asked.append(StudyPoint(SMALL, "910B2", {"scalar.issue_cycles": -1}, label="refused"))
    one, two = (calls_table(engine(jobs=jobs, compute=measure).answer(asked)).records() for jobs in (1, 2))
    assert one == two
    # For each start two products, each with a change of layout of both operands and of what it makes, and a
    # cast, and zeros, 2 x 4 + 2; and a row for the point that failed.
    assert [row["label"] for row in one] == ["warm"] * 10 + ["cold"] * 10 + ["handed"] * 10 + ["refused"]


def test_without_a_number_workers_are_started_only_for_what_takes_longer_than_that(monkeypatch):
    def processes(jobs=None):
        outcome = engine(jobs=jobs, compute=placed).answer(points(6))
        return [row["cycles"] for row in calls_table(outcome).records()]

    monkeypatch.setattr("ascendsim.studies.engine.run.usable_cores", lambda: 3)
    # However slow the machine is on which this runs.
    monkeypatch.setattr("ascendsim.parallel.START_SECONDS", 3600.0)
    assert processes() == [os.getpid()] * 6
    monkeypatch.setattr("ascendsim.parallel.START_SECONDS", -1.0)
    first, *others = processes()
    assert first == os.getpid()
    assert os.getpid() not in others
    assert os.getpid() not in processes(jobs=2)


def test_a_failed_point_keeps_its_reason(tmp_path):
    bad = StudyPoint(SMALL, "910B2", {"buffers.L0A.capacity_bytes": 0}, label="bad")
    small = StudyPoint(SMALL, "910B2", {"buffers.L0A.capacity_bytes": 64}, label="small")
    path = tmp_path / "store.sqlite"
    with Store(path) as store:
        first = engine(store, compute=measure).answer([bad, small])
    with Store(path) as store:
        second = engine(store, compute=measure).answer([bad, small])
    reasons = [answer.reason for _, answer in second]
    assert reasons == [answer.reason for _, answer in first]
    assert "buffers.L0A.capacity_bytes.value: got 0" in reasons[0]
    # Of L0A, in words: the name of a class says nothing to who reads a table.
    assert reasons[1].endswith("need 1024 bytes, and L0A holds 64")
    assert not any("Error" in reason for reason in reasons)
    assert second.computed == 0
    assert [row["status"] for row in calls_table(second).records()] == ["failed", "failed"]


def test_trials_bound_what_is_new_and_the_rest_is_left_for_the_next_run(log):
    store = Store()
    first = engine(store).answer(points(), Budget(trials=4))
    assert (first.computed, first.left) == (4, 2)
    assert [row["status"] for row in calls_table(first).records()] == ["timed"] * 4 + ["left out"] * 2
    # What is kept costs no trial.
    second = engine(store).answer(points(), Budget(trials=2))
    assert (second.computed, second.left) == (2, 0)
    assert len(log()) == 6


def test_no_time_computes_nothing(log):
    outcome = engine().answer(points(), Budget(seconds=0))
    assert (outcome.computed, outcome.left, log()) == (0, 6, [])


@pytest.mark.parametrize("limit", [{"seconds": -1}, {"trials": -1}])
def test_a_limit_below_nothing_is_refused(limit):
    with pytest.raises(ConfigError, match="must be 0 or more"):
        Budget(**limit)


@pytest.mark.parametrize("jobs", [0, -2])
def test_no_process_at_all_is_refused(jobs):
    with pytest.raises(ConfigError, match=f"jobs is {jobs}"):
        engine(jobs=jobs).answer(points(2))


@pytest.mark.usefixtures("log")
def test_progress_is_told_with_each_answer():
    told = []
    asked = Engine(Store(), 1, advance=lambda *words: told.append(words), compute=counted)
    asked.answer(points(2))
    assert [(done, total, point.label) for done, total, point in told] == [
        (1, 2, "point 0"),
        (2, 2, "point 1"),
    ]


@pytest.mark.usefixtures("log")
def test_the_total_that_is_told_is_what_will_be_run():
    told = []
    store = Store()
    asked = Engine(store, 1, advance=lambda done, total, _: told.append((done, total)), compute=counted)
    # Two of six, as trials allow no more; then three of the four that are left; then the last, in no limit.
    budget = Budget(trials=2)
    asked.answer(points(), budget)
    assert (told, budget.cut) == ([(1, 2), (2, 2)], True)
    told.clear()
    asked.answer(points(), Budget(trials=3))
    assert told == [(1, 3), (2, 3), (3, 3)]
    told.clear()
    asked.answer(points())
    assert told == [(1, 1)]
    # Trials that are just enough cut nothing, and what is kept takes none.
    told.clear()
    budget = Budget(trials=0)
    assert asked.answer(points(), budget).left == 0
    assert (told, budget.cut) == ([], False)


def test_a_pipe_gets_a_line_now_and_then_on_standard_error(capsys, monkeypatch):
    now = iter((0.0, 8.0, 9.0, 12.0, 12.0, 13.0))
    monkeypatch.setattr(progress, "monotonic", lambda: next(now))
    with progress.counted() as tell:
        # After 9 seconds nothing, after 12 a line, a second later nothing.
        for done in (1, 2, 3, 4):
            tell(done, 4, f"point {done}")
    said = "3 of 4 calls of this round, 3 in all rounds so far: point 3, about 4 s left of this round\n"
    assert capsys.readouterr() == ("", said)


def test_where_all_calls_are_limited_what_is_left_is_of_all_rounds(capsys, monkeypatch):
    now = iter((0.0, 10.0, 20.0, 30.0))
    monkeypatch.setattr(progress, "monotonic", lambda: next(now))
    with progress.counted(most=6) as tell:
        for step in ((1, 2, "a"), (2, 2, "b"), (1, 3, "c")):
            tell(*step)
    # Each call takes ten seconds: of six two are done, too few to tell, then three.
    assert capsys.readouterr().err.splitlines()[1:] == [
        "2 of 2 calls of this round, 2 of at most 6 in all rounds: b",
        "1 of 3 calls of this round, 3 of at most 6 in all rounds: c, about 30 s left of all rounds at most",
    ]


class Terminal(io.StringIO):
    """Standard error that is a terminal."""

    def isatty(self):
        """Say so."""
        return True


def test_a_bar_and_lines_tell_the_same_counts_over_all_rounds(capsys, monkeypatch):
    """Two rounds, of 3 and of 2 calls: both ways count the second round anew, and the whole on."""
    steps = [(1, 3, "a"), (2, 3, "b"), (3, 3, "c"), (1, 2, "d"), (2, 2, "e")]
    monkeypatch.setattr(progress._LineNowAndThen, "SECONDS", 0)
    with progress.counted() as tell:
        for step in steps:
            tell(*step)
    # A bar has a column of its own for the time that is left.
    lines = [line.partition(", about")[0] for line in capsys.readouterr().err.splitlines()]
    assert lines[-2:] == [
        "1 of 2 calls of this round, 4 in all rounds so far: d",
        "2 of 2 calls of this round, 5 in all rounds so far: e",
    ]
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "xterm")
    for seen, step in enumerate(steps):
        with progress.counted() as tell:
            for before in steps[: seen + 1]:
                tell(*before)
        # The bar is drawn once more when it ends, with its last words.
        assert lines[seen] in terminal.getvalue(), step
    assert tell.computed == 5


# ---- The store


def test_an_answer_is_in_the_file_as_soon_as_it_is_put(tmp_path):
    path = tmp_path / "deep" / "store.sqlite"
    with Store(path) as writer, Store(path) as reader:
        writer.put("key", PointAnswer('{"reason": "why"}'))
        assert reader.get(["key", "other"])["key"].reason == "why"
        assert reader.count() == 1


def test_the_file_is_in_wal_mode(tmp_path):
    path = tmp_path / "store.sqlite"
    with Store(path) as store:
        (mode,) = sqlite3.connect(path).execute("PRAGMA journal_mode").fetchone()
        (waits,) = store._file.execute("PRAGMA synchronous").fetchone()
    # 1 is NORMAL: it waits for the disk now and then, and not after each answer.
    assert (mode, waits) == ("wal", 1)


@pytest.mark.parametrize("content", [b"no database at all, but long enough for one" * 40])
def test_another_file_is_refused_and_left_alone(tmp_path, content):
    path = tmp_path / "mine.txt"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"mine\.txt: is no store of answers.*--store"):
        Store(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_a_database_of_something_else_is_refused_and_left_alone(tmp_path, version):
    path = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE mine (a)")
        other.execute(f"PRAGMA user_version={version}")
        other.commit()
    with pytest.raises(DataError, match=r"other\.sqlite: is no store of answers: .*--store"):
        Store(path)
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT sql FROM sqlite_master").fetchall() == [("CREATE TABLE mine (a)",)]
        assert other.execute("PRAGMA user_version").fetchone() == (version,)


def test_a_store_of_the_first_format_goes_on(tmp_path):
    path = tmp_path / "store.sqlite"
    with closing(sqlite3.connect(path)) as first:
        first.execute("CREATE TABLE answers (key TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID")
        first.execute("INSERT INTO answers VALUES ('old', '{}')")
        first.execute("PRAGMA user_version=1")
        first.commit()
    with Store(path) as store:
        # It has no digest, so that nobody knows whether it is whole.
        assert store.get(["old"]) == {}
        store.put("old", PointAnswer('{"reason": "new"}'))
        assert store.get(["old"])["old"].reason == "new"


def filled(path):
    """A store with the answers of all points; its bytes."""
    with Store(path) as store:
        engine(store).answer(points())
    return path.read_bytes()


def test_a_damaged_answer_is_computed_again_and_counted(tmp_path, log):
    path = tmp_path / "store.sqlite"
    whole = filled(path)
    # The figure within an answer: no page, no length and no JSON is wrong after it.
    at = whole.index(b'"cycles": 3')
    path.write_bytes(whole[: at + 10] + b"4" + whole[at + 11 :])
    with Store(path) as store:
        outcome = engine(store).answer(points())
        assert (outcome.computed, store.damaged) == (1, 1)
    assert log()[6:] == ["point 2"]
    assert [answer.cycles for _, answer in outcome] == [1, 2, 3, 4, 5, 6]


def test_an_answer_under_the_key_of_another_point_is_none(tmp_path):
    with Store(tmp_path / "store.sqlite") as store:
        store.put("one", PointAnswer("{}"))
    with closing(sqlite3.connect(tmp_path / "store.sqlite")) as file:
        file.execute("UPDATE answers SET key = 'two'")
        file.commit()
    with Store(tmp_path / "store.sqlite") as store:
        assert store.get(["two"]) == {}


@pytest.mark.usefixtures("log")
@pytest.mark.parametrize("seed", range(40))
def test_flipped_bytes_end_in_one_line_or_in_the_right_answers(tmp_path, seed):
    path, draw = tmp_path / "store.sqlite", random.Random(seed)
    content = bytearray(filled(path))
    for _ in range(draw.choice((1, 8, 200))):
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)
    try:
        with Store(path) as store:
            outcome = engine(store).answer(points())
        said, found = f"{path} --store", [answer.cycles for _, answer in outcome]
    except DataError as error:
        said, found = str(error), [1, 2, 3, 4, 5, 6]
    assert (str(path) in said, "--store" in said, "\n" in said) == (True, True, False)
    assert found == [1, 2, 3, 4, 5, 6]


def test_a_disk_that_fills_is_told_and_keeps_what_is_kept(tmp_path, small_files):
    path, done = tmp_path / "store.sqlite", []

    def fill(store):
        while True:
            store.put(f"{len(done)}", PointAnswer(f'{{"reason": "{"x" * 1000}"}}'))
            done.append(f"{len(done)}")

    with small_files(65536), Store(path) as store, pytest.raises(DataError, match=r"make room.*goes on"):
        fill(store)
    with Store(path) as store:
        assert done
        assert set(store.get(done)) == set(done)
        assert store.count() == len(done)


def test_a_pipe_and_a_device_are_no_stores(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(DataError, match="is no store of answers"):
            Store(path)


def test_a_folder_is_no_store(tmp_path):
    with pytest.raises(DataError, match="is no store of answers"):
        Store(tmp_path)


def test_the_samples_log_what_they_answer(log):
    # The tests above count by this log: a point that is not written down would pass for one not computed.
    report_samples.measured(points(1)[0])
    assert log() == ["point 0"]


# --- Is a study that is killed at any moment, and begun again, the one that was never killed? ----------

ROOT = Path(__file__).parents[2]
JOBS = 2
STUDY = """
import sys
from pathlib import Path
from tests.helpers import report_samples as study_points
from ascendsim.studies.engine.run import Engine
from ascendsim.studies.engine.run import Store
if __name__ == "__main__":
    path, count, compute = sys.argv[1:]
    with Store(Path(path)) as store:
        print("begun", flush=True)
        asked = study_points.points(int(count))
        Engine(store, JOBS, compute=getattr(study_points, compute)).answer(asked)
""".replace("JOBS", str(JOBS))


def study(folder, count, compute):
    """Start a study in a process group of its own."""
    script = folder / "study.py"
    script.write_text(STUDY)
    paths = os.pathsep.join((str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")))
    environment = os.environ | {"PYTHONPATH": paths, "STUDY_LOG": str(folder / "log")}
    words = [sys.executable, str(script), str(folder / "store.sqlite"), str(count), compute]
    return subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True)


def kill_after(running, seconds):
    """Kill the asking process alone; its workers end by themselves."""
    assert running.stdout.readline() == "begun\n"
    time.sleep(seconds)
    running.send_signal(signal.SIGKILL)
    running.wait()
    running.stdout.close()


def computed(folder):
    """Return how often each point was begun, once no worker is left to write."""
    log = folder / "log"
    before = None
    while (now := log.read_text() if log.exists() else "") != before:
        before = now
        time.sleep(0.2)
    return Counter(now.split("\n")[:-1])


def check_killed(folder, count, compute, moments):
    for moment in moments:
        kill_after(study(folder, count, compute), moment)
        times = computed(folder)
        with Store(folder / "store.sqlite") as store:
            # What was begun and is not kept is lost: no more than there are jobs, each time.
            assert len(times) - store.count() <= JOBS
    last = study(folder, count, compute)
    assert last.wait() == 0
    last.stdout.close()
    again = computed(folder)
    assert sum(again.values()) - count <= JOBS * len(moments)
    assert len(again) == count


def test_killed_once_it_goes_on_where_it_was(tmp_path):
    # 60 points of 10 ms in two processes, which take a second to start, are not through after 1.1 s.
    check_killed(tmp_path, 60, "counted", [1.1])


@pytest.mark.slow
def test_killed_at_ten_random_moments_the_table_is_that_of_a_study_never_killed(tmp_path):
    moments = [random.Random(seed).uniform(0, 4) for seed in range(10)]
    count = 240
    check_killed(tmp_path, count, "measured", moments)
    with Store(tmp_path / "store.sqlite") as store:
        resumed = Engine(store, 1).answer(points(count))
    assert resumed.computed == 0
    assert calls_table(resumed).records() == calls_table(Engine(Store(), 1).answer(points(count))).records()


def test_a_call_beyond_its_budget_is_told_and_not_kept():
    """What a budget refuses says nothing of the call: with another one it is timed."""
    point = StudyPoint(ConvProblem((1, 16, 8, 8), (16, 16, 3, 3), padding=1), "910B")
    with Store() as store:
        narrow = partial(measure, limits={"most_instructions": 1})
        [(_, refused)] = Engine(store, 1, compute=narrow).answer([point])
        assert "most_instructions, which is 1" in refused.reason
        assert store.count() == 0
        [(_, timed)] = Engine(store, 1).answer([point])
        assert timed.cycles > 0
        assert store.count() == 1
