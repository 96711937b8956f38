"""The best plans of a study as files: to be tried on a device, and ranked anew by what it measures."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import NamedTuple

from ascendsim.errors import AscendSimError, ConfigError, DataError
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.ops.plan import Plan
from ascendsim.ops.tiling.entries.entry import entry_values
from ascendsim.ops.tiling.entries.files import write_entries
from ascendsim.ops.tiling.plan_files import read_plans, write_plans
from ascendsim.studies.engine.plans import plan_text, plan_values
from ascendsim.studies.tuning.records import Trial
from ascendsim.studies.tuning.tune import Tuner

INDEX = "top.csv"
_PLAN = re.compile(r"plan-(\d+)\.toml")


class Exported(NamedTuple):
    """One of the best plans, and its files.

    plan_file   what `--tiling` takes
    entry_file  the vendor's entry (runtime_kb); "" where there is none, and why in `no_entry`
    """

    rank: int
    trial: Trial
    plan_file: str
    entry_file: str
    no_entry: str


def top(tuner: Tuner, count: int) -> list[Trial]:
    """Return the best plans of those that were timed under every start, the best first."""
    full = [trial for trial in tuner.trials.values() if len(trial.times_us) == len(tuner.question.starts)]
    return sorted(filter(lambda trial: tuner.allowed(trial.plan), full), key=tuner.score)[:count]


@default_arithmetic
def export(folder: Path, tuner: Tuner, count: int) -> list[Exported]:
    """Write the best plans: a file of each, the vendor's entry of those that have one, and an index.

    Raises   DataError where the folder takes no file
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{folder}: is no folder ({error.strerror or error}); name another") from None
    found = [_written(folder, tuner, rank, trial) for rank, trial in enumerate(top(tuner, count), start=1)]
    starts = tuner.question.starts
    headings = ("rank", "plan_file", "entry_file", "no_entry", *(f"us_{start}" for start in starts), "plan")
    with (folder / INDEX).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(headings)
        for one in found:
            times = [one.trial.times_us[start] for start in starts]
            said = plan_text(plan_values(one.trial.plan))
            writer.writerow([one.rank, one.plan_file, one.entry_file, one.no_entry, *times, said])
    return found


def _written(folder: Path, tuner: Tuner, rank: int, trial: Trial) -> Exported:
    asked, plan_file, entry_file = tuner.question, f"plan-{rank:02}.toml", f"entry-{rank:02}.json"
    about = f"{asked.gradient} of {asked.title}: rank {rank} of the plans that were tried"
    write_plans(folder / plan_file, {asked.gradient: trial.plan}, about=about)
    arch = tuner.profile.npu_arch
    try:
        made = entry_values(asked.gradient, asked.problem, tuner.compute_dtype, trial.plan, arch)
    except AscendSimError as error:
        return Exported(rank, trial, plan_file, "", str(error))
    write_entries(folder / entry_file, [made])
    return Exported(rank, trial, plan_file, entry_file, "")


def exported_plans(folder: Path, gradient: str) -> dict[str, Plan]:
    """Return the plans of a folder that `export` has written, by their files' names, the best first.

    Raises   ConfigError where there is none, or one is of another gradient
    """
    names = sorted(path.name for path in folder.glob("plan-*.toml") if _PLAN.fullmatch(path.name))
    if not names:
        raise ConfigError(f"{folder}: has no plan-NN.toml; write them with --export-top K --export {folder}")
    plans = {}
    for name in names:
        plan = read_plans(folder / name).plans.get(gradient)
        if not isinstance(plan, Plan):
            raise ConfigError(f"{folder / name}: has no whole plan of {gradient}; name that with --gradient")
        plans[name] = plan
    return plans
