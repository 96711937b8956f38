"""Functions that the tests give to worker processes, which import them from here."""

import os
import time
from multiprocessing import parent_process
from pathlib import Path

from ascendsim.errors import ConfigError


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
