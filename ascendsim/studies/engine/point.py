"""One call that a study times, and the key under which its answer is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ascendsim.errors import ConfigError
from ascendsim.frozen import FrozenMap
from ascendsim.ops.plan import Plan
from ascendsim.ops.problems.layers import LayerProblem
from ascendsim.profile import Profile, load_profile
from ascendsim.rules import rules_digest


def plan_values(plan: Plan) -> dict[str, Any]:
    """Return a plan as plain values: those of `Plan.to_dict`, and who chose it.

    Raises   ConfigError for a schedule that is a class: another day may find another one under its name
    """
    return {**plan.to_dict(), "chosen_by": plan.chosen_by}


def plan_of(values: Mapping[str, Any]) -> Plan:
    """Return the plan that `plan_values` made these of."""
    said = dict(values)
    chosen_by = said.pop("chosen_by")
    return replace(Plan.from_dict(said), chosen_by=chosen_by)


def plan_text(values: Mapping[str, Any]) -> str:
    """Return plain values of a plan on one line, without who chose it."""
    words = (f"{name}={value}" for name, value in values.items() if name not in ("schedule", "chosen_by"))
    return " ".join((values["schedule"], *words))


NOTHING = FrozenMap[str, Any]()
# A call that ran before: its layer, and which gradients were made.
Before = tuple[LayerProblem, tuple[bool, bool, bool]]
NETWORK = "network"
# So many profiles stay loaded in a process; a study goes through its changes one after the other.
KEPT_PROFILES = 64


@dataclass(frozen=True, slots=True)
class StudyPoint:
    """One call to be timed.

    problem    the layer, of any kind
    product    name of a product or variant, or path of its file
    changes    figures that are replaced: dotted path -> value
    dtype      format of all three inputs, with `cube_math_type` as the interface has it
    gradients  which of grad_input, grad_weight and grad_bias are made
    l2_start   as of a call, or "network": L2 holds what the calls `before` have left
    tiling     "product" or "search", by which plans are chosen on the changed product, or plans by gradient
    before     calls that ran before this one on the same product, the first one first; for "network"
    stop_above cycles of all kernels above which it is of no interest: its answer is then that it is slower
    deterministic  whether grad_weight is added in one order; None as the product does
    label      the point's name in the study; it is no part of the timed call
    """

    problem: LayerProblem
    product: str | Path
    changes: Mapping[str, Any] = NOTHING
    dtype: str = "float16"
    cube_math_type: int = 0
    gradients: tuple[bool, bool, bool] = (True, True, False)
    l2_start: str = "warm"
    tiling: str | Mapping[str, Plan] = "product"
    before: tuple[Before, ...] = ()
    stop_above: int | None = None
    deterministic: bool | None = None
    label: str = field(default="", compare=False)

    @property
    def profile(self) -> Profile:
        """The product with its changes.

        Raises   ConfigError where the changes are no figures of it, or contradict each other
        """
        base = load_profile(self.product)
        # To read a product with changes takes as long as a small estimate, and many points share one. By the
        # text of the changes: 1, 1.0 and True are equal, and mean other profiles.
        said = repr(sorted(self.changes.items()))
        return _changed(_ChangedProduct(base, self.product, said, self.changes)) if self.changes else base

    @property
    def plan_text(self) -> str:
        """The plans on one line, or how they are chosen."""
        if isinstance(self.tiling, str):
            return self.tiling
        return "; ".join(f"{name}: {plan_text(plan_values(p))}" for name, p in sorted(self.tiling.items()))

    @property
    def key(self) -> str:
        """A digest of all that the answer depends on: problem, resolved product, plans, start and code."""
        try:
            profile = self.profile
            machine = (profile.product, profile.variant, profile.content.hex())
        except ConfigError as error:
            # The answer will be this very reason.
            machine = (str(self.product), "refused", str(error))
        call = (self.dtype, self.cube_math_type, self.gradients, self.l2_start, self.before, self.plan_text)
        asked = (code_version(), self.problem, machine, call, self.stop_above, self.deterministic)
        return sha256(repr(asked).encode()).hexdigest()

    @property
    def values(self) -> dict[str, Any]:
        """The point as plain values, for a row of a table."""
        made = zip(("grad_input", "grad_weight", "grad_bias"), self.gradients, strict=True)
        return {
            "label": self.label,
            "product": str(self.product),
            "changes": changes_text(self.changes),
            "input": _sizes(self.problem.input),
            "weight": _sizes(self.problem.weight),
            "dtype": self.dtype,
            "cube_math_type": self.cube_math_type,
            "gradients": " ".join(name for name, wanted in made if wanted),
            "l2_start": self.l2_start,
            "tiling": self.plan_text,
        }


def changes_text(changes: Mapping[str, Any]) -> str:
    """Return replaced figures on one line; "" where there are none."""
    return " ".join(f"{path}={value}" for path, value in changes.items())


@cache
def code_version() -> str:
    """Return a digest of the package's own source and of the interface's rules.

    Any change of either makes all answers anew: which lines a call goes through is not known before it has.
    """
    spec = find_spec("ascendsim")
    assert spec is not None
    assert spec.submodule_search_locations
    top = Path(next(iter(spec.submodule_search_locations)))
    digest = sha256(rules_digest())
    for path in sorted(top.rglob("*.py")):
        digest.update(str(path.relative_to(top)).encode() + b"\0" + sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _sizes(sizes: tuple[int, ...]) -> str:
    return "x".join(map(str, sizes))


@dataclass(frozen=True, slots=True)
class _ChangedProduct:
    """A product with changes, equal to another as long as its files hold the same text."""

    base: Profile
    product: str | Path
    said: str
    changes: Mapping[str, Any] = field(compare=False)


@lru_cache(maxsize=KEPT_PROFILES)
def _changed(asked: _ChangedProduct) -> Profile:
    return load_profile(asked.product, overrides=dict(asked.changes))
