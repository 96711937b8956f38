"""Points and functions of the tests of studies, which other processes import from here."""

import os
import time
from pathlib import Path

from ascendsim import ConvProblem
from ascendsim.studies.engine.measure import Answer, measure
from ascendsim.studies.engine.point import Point

SMALL = ConvProblem((1, 16, 6, 6), (32, 16, 3, 3), padding=1)
HUGE = 1 << 40


def points(count=6, **options):
    """Calls that all differ in one figure."""
    return [
        Point(SMALL, "910B2", {"scalar.issue_cycles": 1 + at}, label=f"point {at}", **options)
        for at in range(count)
    ]


def counted(point):
    """Answer at once, and write down that it was asked; by whom, too."""
    with Path(os.environ["STUDY_LOG"]).open("a") as log:
        log.write(f"{point.label}\n")
    time.sleep(0.01)
    return Answer(f'{{"records": [{{"cycles": {point.changes["scalar.issue_cycles"]}, "time_us": 0.5}}]}}')


def placed(_):
    """Answer with the process that was asked in place of cycles."""
    return Answer(f'{{"records": [{{"cycles": {os.getpid()}, "time_us": 0.5}}]}}')


def measured(point):
    """The true answer, and a line in the same log."""
    with Path(os.environ["STUDY_LOG"]).open("a") as log:
        log.write(f"{point.label}\n")
    return measure(point)
