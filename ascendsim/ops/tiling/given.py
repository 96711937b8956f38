"""The plans of a call: what the user gives of them, the rest chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ascendsim.arguments import shown
from ascendsim.errors import ConfigError, UnsupportedError
from ascendsim.ops.plan import USER, Plan, Tiling
from ascendsim.ops.plan_text import saying_whose
from ascendsim.ops.problems.as_product import gradient_product
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.dgrad import DgradGemm
from ascendsim.ops.problems.dilated import kernel_problem
from ascendsim.ops.problems.hf32 import stored_name
from ascendsim.ops.problems.merged import merged
from ascendsim.ops.problems.wgrad import WgradGemm
from ascendsim.ops.schedules.catalogue import schedule_named
from ascendsim.ops.tiling.choose import choose_tiling, product_of_gradient
from ascendsim.ops.tiling.partial import LayerPlans, PartialPlan, plan_given
from ascendsim.ops.tiling.vendor.merging import product_merge
from ascendsim.profile import Profile

if TYPE_CHECKING:
    from ascendsim.ops.problems.matmul import MatmulProblem

Given = Mapping[str, Any]
# The nest of a tiling that is given without one.
USUAL = {"grad_input": "dgrad", "grad_weight": "wgrad", "matmul": "matmul"}


def plans_of(
    problem: ConvProblem | MatmulProblem,
    gradients: Sequence[str],
    compute_dtype: str,
    profile: Profile,
    tilings: Given,
    schedules: Given,
    out_dtype: str | None = None,
    *,
    deterministic: bool = False,
) -> dict[str, Plan]:
    """Return the plan of each gradient of a call: the user's schedule and tiling, where given, else chosen.

    gradients   those that the cube makes: "grad_input", "grad_weight"; of a matrix product "matmul"
    out_dtype   the format in which a matrix product or grad_input leaves the cube
    deterministic   whether parts of grad_weight may be added in one order only

    Raises   CapacityError if no tile fits into the buffers; ConfigError for a plan of another gradient
    """
    plans = {}
    for gradient in gradients:
        # grad_weight always leaves in float32, so nothing is chosen anew for another format.
        made = None if gradient == "grad_weight" else out_dtype
        wanted = _Wanted(problem, gradient, compute_dtype, made, deterministic=deterministic)
        given = tilings.get(gradient)
        with saying_whose(gradient, given if isinstance(given, Plan | PartialPlan) else None):
            plans[gradient] = _plan(given, schedules.get(gradient), wanted, profile)
        if not wanted.follows_product(plans[gradient].schedule, profile):
            _require_makes(plans[gradient].schedule, gradient)
    return plans


class _Wanted(NamedTuple):
    """What a plan is chosen for: the arguments of `choose_tiling` but for the machine and the strategy."""

    problem: ConvProblem | MatmulProblem
    gradient: str
    compute_dtype: str
    out_dtype: str | None
    deterministic: bool
    group_merge: int = 0

    def choose(self, strategy: str, profile: Profile) -> Plan:
        """Return the plan of a strategy: one of STRATEGIES, or "shares", the operators' nests of shares."""
        stored, hf32 = stored_name(self.compute_dtype), self.compute_dtype == "hf32"
        of = self.gradient, stored, profile
        if strategy != "shares":
            return choose_tiling(
                self.problem,
                *of,
                hf32=hf32,
                deterministic=self.deterministic,
                out_dtype=self.out_dtype,
                strategy=strategy,
                group_merge=self.group_merge,
            )
        if not isinstance(self.problem, ConvProblem):
            raise UnsupportedError("matrix products have no nest that deals shares; leave schedule out")
        # Imported here: the host code of operators that most calls do not use.
        from ascendsim.ops.tiling.vendor.product_tiling import product_tiling

        made = product_tiling(
            self.problem,
            *of,
            hf32=hf32,
            deterministic=self.deterministic,
            group_merge=self.group_merge,
            by_winograd=False,
        )
        return replace(made, chosen_by="product")

    def as_product(self, profile: Profile) -> Plan | None:
        """Return the plan of a gradient that the product's interface makes by a matrix product; else None."""
        if not isinstance(self.problem, ConvProblem):
            return None
        found = gradient_product(self.problem, self.gradient, self.compute_dtype, profile)
        if found is None:
            return None
        # grad_weight leaves in float32, as that of a convolution kernel.
        made = "float32" if self.gradient == "grad_weight" else self.out_dtype
        return product_of_gradient(found.problem, self.compute_dtype, made, profile)

    def follows_product(self, schedule: str | type, profile: Profile) -> bool:
        """Tell whether a nest is that of matrix products, and the gradient is one."""
        if not schedule_named(schedule).makes == "matmul" != self.gradient:
            return False
        assert isinstance(self.problem, ConvProblem)
        return gradient_product(self.problem, self.gradient, self.compute_dtype, profile) is not None

    def gemm(self, profile: Profile) -> Any:
        """Return the product that the plan cuts."""
        if not isinstance(self.problem, ConvProblem):
            # Imported here: most calls have no matrix product.
            from ascendsim.ops.problems.matmul import MatmulGemm

            return MatmulGemm.of(self.problem, self.compute_dtype, self.out_dtype)
        whole = kernel_problem(self.problem, self.gradient, self.compute_dtype, profile)
        usual = product_merge(whole, self.gradient, self.compute_dtype, profile)
        problem = merged(whole, self.group_merge or usual)
        if self.gradient == "grad_input":
            return DgradGemm.of(problem, self.compute_dtype, self.out_dtype)
        return WgradGemm.of(problem, self.compute_dtype)


def _plan(tiling: Any, schedule: Any, wanted: _Wanted, profile: Profile) -> Plan:
    """Return the plan of one gradient: what is given of it, and the rest chosen."""
    if isinstance(tiling, LayerPlans):
        # A matrix product has no layer, and a file of entries none for it.
        problem = wanted.problem
        tiling = tiling.of(problem, wanted.compute_dtype) if isinstance(problem, ConvProblem) else None
    strategy = tiling if isinstance(tiling, str) else "product"
    if isinstance(tiling, Plan):
        return replace(tiling, schedule=schedule or tiling.schedule, chosen_by=USER, instead="")
    # A tiling without a nest is for the usual one: those of the products read fields of their own.
    if isinstance(tiling, Tiling):
        return Plan(schedule or USUAL[wanted.gradient], tiling, chosen_by=USER)
    partial = isinstance(tiling, PartialPlan)
    # A nest that the user names is one of convolution kernels.
    by_rule = strategy == "product" and not partial and not schedule
    if by_rule and (product := wanted.as_product(profile)):
        return product
    chosen = None if partial else wanted.choose(strategy, profile)
    if chosen is not None and schedule:
        known = _of_another_kind(chosen, schedule) or _knows(schedule, chosen.tiling)
        # A nest of the user's own may not know what the product's plan says; the search says the least.
        chosen = chosen if known else wanted.choose("search", profile)
        if _of_another_kind(chosen, schedule):
            # As a plan of which the nest alone is given.
            tiling = PartialPlan({})
    if isinstance(tiling, PartialPlan):
        # Imported here: few calls give a part of a plan.
        from ascendsim.ops.tiling.complete import completed
        from ascendsim.ops.tiling.fitting import Filling

        if schedule or tiling.schedule:
            tiling = replace(tiling, schedule=schedule or tiling.schedule)
            _require_makes(tiling.schedule, wanted.gradient)
        sums = profile.generation.deterministic_sum if wanted.deterministic else "atomic"
        wanted = wanted._replace(group_merge=tiling.fields.get("group_merge", 0))
        return completed(tiling, Filling(wanted.gemm(profile), profile, sums, wanted.choose))
    assert chosen is not None
    return replace(chosen, schedule=schedule).given_in_part() if schedule else chosen


def _knows(schedule: str | type, tiling: Tiling) -> bool:
    """Tell whether a nest reads all that a tiling sets."""
    return set(tiling.set_fields()) <= schedule_named(schedule).obeyed()


def _of_another_kind(chosen: Plan, asked: str | type) -> bool:
    """Tell whether a nest cannot take over the tiling of a plan as it is.

    It says something else by the same sizes (Winograd), numbers its tasks by axes that the plan does not, or
    splits the kernel, which the plan does not.
    """
    one, other = schedule_named(chosen.schedule), schedule_named(asked)
    if one is other:
        return False
    # Imported here, as above: few calls name a nest.
    from ascendsim.ops.tiling.complete import takes_over

    return bool(one.fixed or other.fixed) or not takes_over(other, chosen.tiling)


def tilings_given(tiling: Any, gradients: Sequence[str]) -> dict[str, Any]:
    """Return the user's tilings by gradient; a text is the strategy by which to choose one.

    A mapping is read as plans by gradient, or, with fields of a tiling for keys, as one partial plan.
    Raises   ConfigError where one tiling stands for several gradients, a key is none that is computed, or a
             field has no meaning
    """
    if tiling is None:
        return {}
    # How to choose is said for all gradients at once.
    if isinstance(tiling, str):
        return dict.fromkeys(gradients, tiling)
    if says_fields(tiling):
        tiling = plan_given(tiling)
    # One tiling cannot serve two gradients: m, n and k mean other axes in each.
    if not isinstance(tiling, Mapping):
        if len(gradients) != 1:
            computed = " and ".join(gradients) or "no cube gradient"
            raise ConfigError(
                f"tiling is one {type(tiling).__name__}, but the call computes {computed}; "
                'pass {"grad_input": ..., "grad_weight": ...}'
            )
        return {gradients[0]: tiling}
    _require_keys("tiling", tiling, gradients)
    return {
        gradient: plan_given(plan, f"tiling of {gradient}") if isinstance(plan, Mapping) else plan
        for gradient, plan in tiling.items()
    }


def says_fields(tiling: object) -> bool:
    """Tell whether a mapping names fields of one plan, and not plans by gradient."""
    if not isinstance(tiling, Mapping) or not tiling:
        return False
    plans = (Tiling, Plan, PartialPlan, LayerPlans, Mapping)
    return not any(isinstance(plan, plans) for plan in tiling.values()) and not any(
        isinstance(key, str) and (key in USUAL or key.startswith("grad_")) for key in tiling
    )


def schedules_given(schedule: Any, gradients: Sequence[str]) -> dict[str, Any]:
    """Return the user's schedules by gradient; a schedule says itself what it makes.

    Raises   ConfigError for an unknown schedule, or one that makes what the call does not compute
    """
    if schedule is None:
        return {}
    if not isinstance(schedule, Mapping):
        made: dict[str, Any] = {}
        for name in schedule if isinstance(schedule, list | tuple) else [schedule]:
            makes = schedule_named(name).makes
            if makes not in gradients:
                raise ConfigError(
                    f"schedule is {shown(name)}, which makes {makes}, but the call computes "
                    f"{' and '.join(gradients) or 'nothing on the cube'}"
                )
            if makes in made:
                raise ConfigError(
                    f"schedule has {shown(made[makes])} and {shown(name)}; both make {makes}: give one"
                )
            made[makes] = name
        return made
    _require_keys("schedule", schedule, gradients)
    for gradient, name in schedule.items():
        _require_makes(name, gradient)
    return dict(schedule)


def _require_makes(schedule: str | type, gradient: str) -> None:
    """Refuse a schedule that makes something else: its loops are over other tensors."""
    makes = schedule_named(schedule).makes
    if makes != gradient:
        raise ConfigError(f"schedule of {gradient} is {shown(schedule)}, which makes {makes}")


def _require_keys(what: str, given: Given, gradients: Sequence[str]) -> None:
    """Refuse keys that no call of this kind has, and gradients that this one does not compute."""
    known = ("matmul",) if "matmul" in gradients else ("grad_input", "grad_weight")
    unknown = set(given) - set(known)
    if unknown:
        raise ConfigError(f"{what} has keys {sorted(unknown, key=repr)}; it takes {' and '.join(known)}")
    # A file of plans may serve several calls; who names a gradient in the call itself wants it obeyed.
    idle = sorted(name for name in given if name not in gradients and not _of_file(given[name]))
    if idle:
        raise ConfigError(
            f"{what} is given for {' and '.join(idle)}, but the call computes "
            f"{' and '.join(gradients) or 'nothing on the cube'}; leave it out, or ask for the gradient "
            "(output_mask)"
        )


def _of_file(plan: Any) -> bool:
    """Tell whether a plan was read from a file."""
    return isinstance(plan, LayerPlans) or (isinstance(plan, Plan | PartialPlan) and bool(plan.file))
