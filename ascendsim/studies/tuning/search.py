"""The search for plans: steps from the plans of the product's rules and the search, then Optuna."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

from ascendsim.errors import AscendSimError
from ascendsim.ops.plan import Plan, Tiling, even_parts
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.matmul import MatmulProblem
from ascendsim.ops.problems.products import DgradGemm
from ascendsim.ops.problems.sliding import AXES, phases_of
from ascendsim.ops.schedules.base import SCHEDULES, schedule_named
from ascendsim.ops.tiling.choose import choose
from ascendsim.ops.tiling.given import plan_of
from ascendsim.ops.tiling.legal_space import NO_GRID, BaseSizes, CellGrid, L1Cut
from ascendsim.ops.tiling.legal_tilings import space_of
from ascendsim.ops.tiling.request import PartialPlan, PlanRequest
from ascendsim.ops.tiling.timed import FRACTAL
from ascendsim.studies.tuning.records import Trial
from ascendsim.studies.tuning.tune import Tuner

# Base sizes above hold no useful reduction in L0 of any product; of a reduction, no L0A holds more.
MOST = {"m": 1024, "n": 1024, "k": 1024}


@dataclass(frozen=True, slots=True)
class Wish:
    """The wanted sizes of a tiling; sizes that do not fit are made smaller.

    reduction_a, reduction_b  of the part that an L1 tile of the left and the right operand holds
    copies                    of the tiles in L1 (left, right) and in L0A, L0B, L0C
    grid                      even parts of all pixels and parts of the columns, if any
    """

    base: BaseSizes
    k_split: int
    reduction_a: int
    reduction_b: int
    copies: tuple[int, ...]
    grid: CellGrid = NO_GRID

    @classmethod
    def of(cls, tiling: Tiling) -> Wish:
        """Return the wish for just this tiling."""
        t = tiling
        copies = (t.al1_buffers, t.bl1_buffers, t.al0_buffers, t.bl0_buffers, t.cl0_buffers)
        base = BaseSizes(t.base_m, t.base_n, t.base_k)
        # Of other grids there are no plans here: their base blocks are dealt in ranges.
        grid = CellGrid(t.pixel_dim, t.n_dim) if t.pixel_dim else NO_GRID
        return cls(base, t.k_split, t.step_ka * t.base_k, t.step_kb * t.base_k, copies, grid)


class Tilings:
    """The tilings of one gradient under its usual loop nest, found by wish."""

    def __init__(self, request: PlanRequest) -> None:
        self.space = space_of(request)
        self.sizes = tuple(
            tuple(sorted(even_parts(legal[-1], legal.step, most)))
            for legal, most in zip(self.space.sizes, MOST.values(), strict=True)
        )

    def plan(self, wish: Wish) -> Plan | None:
        """Return the legal plan nearest to a wish; None where its base block or split is none."""
        space, base = self.space, wish.base
        if not all(size in legal for size, legal in zip(base, space.sizes, strict=True)):
            return None
        if wish.k_split not in space.splits or space.ways(space.least(base)) is None:
            return None
        base = base._replace(k=min(base.k, space.longest_k(wish.k_split)))
        grid = self._grid(wish)
        if grid is None:
            return None
        for steps in self._steps(replace(wish, base=base)):
            cut = L1Cut(base, wish.k_split, steps, (wish.copies[0], wish.copies[1]), grid)
            footprint = space.footprint(cut)
            most = footprint and space.ways(footprint)
            if footprint is None or most is None:
                continue
            l0 = [min(copies, held) for copies, held in zip(wish.copies[2:], most, strict=True)]
            # As many cores as the longest core's share needs: one more would only share the links.
            tasks = max(1, footprint.tasks)  # none where taps meet padding alone
            cores = -(-tasks // -(-tasks // space.most_cores(tasks)))
            al0, bl0, cl0 = l0
            tiling = Tiling(
                *(*base, *steps, *cut.copies, al0, bl0, cl0),
                k_split=wish.k_split,
                used_cores=cores,
                group_merge=space.group_merge,
                pixel_dim=grid.pixel_dim,
                n_dim=grid.n_dim,
            )
            return Plan(space.schedule, tiling)
        return None

    def _grid(self, wish: Wish) -> CellGrid | None:
        """Return the cells nearest to the wish; None where its even parts are those of whole blocks."""
        asked = wish.grid
        if not asked.pixel_dim:
            return NO_GRID
        # Where columns have fewer blocks than parts: fewer parts, or as many cells by more parts of pixels.
        near = [
            grid
            for grid in self.space.grids(wish.base)
            if grid.cells == asked.cells or (grid.pixel_dim == asked.pixel_dim and grid.n_dim <= asked.n_dim)
        ]
        cores = self.space.profile.cores.cube
        return max(near, key=lambda grid: (grid == asked, min(grid.cells, cores), grid.n_dim), default=None)

    def balanced(self, base: BaseSizes) -> list[CellGrid]:
        """Return the grids that give every core as much: of few column parts, side by side or in turns."""
        cores = self.space.profile.cores.cube
        made = []
        for grid in self.space.grids(base):
            columns = max(1, grid.n_dim)
            beside = columns <= 3 and grid.pixel_dim == cores // columns
            if beside or (grid.pixel_dim == cores and columns == -(-self.space.gemm.columns // base.n)):
                made.append(grid)
        return made

    def longest(self, wish: Wish) -> Wish:
        """Return the wish with the longest block that L0 holds in as many copies."""
        for m in reversed(self.space.sizes[0][: MOST["m"] // 16]):
            base = wish.base._replace(m=m)
            footprint = self.space.footprint(L1Cut(base, wish.k_split, (1, 1), (1, 1), wish.grid))
            most = footprint and self.space.ways(footprint)
            if most and all(held >= copies for held, copies in zip(most, wish.copies[2:], strict=True)):
                return replace(wish, base=base)
        return wish

    def _steps(self, wish: Wish) -> list[tuple[int, int]]:
        """Return the steps that mean different tiles, the largest up to the wish first."""
        k = wish.base.k
        asked = max(1, wish.reduction_a // k), max(1, wish.reduction_b // k)
        known = self.space.steps(k, wish.k_split)
        # A step between two that are listed means the lower one's tiles, and is no point of its own.
        firsts, seconds = ({step[at] for step in known} for at in (0, 1))
        top = (_floor(firsts, asked[0]), _floor(seconds, asked[1]))
        below = [step for step in known if step[0] <= top[0] and step[1] <= top[1]]
        return sorted(below, key=lambda step: (-step[0] * step[1], step))


def _floor(listed: set[int], asked: int) -> int:
    return max((step for step in listed if step <= asked), default=min(listed))


def neighbours(plan: Plan, tilings: Tilings) -> list[Plan]:
    """Return the plans one step away, each once: in base block, split, tiles of L1, copies or loop nest."""
    wish = Wish.of(plan.tiling)
    found = [tilings.plan(wished) for wished in _wishes(wish, tilings)]
    same_nest = [replace(near, schedule=plan.schedule) for near in found if near is not None]
    own = tilings.plan(wish)
    other_nests = [replace(own, schedule=name) for name in nests_of(tilings.space.schedule)] if own else []
    return [near for near in dict.fromkeys((*same_nest, *other_nests)) if near != plan]


def nests_of(usual: str) -> tuple[str, ...]:
    """Return the usual loop nest of a gradient, and those like it that only order its tasks otherwise."""
    kind = schedule_named(usual)
    others = {name: schedule_named(name) for name in SCHEDULES}
    alike = [name for name, other in others.items() if issubclass(other, kind) and other.reads <= kind.reads]
    return (usual, *(name for name in alike if name != usual))


def _wishes(wish: Wish, tilings: Tilings) -> Iterator[Wish]:
    for axis, sizes in zip(("m", "n", "k"), tilings.sizes, strict=True):
        for size in _near(getattr(wish.base, axis), sizes, tilings.space.sizes["mnk".index(axis)].step):
            yield replace(wish, base=wish.base._replace(**{axis: size}))
    # Two sides at once: a block that grows along m has to shrink along n to fit.
    for m in _near(wish.base.m, tilings.sizes[0], 16):
        for n in _near(wish.base.n, tilings.sizes[1], 16):
            yield replace(wish, base=wish.base._replace(m=m, n=n))
    split = wish.k_split
    for other in dict.fromkeys((split - 1, split + 1, split // 2, 2 * split)):
        yield replace(wish, k_split=max(1, other))
    for factor_a, factor_b in ((1, 2), (2, 1), (2, 2), (1, 0.5), (0.5, 1), (0.5, 0.5), (64, 64)):
        longer = int(wish.reduction_a * factor_a), int(wish.reduction_b * factor_b)
        yield replace(wish, reduction_a=longer[0], reduction_b=longer[1])
    for place, copies in enumerate(wish.copies):
        turned = 1 if copies == 2 else 2
        yield replace(wish, copies=(*wish.copies[:place], turned, *wish.copies[place + 1 :]))
    yield from _evenly(wish, tilings)
    # One tile at a time leaves twice the room for each of them.
    yield replace(wish, copies=(1, 1, *wish.copies[2:]), reduction_a=2 * wish.reduction_a)


def _evenly(wish: Wish, tilings: Tilings) -> Iterator[Wish]:
    """Yield the wish with even parts of all pixels, cut freely into the longest blocks that fit."""
    if wish.grid.pixel_dim:
        yield replace(wish, grid=NO_GRID)
    for grid in tilings.balanced(wish.base):
        for k in (wish.base.k, wish.base.k // 2 // 16 * 16):
            cut = replace(wish, base=wish.base._replace(k=max(16, k)), grid=grid)
            yield cut
            yield tilings.longest(cut)


def _near(size: int, sizes: tuple[int, ...], unit: int) -> list[int]:
    """Return sizes near one: even cuts on both sides, twice and half, a unit more or less."""
    below = [other for other in sizes if other < size][-2:]
    above = [other for other in sizes if other > size][:2]
    others = (2 * size, size // 2 // unit * unit, size + unit, size - unit)
    return [other for other in dict.fromkeys((*below, *above, *others)) if other > 0]


# Their nests by gradient, with the fields that a nest needs.
NESTS: Mapping[str, tuple[tuple[str, Mapping[str, Any]], ...]] = {
    "grad_input": (
        ("dgrad_shares", {}),
        ("dgrad_shares", {"k_split": 1, "single_core_k": 0}),
        ("dgrad_split", {"kernel_split": "hw"}),
        ("dgrad_split", {"kernel_split": "h"}),
    ),
    "grad_weight": (("wgrad_stream", {}), ("wgrad_shares", {})),
}
# What follows from the rest, and is asked for anew.
FOLLOWS = ("used_cores",)
STREAM_FOLLOWS = (*FOLLOWS, "k_split", "stream_axis")


def unmade(plan: Plan, problem: ConvProblem | MatmulProblem, usual: Plan | None = None) -> str:
    """Return why no operator makes a plan, in words; "" where one may.

    usual   the plan that a call follows by default: by the operator's rules it may have one more nest
    """
    own = {usual.schedule} if usual is not None and usual.chosen_by != "search" else set()
    if plan.schedule not in own | {nest for nests in NESTS.values() for nest, _ in nests}:
        return f"its nest, {plan.nest}, is this simulator's"
    split = AXES.get(plan.tiling.kernel_split, (False, False))
    steps = problem.strides[-2:] if isinstance(problem, ConvProblem) else ()
    if any(along and step == 1 for along, step in zip(split, steps, strict=False)):
        return "it splits the kernel along an axis of stride 1"
    return ""


class OperatorTilings:
    """Plans of the operators' nests for one gradient."""

    def __init__(self, request: PlanRequest) -> None:
        self.gradient, self._request = request.gradient, request

    def starts(self) -> list[Plan]:
        """Return the plans of the product's rules for each nest that takes the layer, each plan once.

        Of grad_weight the operators have one nest, that of their own plan: the other one runs here, but no
        device can be given it.
        """
        made = (self._plan(nest, fields) for nest, fields in NESTS[self.gradient])
        plans = [plan for plan in dict.fromkeys(made) if plan is not None]
        own = self._own_nest() if self.gradient == "grad_weight" else None
        return [plan for plan in plans if plan.schedule == own] or plans

    def _own_nest(self) -> str | type | None:
        """Return the nest of the plan that the operators' rules make; None where they make none."""
        try:
            return choose(self._request, "shares").schedule
        except AscendSimError:
            return None

    def has(self, plan: Plan) -> bool:
        """Return whether a plan follows one of the operators' nests, as an operator may."""
        own = plan.schedule in {nest for nest, _ in NESTS[self.gradient]}
        return own and not unmade(plan, self._request.problem)

    def neighbours(self, plan: Plan) -> list[Plan]:
        """Return the plans one step away, each once: nests, blocks, shares, slices, copies, segments."""
        follows = STREAM_FOLLOWS if plan.schedule == "wgrad_stream" else FOLLOWS
        reads = schedule_named(plan.schedule).reads | {"base_m", "base_n", "base_k"}
        known = vars(plan.tiling).items()
        fields = {name: value for name, value in known if name in reads and name not in follows}
        made = [self._plan(nest, same) for nest, same in self._elsewhere(fields)]
        made += [self._plan(str(plan.schedule), changed) for changed in _moves(fields, self.gradient)]
        return [near for near in dict.fromkeys(made) if near is not None and near != plan]

    def _elsewhere(self, fields: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the same tiles in each nest of grad_input, with the weights turned first and without."""
        # Of grad_weight a product's operators have one nest.
        for nest, own in NESTS[self.gradient] if self.gradient == "grad_input" else ():
            reads = schedule_named(nest).reads | {"base_m", "base_n", "base_k"}
            same = {name: value for name, value in fields.items() if name in reads} | dict(own)
            turned = fields.get("transpose_first", False)
            yield from ((nest, same | {"transpose_first": first}) for first in (turned, not turned))

    def spelled(self, plan: Plan) -> Plan:
        """Return the plan with blocks and shares no longer than the product, which they stand for as a whole.

        Plans of other nests, or of groups merged otherwise, come back as they are.
        """
        tiling, gemm = plan.tiling, self._request.gemm
        if not self.has(plan) or tiling.group_merge != self._request.merge:
            return plan
        if isinstance(gemm, DgradGemm):
            phases = phases_of(gemm.sliding, tiling.kernel_split) if tiling.kernel_split else ()
            sizes = max([phase.sliding.pixels for phase in phases] or [gemm.sliding.pixels]), gemm.columns
        else:
            sizes = gemm.rows, gemm.all_taps.groups * gemm.sliding.c0
        unit = max(FRACTAL, gemm.sliding.c0)
        m, n = (-(-size // unit) * unit for size in sizes)
        clipped = {
            "base_m": min(tiling.base_m, m),
            "base_n": min(tiling.base_n, n),
            "single_core_m": min(tiling.single_core_m, m),
            "single_core_n": min(tiling.single_core_n, n),
        }
        return replace(plan, tiling=replace(tiling, **clipped))

    def _plan(self, nest: str, fields: Mapping[str, Any]) -> Plan | None:
        """Return the whole plan with these fields; None where there is none."""
        try:
            plan = self.spelled(plan_of(self._request, PartialPlan(dict(fields), nest)))
        except AscendSimError:
            return None
        return plan if self.has(plan) else None


def _moves(fields: Mapping[str, Any], gradient: str) -> Iterator[dict[str, Any]]:
    """Yield the fields of plans one step away, legal or not."""
    rows, columns = _sizes(fields, "m"), _sizes(fields, "n")
    yield from (_resized(fields, m=size) for size in rows)
    yield from (_resized(fields, n=size) for size in columns)
    quarters = {side: fields[f"base_{side}"] * 3 // 4 // FRACTAL * FRACTAL for side in ("m", "n")}
    if all(quarters.values()):
        yield _resized(fields, m=quarters["m"])
        yield _resized(fields, n=quarters["n"])
        yield _resized(fields, **quarters)
    # Blocks that shrink make tasks for more cores, and leave room for longer slices.
    for part in (2, 4, 8):
        for side in ("n", "m"):
            size = fields[f"base_{side}"] // part // FRACTAL * FRACTAL
            if size:
                yield _resized(_sliced(fields, part * fields["base_k"]), **{side: size})
    # Two sides at once: a block that grows along m has to shrink along n to fit.
    yield from (_resized(fields, m=m, n=n) for m in rows for n in columns)
    for side in ("m", "n"):
        share, base = fields[f"single_core_{side}"], fields[f"base_{side}"]
        for size in (2 * (share or base), (share or base) // 2):
            yield {**fields, f"single_core_{side}": max(base, size)}
    yield from _slices(fields, gradient)
    copies = ("al1_buffers", "bl1_buffers", "al0_buffers", "bl0_buffers", "cl0_buffers")
    for name in copies:
        yield {**fields, name: 1 if fields[name] > 1 else 2}
    # One tile at a time leaves twice the room for each of them.
    longer = {name: 2 * fields[name] for name in ("step_ka", "step_kb")}
    yield {**fields, "al1_buffers": 1, "bl1_buffers": 1, **longer}
    if "transpose_first" in fields:
        yield {**fields, "transpose_first": not fields["transpose_first"]}
    if gradient == "grad_input" and fields.get("k_split", 1) > 1:
        yield {**fields, "k_split": 1, "single_core_k": 0}


def _slices(fields: Mapping[str, Any], gradient: str) -> Iterator[dict[str, Any]]:
    """Yield other slices of the reduction, and other numbers of them in L1."""
    k, steps = fields["base_k"], (fields["step_ka"], fields["step_kb"])
    for size in (2 * k, k // 2, k + FRACTAL, k - FRACTAL, k + FRACTAL // 2, 3 * k):
        if size > 0:
            yield {**fields, "base_k": size}
            yield _sliced(fields, size)
    both = gradient == "grad_weight"  # a tile of each operand serves the same pixels
    factors = ((2, 2), (0.5, 0.5)) if both else ((2, 2), (0.5, 0.5), (2, 1), (1, 2), (0.5, 1), (1, 0.5))
    for a, b in factors:
        yield {**fields, "step_ka": max(1, int(steps[0] * a)), "step_kb": max(1, int(steps[1] * b))}
    for more in (1, -1):
        ka, kb = (max(1, step + more) for step in steps)
        yield {**fields, "step_ka": ka, "step_kb": kb}


def _sliced(fields: Mapping[str, Any], base_k: int) -> dict[str, Any]:
    """Return the fields with other slices; their number in L1 keeps the tiles as long."""
    kept = {step: max(1, fields[step] * fields["base_k"] // base_k) for step in ("step_ka", "step_kb")}
    return {**fields, "base_k": base_k, **kept}


def _sizes(fields: Mapping[str, Any], side: str) -> list[int]:
    """Return sizes near that of a block: twice and half, a fractal more or less, and thirds."""
    base = fields[f"base_{side}"]
    near = (2 * base, base // 2, base + FRACTAL, base - FRACTAL, base * 3 // 2, base * 2 // 3)
    whole = (size // FRACTAL * FRACTAL for size in near)
    return [size for size in dict.fromkeys(whole) if size > 0 and size != base]


def _resized(fields: Mapping[str, Any], **sizes: int) -> dict[str, Any]:
    """Return the fields with other blocks; a share of one block stays one, of several as many."""
    found = dict(fields)
    for side, size in sizes.items():
        base, share = fields[f"base_{side}"], fields[f"single_core_{side}"]
        found[f"base_{side}"] = size
        found[f"single_core_{side}"] = size * max(1, share // base) if share else 0
    return found


# Plans that are asked for at once: as many for any number of processes, so that these change nothing.
BATCH = 8
# Neighbours that are tried before a step is taken.
GROUP = 12
# Returns the plans one step away.
Steps = Callable[[Plan], list[Plan]]


def tune(tuner: Tuner) -> tuple[Trial, Trial]:
    """Return the usual plan and the best one that was found within the trials.

    Raises   AscendSimError where the usual plan cannot be timed
    """
    asked = tuner.question
    request = PlanRequest(
        *(asked.problem, asked.gradient, tuner.compute_dtype, tuner.profile),
        deterministic=bool(asked.deterministic),
    )
    ours, operators = Tilings(request), OperatorTilings(request)
    usual, searched = tuner.chosen("product"), tuner.chosen("search")
    tuner.allowed = lambda plan: asked.nests != "operators" or operators.has(plan)
    tuner.same = operators.spelled
    if asked.nests != "ours" and (asked.nests == "operators" or operators.has(usual.plan)):
        tuner.try_all(operators.starts(), "rules", float("inf"))
        begun = [trial for plan, trial in tuner.trials.items() if operators.has(plan) and trial.times_us]
        # The best first: trials may be used up before the others have their turn.
        for trial in sorted(begun, key=tuner.score):
            _climb(tuner, operators.neighbours, trial)
    if asked.nests != "operators":
        # The best first: trials may be used up before the other has its turn.
        for trial in sorted((usual, searched), key=tuner.score):
            # A nest of the product's own has fields that the usual one does not know.
            if trial.plan.schedule in nests_of(ours.space.schedule):
                _climb(tuner, lambda plan: neighbours(plan, ours), trial)
        _draw(tuner, ours)
    best = tuner.best
    return usual, best if tuner.score(best) < tuner.score(usual) else usual


def _climb(tuner: Tuner, steps: Steps, trial: Trial) -> None:
    """Go to better neighbours until none is better: to the best of each group, from where the next goes on.

    Neighbours come in an order of kinds of steps. A look at all of them would use up many trials for a step
    in one direction.
    """
    here, group, idle = trial, 0, 0
    while tuner.left > 0:
        near = steps(here.plan)
        groups = max(1, -(-len(near) // GROUP))
        own = near[group % groups * GROUP :][:GROUP]
        tuner.try_all(own, "steps", tuner.score(here))
        known = [tuner.trials[plan] for plan in own if plan in tuner.trials]
        best = min(known, key=tuner.score, default=here)
        better = tuner.score(best) < tuner.score(here)
        here, idle, group = (best, 0, group + 1) if better else (here, idle + 1, group + 1)
        if idle >= groups:
            return


def _draw(tuner: Tuner, tilings: Tilings) -> None:
    """Let Optuna draw plans from the scores so far, and climb from each new best; without Optuna, stop."""
    try:
        import optuna
    except ImportError:
        return
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=tuner.question.seed))
    idle = 0
    # A draw may be known already, or no plan; many of these in a row mean that little is left.
    while tuner.left > 0 and idle < 10:
        before, best = len(tuner.trials), tuner.best
        drawn = [study.ask() for _ in range(min(BATCH, tuner.left))]
        plans = [_drawn(trial, tilings) for trial in drawn]
        tuner.try_all([plan for plan in plans if plan], "optuna", tuner.score(best))
        for trial, plan in zip(drawn, plans, strict=True):
            time_us = _told(tuner, plan)
            if time_us is None:
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
            else:
                study.tell(trial, time_us)
        if tuner.best is not best:
            _climb(tuner, lambda plan: neighbours(plan, tilings), tuner.best)
        idle = idle + 1 if len(tuner.trials) == before else 0


def _drawn(trial: Any, tilings: Tilings) -> Plan | None:
    base = BaseSizes(*(sizes[trial.suggest_int(axis, 0, len(sizes) - 1)] for axis, sizes in _axes(tilings)))
    split = trial.suggest_int("k_split", 1, tilings.space.splits[-1], log=tilings.space.splits[-1] > 1)
    lengths = [base.k * 2 ** trial.suggest_int(f"reduction_{side}", 0, 8) for side in ("a", "b")]
    names = ("al1", "bl1", "al0", "bl0", "cl0")
    copies = tuple(trial.suggest_int(name, 1, 2) for name in names)
    return tilings.plan(Wish(base, split, lengths[0], lengths[1], copies))


def _axes(tilings: Tilings) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield from zip(("m", "n", "k"), tilings.sizes, strict=True)


def _told(tuner: Tuner, plan: Plan | None) -> float | None:
    """Return the value of a plan for Optuna: its score, or else a bound that it does not beat.

    Of a plan that was stopped that is the score to beat, of one that was not timed its bound, of one that is
    timed under some starts the worst of these. None where nothing is known: of no plan, or a refused one.
    """
    trial = tuner.trials.get(tuner.same(plan)) if plan else None
    if trial is None or trial.reason:
        return None
    score = tuner.score(trial)
    known = score if isfinite(score) else max((trial.above_us, *trial.times_us.values()))
    return known or None
