"""Time plans of one gradient, each once, and only as far as it matters."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from ascendsim.errors import AscendSimError, ConfigError, DataError
from ascendsim.files import csv_text, write_text
from ascendsim.frozen import FrozenMap
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.ops.convolution_backward import estimate
from ascendsim.ops.plan import Plan
from ascendsim.ops.results import Estimate, KernelResult
from ascendsim.ops.tiling.entries import entry_values, write_entries
from ascendsim.ops.tiling.plan_files import read_plans, write_plans
from ascendsim.profile import Profile, load_profile
from ascendsim.studies.engine.measure import planned
from ascendsim.studies.engine.point import NOTHING, StudyPoint, plan_text, plan_values
from ascendsim.studies.engine.run import Budget, Engine, require_answer
from ascendsim.studies.tuning.records import NESTS, SCORES, CyclesPart, StartCycles, TilingQuestion, Trial
from ascendsim.timing.l2 import L2_STARTS
from ascendsim.timing.times import occupation


def point_of(
    asked: TilingQuestion, start: str, tiling: Any, changes: Mapping[str, Any] | None = None
) -> StudyPoint:
    """Return the call of the gradient alone, under a plan or a strategy; with further changes of figures."""
    return StudyPoint(
        asked.problem,
        asked.product,
        FrozenMap({**asked.changes, **(changes or {})}),
        asked.dtype,
        asked.cube_math_type,
        asked.gradients,
        start,
        tiling if isinstance(tiling, str) else FrozenMap({asked.gradient: tiling}),
        asked.before,
        deterministic=asked.deterministic,
        label=asked.gradient,
    )


@dataclass
class Tuner:
    """Scores plans of one gradient; remembers all, so that each is timed once.

    allowed   says whether a plan may be called the best
    same      returns the one spelling of a plan: plans of one spelling are timed once
    stopped   plans whose timing stopped on its way
    timed     the calls by plan and start of L2
    """

    question: TilingQuestion
    engine: Engine
    budget: Budget
    compute_dtype: str
    trials: dict[Plan, Trial] = field(default_factory=dict)
    stopped: int = 0
    allowed: Callable[[Plan], bool] = lambda _: True
    same: Callable[[Plan], Plan] = lambda plan: plan
    timed: dict[tuple[Plan, str], StudyPoint] = field(default_factory=dict)
    _layouts: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.question.score not in SCORES:
            raise ConfigError(f"score is {self.question.score!r}; it must be one of {', '.join(SCORES)}")
        if self.question.nests not in NESTS:
            raise ConfigError(f"nests is {self.question.nests!r}; it must be one of {', '.join(NESTS)}")
        changes = dict(self.question.changes)
        self.profile: Profile = load_profile(self.question.product, overrides=changes or None)

    @property
    def left(self) -> int:
        """The number of tilings that may still be tried."""
        return self.question.trials - len(self.trials)

    def point(self, start: str, tiling: Any, changes: Mapping[str, Any] | None = None) -> StudyPoint:
        """Return the call of the gradient alone."""
        return point_of(self.question, start, tiling, changes)

    def _bounded(self, start: str, plan: Plan, best: float) -> StudyPoint:
        """Return the call of a plan that is of no interest above a score: its timing stops there."""
        point = self.point(start, plan)
        # One start that is slow says nothing of a mean; and in a chain other plans leave other L2 behind, so
        # that changes of layout may take another time.
        if self.question.score != "worst" or start not in self._layouts or best == float("inf"):
            return point
        # The score counts launches, of which there is one at least.
        within_us = max(0.0, best - self.profile.launch.base_us)
        cycles = int(within_us * self.profile.clock.cube_mhz) + 1
        return replace(point, stop_above=cycles + self._layouts[start])

    def chosen(self, strategy: str) -> Trial:
        """Time the plan that a strategy chooses."""
        points = [self.point(start, strategy) for start in self.question.starts]
        times, plan = {}, None
        for point, answer in self.engine.answer(points, self.budget):
            sure = require_answer(point, answer)
            times[point.l2_start], plan = sure.planned_us, sure.plans[self.question.gradient]
            # Under other starts kernels beside the product hang on its plan, too.
            if point.l2_start in L2_STARTS:
                self._layouts[point.l2_start] = sure.layout_cycles
            self.timed[plan, point.l2_start] = point
        assert plan is not None
        return self.trials.setdefault(plan, Trial(plan, strategy, FrozenMap(times)))

    def try_all(self, plans: Sequence[Plan], found_by: str, best: float) -> None:
        """Time plans that are new, under one start after the other; what cannot beat `best` stops."""
        known = {self.same(plan) for plan in self.trials}
        new = [plan for plan in dict.fromkeys(map(self.same, plans)) if plan not in known]
        alive: dict[Plan, dict[str, float]] = {}
        for plan in new[: max(0, self.left)]:
            # The bound needs no timing, and holds for every start.
            least = self.least_us(plan)
            if least >= best:
                self.trials[plan] = Trial(plan, found_by, FrozenMap(), above_us=least)
            else:
                alive[plan] = {}
        for start in self.question.starts:
            points = {plan: self._bounded(start, plan, best) for plan in alive}
            outcome = self.engine.answer(list(points.values()), self.budget)
            for plan, (_, answer) in zip(points, outcome, strict=True):
                if answer is None:
                    alive.pop(plan)
                elif answer.stopped:
                    self.trials[plan] = Trial(plan, found_by, FrozenMap(alive.pop(plan)), above_us=best)
                    self.stopped += 1
                elif answer.reason:
                    self.trials[plan] = Trial(plan, found_by, FrozenMap(), answer.reason)
                    alive.pop(plan)
                else:
                    alive[plan][start] = answer.planned_us
                    self.timed[plan, start] = points[plan]
                    self.trials[plan] = Trial(plan, found_by, FrozenMap(alive[plan]))
                    if self.question.score == "worst" and answer.planned_us >= best:
                        alive.pop(plan)

    @default_arithmetic
    def least_us(self, plan: Plan) -> float:
        """Return a lower bound on the time of plans with this number of cores and these block sizes.

        A launch, the multiply-adds that no nest can skip at full rate, and the head of every product of
        tiles: one makes at most base_m x base_n x base_k of them, so that small blocks are known to be slow
        without being timed.
        """
        cube, t = self.profile.cube, plan.tiling
        macs = self.question.problem.met_macs
        products = macs / (t.base_m * t.base_n * t.base_k)
        cycles = macs / cube.rate(self.compute_dtype).macs_per_cycle + products * cube.mmad_head_cycles
        return float(cycles / t.used_cores) / self.profile.clock.cube_mhz + self.profile.launch.base_us

    @default_arithmetic
    def score(self, trial: Trial) -> float:
        """Return the microseconds that count; infinite where they are not all known."""
        times = [trial.times_us.get(start, float("inf")) for start in self.question.starts]
        return max(times) if self.question.score == "worst" else sum(times) / len(times)

    @property
    def best(self) -> Trial:
        """The best of all trials that may be called so, of equal ones the first."""
        may = [trial for trial in self.trials.values() if self.allowed(trial.plan)]
        return min(may or self.trials.values(), key=self.score)


def compute_dtype_of(question: TilingQuestion, limits: Mapping[str, Any] = NOTHING) -> str:
    """Return the format that the cube multiplies for a gradient.

    Raises   AscendSimError where the call is refused
    """
    changes = dict(question.changes)
    call = question.problem, question.dtype, question.cube_math_type
    profile = load_profile(question.product, overrides=changes or None)
    said: Any = {**limits, "output_mask": question.gradients, "product": profile}
    found = estimate(*call, **said)
    return next(kernel.kernel.compute_dtype for kernel in found.kernels if kernel.plan is not None)


INDEX = "top.csv"
USUAL = "product"  # the strategy that chooses the usual plan
_PLAN = re.compile(r"plan-(\d+)\.toml")


class Exported(NamedTuple):
    """One of the best plans, and its files.

    rank        by its times, of all plans that were timed; None: it may not be taken
    plan_file   what `--tiling` takes
    entry_file  the vendor's entry (runtime_kb); "" where there is none, and why in `no_entry`
    """

    rank: int | None
    trial: Trial
    plan_file: str
    entry_file: str
    no_entry: str


def top(tuner: Tuner, count: int) -> dict[Trial, int | None]:
    """Return the best plans of those that were timed under every start, and the usual one, with their ranks.

    Of plans with equal times under every start only the first is returned.
    """
    full = [trial for trial in tuner.trials.values() if len(trial.times_us) == len(tuner.question.starts)]
    different: dict[Any, Trial] = {}
    for trial in sorted(filter(lambda trial: tuner.allowed(trial.plan), full), key=tuner.score):
        different.setdefault(trial.times_us, trial)
    ranks = {times: rank for rank, times in enumerate(different, start=1)}
    usual = [trial for trial in full if trial.found_by == USUAL]
    return {trial: ranks.get(trial.times_us) for trial in (*[*different.values()][:count], *usual)}


@default_arithmetic
def export(folder: Path, tuner: Tuner, count: int) -> list[Exported]:
    """Write the best plans: a file of each, the vendor's entry of those that have one, and an index.

    Raises   DataError where the folder takes no file
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{folder}: is no folder ({error.strerror or error}); name another") from None
    plans = enumerate(top(tuner, count).items(), start=1)
    found = [_written(folder, tuner, number, *ranked) for number, ranked in plans]
    starts = tuner.question.starts
    headings = ("rank", "plan_file", "entry_file", "no_entry", *(f"us_{start}" for start in starts))
    headings += "found_by", "plan"
    rows = []
    for one in found:
        times = [one.trial.times_us[start] for start in starts]
        said = plan_text(plan_values(one.trial.plan))
        cells = one.rank, one.plan_file, one.entry_file, one.no_entry, *times, one.trial.found_by, said
        rows.append(dict(zip(headings, cells, strict=True)))
    write_text(folder / INDEX, csv_text(headings, rows))
    return found


def _written(folder: Path, tuner: Tuner, number: int, trial: Trial, rank: int | None) -> Exported:
    asked, plan_file, entry_file = tuner.question, f"plan-{number:02}.toml", f"entry-{number:02}.json"
    about = f"{asked.gradient} of {asked.title}: rank {rank} by the times that were found"
    if trial.found_by == USUAL:
        about = f"{asked.gradient} of {asked.title}: the usual plan, to compare"
    write_plans(folder / plan_file, {asked.gradient: trial.plan}, about=about)
    arch = tuner.profile.npu_arch
    try:
        made = entry_values(asked.gradient, asked.problem, tuner.compute_dtype, trial.plan, arch)
    except AscendSimError as error:
        return Exported(rank, trial, plan_file, "", str(error))
    write_entries(folder / entry_file, [made])
    return Exported(rank, trial, plan_file, entry_file, "")


def exported_plans(folder: Path, gradient: str) -> dict[str, Plan]:
    """Return the plans of a folder that `export` has written, by their files' names.

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


PIPE = "M"


def waits_of(start: str, gradient: str, before: Estimate, after: Estimate, cube_mhz: float) -> StartCycles:
    """Return the parts of both plans: of M of the core that ends last, and the kernels beside the product.

    Busy, each wait and idle of one pipe of one core add up to the cycles of the kernel; the other kernels
    are a part of their own. So differences of parts add up to the difference of cycles. Changes of layout are
    left out, as in the times by which plans are scored.
    """
    sides = [_parts(gradient, result) for result in (before, after)]
    names = list(dict.fromkeys(name for side in sides for name in side))
    parts = tuple(CyclesPart(name, sides[0].get(name, 0), sides[1].get(name, 0)) for name in names)
    cycles = _cycles(before), _cycles(after)
    times_us = (sum(kernel.time_us for kernel in planned(result)) for result in (before, after))
    first_us, second_us = (us - spent / cube_mhz for us, spent in zip(times_us, cycles, strict=True))
    return StartCycles(start, PIPE, *cycles, parts, (first_us, second_us))


def _cycles(result: Estimate) -> int:
    return sum(kernel.cycles for kernel in planned(result))


def _parts(gradient: str, result: Estimate) -> dict[str, int]:
    product = next(kernel for kernel in result.kernels if kernel.name == gradient)
    found = kernel_parts(product)
    others = _cycles(result) - product.cycles
    return found | ({"other kernels": others} if others else {})


def kernel_parts(kernel: KernelResult, pipe: str = PIPE) -> dict[str, int]:
    """Return the cycles of a kernel by busy, each wait and idle of a pipe of the core that ends last."""
    # Of the last phase whose cores have the pipe: a kernel may end with vector cores alone.
    last = max(
        (work for phase in kernel.times.phases for work in phase.cores if pipe in work.busy),
        key=lambda work: work.done,
    )
    spent = occupation(kernel.times, last.cores[0])[pipe]
    waits = {f"waits for {cause}": cycles for cause, cycles in sorted(spent.waiting.items())}
    return {"busy": spent.busy, **waits, "idle": spent.idle}
