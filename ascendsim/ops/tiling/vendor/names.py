"""The vendor's names of a plan's fields, as its tuning files (runtime_kb) and tiling data have them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields as fields_of
from typing import Any

from ascendsim.errors import ConfigError, UnsupportedError, did_you_mean, shown
from ascendsim.ops.plan import Plan, Tiling
from ascendsim.ops.tiling.request import BESIDE, PartialPlan, plan_given

_SIZES = {
    "baseM": "base_m",
    "baseN": "base_n",
    "baseK": "base_k",
    "stepKa": "step_ka",
    "stepKb": "step_kb",
    **{f"{tile}Pbuffer": f"{tile}_buffers" for tile in ("al0", "bl0", "cl0", "al1", "bl1")},
}
# By gradient: what a field of theirs is called here.
MEANS: Mapping[str, Mapping[str, str]] = {
    "grad_input": {
        **_SIZES,
        "singleCoreM": "single_core_m",
        "singleCoreCin": "single_core_n",
        "coreNum": "used_cores",
        "enlarge": "group_merge",
    },
    "grad_weight": {
        **_SIZES,
        "singleCoreM": "single_core_m",
        "singleCoreN": "single_core_n",
        "singleCoreK": "single_core_k",
        "usedCoreNum": "used_cores",
    },
}
# What is not read from their names: the values that mean "not so", what any other one asks for, and why not.
_NO_NEST = "no loop nest here does that"
REFUSED: Mapping[str, tuple[tuple[Any, ...], str, str]] = {
    "tilingHkWkMode": (
        (0,),
        "taps looped over outside of a product",
        "what its numbers mean is not known; say schedule dgrad_passes and tap_loop in ours",
    ),
    "isSplitKernelHW": (
        (False, 0),
        "taps looped over outside of a product",
        "no entry that does so is known; say schedule wgrad_taps in ours",
    ),
    "enableSplitK": (
        (False, 0),
        "segments of the reduction",
        "that is not read yet from the vendor's names; say k_split and single_core_k in ours",
    ),
    "groupEnlarge": ((False, 0), "merged groups", "it does not say how many; say group_merge in ours"),
}
# The axes along which the stride splits the kernel, by the vendor's number. 1 is that of the tuning files:
# they bring its phases together in a workspace, which only a split along both axes does. None has another.
SPLIT_MODES: Mapping[int, str] = {0: "", 1: "hw"}
# Four channels a tap.
C04 = "enableC04Flag"
# Weights that vector cores turn in a phase before; the flag beside it repeats this.
TURNED, TURNED_FLAG = "enableVecTrans", "enableVecTransFlag"
# The number, and the truth value that goes with it.
SPLIT, SPLIT_FLAG = "kernelSplitMode", "enableSplitKernelFlag"
# Fields that say something of a stream-K plan; with any of them grad_weight has that nest.
STREAMS = ("streamkType", "streamKType")
# What describes the layer, follows from the rest, or is how their kernel does what nests here do their way.
_OTHERS = """
    al1Bound backpropPadDown backpropPadLeft backpropPadRight backpropPadTail backpropPadUp baseBatch baseD
    baseGroup batch batchDim bl1Bound c0 c0Bits c0BitsA c0BitsB channelSize cin cin1 cin1G cinG
    coreBindDirection coreBindOrder coreStreamK cout cout1 cout1G coutG dDim di dilationD dilationH dilationW
    dk dkDim dkHkWk dout enRelu enableFullLoad enableFullLoadTiling
    fixedShiftVal group groupDim hf32Flag hi hk hkWk ho hoExpand initOutputFlag isBiasFullLoad iterateOrder k0
    kDim kSCoutFullLoad kSUseWorkSpace kSegment kSegmentTail kValueSegment khDilation kwDilation
    loadB1Condition loadB2Condition m0 mDim n0 nDim offsetX oriGroup padBack padDown padFront padLeft padRight
    padUp quantMode realGroup reserved singleCoreBatch singleCoreBatchDout singleCoreCout singleCoreCout1
    singleCoreCin1 singleCoreDin singleCoreDk singleCoreGroup singleCoreHo singleIterateDk splitWo stepBatch
    stepGroup stepM stepN strideD strideH strideW totalL1Size useUbAccumForSplitK
    usrSpaceSizeForKernelSplit wi wk wo woExpand
    singleCoreCin
"""
FOLLOWS = frozenset(_OTHERS.split())


def says_vendor_names(values: Mapping[str, Any]) -> bool:
    """Return whether a table of fields is in the vendor's names."""
    return any(name in means for means in MEANS.values() for name in values)


def from_vendor(gradient: str, values: Mapping[str, Any], where: str = "tiling") -> Plan | PartialPlan:
    """Return the plan of a table in the vendor's names: an entry, or with `schedule` what `to_vendor` wrote.

    Raises   as `entry_plan`
    """
    return _written(gradient, values, where) if "schedule" in values else entry_plan(gradient, values, where)


def entry_plan(gradient: str, values: Mapping[str, Any], where: str) -> PartialPlan:
    """Return the part of a plan that an entry in the vendor's names fixes; the product's rules give the rest.

    The nest is the one that deals shares, as the operators of these entries do, the one that splits the
    kernel by the stride, or the one with four channels a tap. A share of 0 says nothing.

    Raises   ConfigError for a name that is not the vendor's, with the nearest one; UnsupportedError for a
             mechanism that no nest here has, or that is not read from these names
    """
    _require_known(where, gradient)
    means = MEANS[gradient]
    known = [*means, *REFUSED, SPLIT, SPLIT_FLAG, C04, TURNED, TURNED_FLAG, *STREAMS, *FOLLOWS]
    for name, value in values.items():
        if name not in known:
            hint = did_you_mean(str(name), known, f"it takes {', '.join(means)}")
            raise ConfigError(f"{where} has the field {shown(name)} beside the vendor's names; {hint}")
        usual, asks, why = REFUSED.get(name, ((value,), "", ""))
        if value not in usual:
            raise UnsupportedError(f"{where}: {name} is {shown(value)}, which asks for {asks}; {why}")
    fields = {ours: values[theirs] for theirs, ours in means.items() if theirs in values}
    fields = {name: value for name, value in fields.items() if value or not name.startswith("single_core")}
    if gradient == "grad_input":
        turned = _turned(values, where)
        if turned is not None and not values.get(C04):
            fields["transpose_first"] = turned
        split = _kernel_split(values, where)
        if split:
            return PartialPlan({**fields, "kernel_split": split}, "dgrad_split")
        if values.get(C04):
            return PartialPlan(fields, "dgrad_c04")
        # The rules of the product may cut the reduction where the entry says that it is whole.
        whole = {"k_split": 1, "single_core_k": 0} if "enableSplitK" in values else {}
        return PartialPlan({**fields, **whole}, "dgrad_shares")
    streams = any(name in values for name in STREAMS)
    if streams:
        # Of a whole reduction, which is what these tasks make, there is no share.
        fields.pop("single_core_k", None)
    if streams and not any(values.get(name) for name in STREAMS):
        # The rules of the product may cut a last round that the entry says is whole.
        fields |= {"k_split": 1, "stream_axis": ""}
    return PartialPlan(fields, "wgrad_stream" if streams else "wgrad_shares")


def _written(gradient: str, values: Mapping[str, Any], where: str) -> Plan | PartialPlan:
    """Return the plan of a table that names its nest: their names for what they mean, ours for the rest."""
    _require_known(where, gradient)
    means, ours = MEANS[gradient], _without_name(gradient)
    for name in values:
        if name not in (*means, TURNED, TURNED_FLAG, *ours):
            raise ConfigError(
                f"{where} has the field {shown(name)} beside schedule; a plan that names its nest says in "
                f"the vendor's names {', '.join((*means, TURNED))}, and in ours the rest; leave schedule out "
                "of an entry of theirs"
            )
    turned = _turned(values, where)
    fields = {means.get(name, name): value for name, value in values.items() if name in (*means, *ours)}
    return plan_given(fields if turned is None else {**fields, "transpose_first": turned}, where)


def _without_name(gradient: str) -> list[str]:
    """Return the fields of a plan without a vendor's name: those that the package adds."""
    named = {*MEANS[gradient].values(), "transpose_first"}
    return [name for name in (*BESIDE, *(field.name for field in fields_of(Tiling))) if name not in named]


def _turned(values: Mapping[str, Any], where: str) -> bool | None:
    """Return whether an entry of grad_input has its weights turned first; None where it does not say."""
    said = {name: values[name] for name in (TURNED, TURNED_FLAG) if name in values}
    for name, value in said.items():
        if value not in (0, 1):
            raise ConfigError(f"{where}: {name} is {shown(value)}; it must be 0 or 1")
    if len(set(said.values())) > 1:
        numbers = " but ".join(f"{name} {int(value)}" for name, value in said.items())
        raise ConfigError(
            f"{where}: says {numbers}; they say the same thing: leave one out, or make them agree"
        )
    turned = bool(next(iter(said.values()))) if said else None
    if turned and values.get(C04):
        raise UnsupportedError(f"{where}: {C04} and {TURNED} are both on; {_NO_NEST}")
    return turned


def _kernel_split(values: Mapping[str, Any], where: str) -> str:
    """Return the axes along which an entry of grad_input splits the kernel; "" for none."""
    mode = values.get(SPLIT, 0)
    axes = SPLIT_MODES.get(mode)
    # The flag alone does not say along which axes.
    if axes is None or (values.get(SPLIT_FLAG) and not axes):
        name = SPLIT_FLAG if axes == "" else SPLIT
        raise UnsupportedError(
            f"{where}: {name} is {shown(values[name])}, which asks for a kernel split by the stride; of "
            f"those only {SPLIT} 1 is read from the vendor's names; say schedule dgrad_split and "
            "kernel_split in ours"
        )
    return axes


def to_vendor(gradient: str, plan: Plan) -> dict[str, Any]:
    """Return a whole plan in the vendor's names; what these cannot say stands in ours (`unnamed`).

    `from_vendor` makes the same plan of it again.

    Raises   UnsupportedError for a product that the vendor's entries are not of
    """
    _require_known(f"plan of {gradient}", gradient)
    theirs = {ours: name for name, ours in MEANS[gradient].items()}
    named = {theirs.get(name, name): value for name, value in plan.to_dict().items()}
    return named | ({TURNED: 1, TURNED_FLAG: True} if named.pop("transpose_first", False) else {})


def unnamed(gradient: str, plan: Plan) -> list[str]:
    """Return the set fields of a plan that the vendor's entries cannot name."""
    said = plan.to_dict()
    return [name for name in _without_name(gradient) if name in said]


def _require_known(where: str, gradient: str) -> None:
    """Refuse what the vendor's entries are not of."""
    if gradient not in MEANS:
        raise UnsupportedError(f"{where}: the vendor's names are known for {' and '.join(MEANS)} alone")
