"""Is a study that is killed at any moment, and begun again, the one that was never killed?"""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from ascendsim.studies.engine.run import Engine, Store, rows_of
from tests.helpers.study_points import points

ROOT = Path(__file__).parents[2]
JOBS = 2
STUDY = """
import sys
from pathlib import Path
from tests.helpers import study_points
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
    assert rows_of(resumed) == rows_of(Engine(Store(), 1).answer(points(count)))
