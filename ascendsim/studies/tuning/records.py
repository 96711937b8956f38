"""The question what beats the product's plan, and its answer: frozen records of plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ascendsim.frozen import FrozenMap
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.ops.plan import Plan
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.studies.engine.point import Before
from ascendsim.studies.records import StudyAnswer
from ascendsim.studies.verdicts import Condition, GainVerdict

SCORES = ("worst", "mean")
NESTS = ("any", "ours", "operators")


@dataclass(frozen=True, slots=True)
class TilingQuestion:
    """One gradient, and the search for a plan that beats the product's.

    title     what the convolution is, for people
    gradient  "grad_input" or "grad_weight"
    starts    of L2, over which a plan is scored
    score     "worst" of the starts, or their "mean"
    trials    tilings that are tried at most
    seed      of what is drawn
    margin    a plan that is faster by less than this part is not called a winner: the model's own error
    doubt     whether the winner has to win at both ends of each figure with a range
    changes   figures of the product that are replaced: dotted path -> value
    nests     whose loop nests plans follow: this simulator's ("ours"), the operators' ("operators"), which a
              device can be given, or "any": ours, and the operators' where a call follows them by default
    before    calls whose rest in L2 is found, for the start "network"; as `StudyPoint` has them
    deterministic  whether grad_weight is added in one order; None as the product does
    """

    title: str
    product: str | Path
    problem: ConvProblem
    gradient: str
    dtype: str = "float16"
    cube_math_type: int = 0
    starts: tuple[str, ...] = ("warm", "step")
    score: str = "worst"
    trials: int = 200
    seed: int = 0
    margin: float = 0.0
    doubt: bool = True
    changes: Mapping[str, Any] = FrozenMap()
    nests: str = "any"
    before: tuple[Before, ...] = ()
    deterministic: bool | None = None

    @property
    def gradients(self) -> tuple[bool, bool, bool]:
        """The mask of the call."""
        return self.gradient == "grad_input", self.gradient == "grad_weight", False


@dataclass(frozen=True, slots=True)
class Trial:
    """One plan that was tried.

    found_by  "product", "search", "rules" (the product's, of another nest), "steps" or "optuna"
    times_us  microseconds by start, of the kernels on which the plan has a say: changes of layout are left
              out, and so is a start that could not change the score any more
    reason    why it could not be timed; "" where it was
    above_us  a score that it is known not to beat, where timing stopped or a bound said enough; else 0
    """

    plan: Plan
    found_by: str
    times_us: Mapping[str, float]
    reason: str = ""
    above_us: float = 0.0


@dataclass(frozen=True, slots=True)
class CyclesPart:
    """Cycles by one cause on the core that ends last, of one kernel under two plans.

    what            "busy", "waits for PIPE" or "idle" of its pipe, or "other kernels"
    before, after   cycles
    """

    what: str
    before: int
    after: int

    @property
    def change(self) -> int:
        """How many cycles more there are after."""
        return self.after - self.before


@dataclass(frozen=True, slots=True)
class StartCycles:
    """One start: cycles of the gradient's kernels but changes of layout, and the parts that add up to them.

    pipe       the pipe whose time is shown: M, which the others feed
    launch_us  microseconds of launches, beside the cycles: fewer cores are launched sooner
    """

    start: str
    pipe: str
    before: int
    after: int
    parts: tuple[CyclesPart, ...]
    launch_us: tuple[float, float]


@dataclass(frozen=True, slots=True)
class BufferUse:
    """The use of one on-chip buffer while a product runs, on the core of its kind that ends last.

    reserved_bytes  what the program's slots take
    tiles           (purpose, copies, bytes of each) of the slots: two copies take turns (ping-pong)
    most_bytes      the most that hold a tile at a time, and `mean_bytes` over the product's cycles
    curve           mean bytes held in equal parts of the time of the longer of two plans
    """

    buffer: str
    capacity_bytes: int
    reserved_bytes: int
    tiles: tuple[tuple[str, int, int], ...]
    most_bytes: int
    mean_bytes: float
    curve: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Course:
    """The gradient's run under both plans and one start; both kinds of parts add up to its cycles.

    stages          "entry", "fill", "steady" and "drain" of the product (`timing/timeline.py`),
                    "other kernels"
    path            its critical path by pipe and cause, and "other kernels"
    cycles          of the product under the slower of the two plans: the length of the curves
    before, after   buffers of the product
    """

    start: str
    stages: tuple[CyclesPart, ...]
    path: tuple[CyclesPart, ...]
    cycles: int
    before: tuple[BufferUse, ...]
    after: tuple[BufferUse, ...]


@dataclass(frozen=True, slots=True)
class ReachedTime:
    """What the best plan is worth in a wider view, under one start of L2.

    what       "kernel", "call", "deterministic call" or "training step"
    usual_us   microseconds under the usual plan, and `best_us` under the best
    """

    what: str
    start: str
    usual_us: float
    best_us: float

    @property
    @default_arithmetic
    def saved(self) -> float:
        """The part of the usual plan's time that the best saves."""
        return 1 - self.best_us / self.usual_us


@dataclass(frozen=True, slots=True)
class TilingAnswer(StudyAnswer):
    """What beats the product's plan.

    usual     the plan that a call follows by default, and its times
    best      the best plan of all that were tried; `usual` itself where none is better
    waits     by start, and `courses`
    tried     tilings that were timed, pruned (a bound or one start said enough) and refused
    cut       whether the search ended before its plans were tried, as time or trials were used up
    verdict   on what is saved under the start that saves least, with figures moved; None where none was
    even      of the figures on which it hangs: where the best is no faster
    untried   ends of figures for which nothing was left
    reaches   what the best plan is worth of the kernel, the call and the training step, by start
    unmade    why no operator makes the best plan; "" where one does
    """

    question: TilingQuestion
    usual: Trial
    best: Trial
    waits: tuple[StartCycles, ...]
    courses: tuple[Course, ...]
    tried: Mapping[str, int]
    cut: bool = False
    verdict: GainVerdict | None = None
    even: tuple[Condition, ...] = ()
    untried: int = 0
    reaches: tuple[ReachedTime, ...] = ()
    unmade: str = ""

    @default_arithmetic
    def saved(self, start: str) -> float:
        """Return the part of the usual plan's time that the best saves under a start."""
        return 1 - self.best.times_us[start] / self.usual.times_us[start]

    @property
    def least(self) -> float:
        """What is saved under the start that saves least."""
        return min(map(self.saved, self.question.starts))

    @property
    def keeps(self) -> bool:
        """Whether the usual plan is the best of all."""
        return self.best.plan == self.usual.plan

    @property
    def leads(self) -> bool:
        """Whether the best saves more than the margin under every start, with the figures as they are."""
        return not self.keeps and self.least > self.question.margin

    @property
    def wins(self) -> bool:
        """Whether the best leads wherever figures lie."""
        return self.leads and not self.conditions and not self.untried

    @property
    def undecided(self) -> bool:
        """Whether the best leads as far as was tried, but not all ends of figures were."""
        return self.leads and not self.conditions and self.untried > 0

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The figures on which it hangs whether the best saves more than the margin."""
        return self.verdict.conditions if self.verdict else ()


@dataclass(frozen=True, slots=True)
class Started:
    """Both plans under one start of L2; a `CyclesPart` has what the usual one takes before the given one.

    times_us   with launches, of the kernels on which a plan has a say
    busy       cycles by pipe of the product, averaged over the cores that use it
    moved      bytes of the product by pipe, over all cores (`bytes_by_pipe`), then those that L2 did not hold
    """

    start: str
    times_us: tuple[float, float]
    waits: StartCycles
    course: Course
    busy: tuple[CyclesPart, ...]
    moved: tuple[CyclesPart, ...]


@dataclass(frozen=True, slots=True)
class Beside(StudyAnswer):
    """The answer: both plans, and what each takes under every start of L2."""

    question: TilingQuestion
    usual: Plan
    given: Plan
    starts: tuple[Started, ...]
