"""Do vector cores of 910_95 turn the weights of grad_input first where the operator has them do so?

When they do is a rule of plans (`tests/plans/test_thresholds_dgrad.py`); what they then run is held here.
"""

from dataclasses import replace

import numpy as np
import pytest

from ascendsim import ConvProblem, Tiling, check_schedule, estimate, load_profile
from ascendsim.errors import ConfigError, UnsupportedError
from ascendsim.ops.plan import Plan
from ascendsim.ops.tiling.vendor.names import from_vendor, to_vendor, unnamed
from tests.helpers.aclnn_calls import arguments_of, first_phase
from tests.helpers.conv_cases import assert_same_bits, call_of, run, tensors_of
from tests.helpers.rules_calls import conv
from tests.helpers.toy_profiles import toy_split

ONLY = {"product": "950PR_9589", "output_mask": (True, False, False)}
SMALL = {
    "shares": ConvProblem((2, 40, 7, 6), (20, 40, 3, 3), padding=1),
    "depth": ConvProblem((1, 24, 3, 6, 5), (20, 24, 2, 3, 3), (1, 2, 1), (0, 1, 1)),
    "split": ConvProblem((2, 40, 8, 6), (20, 40, 3, 3), 2, 1),
}
TURNED = Tiling(
    *(16, 16, 16, 9, 9),
    used_cores=4,
    single_core_m=16,
    mapping="interleaved",
    task_order="batch group d m n",
    transpose_first=True,
)


def nest_of(name):
    return (
        ("dgrad_split", replace(TURNED, kernel_split="hw")) if name == "split" else ("dgrad_shares", TURNED)
    )


# --- the kernel


@pytest.mark.parametrize("name", SMALL)
def test_the_bits_are_those_of_the_ordered_sum(name):
    nest, tiling = nest_of(name)
    found = check_schedule(nest, SMALL[name], product="950PR_9589", tiling={"grad_input": tiling})
    assert found.orders[0] == "program"


@pytest.mark.parametrize("name", SMALL)
def test_not_a_number_and_infinite_stay_what_they_are(name):
    nest, tiling = nest_of(name)
    profile, made = toy_split(**{"cores.cube": 4, "cores.vector": 8, "buffers.L1.capacity_bytes": 65536}), {}
    tensors = tensors_of(SMALL[name], data="special", seed=4)
    for turned in (True, False):
        call = call_of(SMALL[name], profile=profile)
        plan = Plan(nest, replace(tiling, transpose_first=turned))
        call = replace(call, plans=call.plans | {"grad_input": plan})
        made[turned] = run(call, tensors, mask=ONLY["output_mask"])[0]["grad_input"]
    assert np.isnan(made[True]).any()
    assert_same_bits(made[True], made[False], "grad_input")


def test_a_phase_of_vector_cores_comes_first_and_copies_then_go_four_times_as_fast():
    on, off = (
        estimate(
            SMALL["shares"],
            tiling={"grad_input": Plan("dgrad_shares", replace(TURNED, transpose_first=on))},
            **ONLY,
        ).kernels[0]
        for on in (True, False)
    )
    assert [phase.name for phase in on.kernel.phases] == [
        "turned weights",
        *(p.name for p in off.kernel.phases),
    ]
    kinds = {type(step).__name__ for work in on.kernel.phases[0].work for step in work.build().instructions}
    assert kinds >= {"CopyGmToUb", "TurnTile", "CopyUbToGm"}
    # Every weight is turned once: 20 channels (32 kept) x 9 taps x 40 channels (48 kept) of 2 bytes.
    written = [
        step.bytes
        for work in on.kernel.phases[0].work
        for step in work.build().instructions
        if type(step).__name__ == "CopyUbToGm"
    ]
    assert sum(written) == 32 * 9 * 48 * 2


def weights_into_l1(kernel, profile):
    """Return the bytes a cycle of the first copy of weights into L1."""
    phase = next(phase for phase in kernel.phases if phase.name == "compute")
    for step in phase.work[0].build().instructions:
        if type(step).__name__ == "CopyGmToL1" and "weight" in step.src.tensor.name:
            return step.cost(profile).traffic.peak_bytes_per_cycle
    raise AssertionError("no copy of weights")


def test_copies_of_turned_weights_are_not_slowed():
    # 100 bytes a cycle into L1, and 25 where the copy turns (`transposing_bytes_per_cycle`).
    profile, rates = load_profile("950PR_9589"), {}
    for on in (True, False):
        plan = Plan("dgrad_shares", replace(TURNED, transpose_first=on))
        kernel = estimate(SMALL["shares"], tiling={"grad_input": plan}, **ONLY).kernels[0].kernel
        rates[on] = weights_into_l1(kernel, profile)
    assert rates[True] == 4 * rates[False]


def test_neither_are_those_of_weights_that_vector_cores_have_merged():
    depthwise = ConvProblem((1, 32, 9, 9), (32, 1, 3, 3), padding=1, groups=32)
    profile, rates = load_profile("950PR_9589"), {}
    for merge in (16, 1):
        tiling = {"grad_input": {"group_merge": merge}}
        result = estimate(depthwise, tiling=tiling, **ONLY)
        assert result.plans["grad_input"].tiling.group_merge == merge
        rates[merge] = weights_into_l1(result.kernels[0].kernel, profile)
    assert rates[16] == 4 * rates[1]


def test_one_engine_says_what_the_other_does():
    for name in ("shares", "split"):
        nest, tiling = nest_of(name)
        told = [
            estimate(SMALL[name], tiling={"grad_input": Plan(nest, tiling)}, engine=engine, **ONLY).cycles
            for engine in ("compiled", "simpy")
        ]
        assert told[0] == told[1]


def test_a_layer_that_the_rule_names_gets_it_by_default():
    layer = ConvProblem((2, 288, 40, 40), (288, 288, 3, 3), 2, 1)
    result = estimate(layer, **ONLY)
    assert result.plans["grad_input"].tiling.transpose_first
    # Weights that lie turned are read faster than they are turned, here.
    plan = result.plans["grad_input"]
    without = replace(plan, tiling=replace(plan.tiling, transpose_first=False))
    assert result.cycles < estimate(layer, tiling={"grad_input": without}, **ONLY).cycles


def test_the_operator_asks_for_room_for_all_weights():
    # 287 x 9 taps x 288 channels of 2 bytes. Besides the phases of a tile are interleaved there: on 32 cores
    # 4 of them, 16 rows of 32 pixels (512) and 96 channels.
    call = conv((2, 287, 64, 64), (287, 287, 3, 3), 2, groups=1, dtype="float16", mask=ONLY["output_mask"])
    asked = first_phase(call, arguments_of(call, arrays=False), product="910_95")[0] - 16 * 2**20
    assert asked == 287 * 9 * 288 * 2 + 32 * 4 * 512 * 96 * 2


# --- plans


def test_a_product_that_runs_transdata_refuses_it():
    plan = Plan("dgrad_shares", TURNED)
    with pytest.raises(ConfigError, match="TransData"):
        estimate(
            SMALL["shares"], product="910B2", output_mask=(True, False, False), tiling={"grad_input": plan}
        )


def test_the_vendors_name_is_read_and_written():
    entry = {"baseM": 16, "baseN": 16, "baseK": 16}
    assert from_vendor("grad_input", {**entry, "enableVecTrans": 1}).fields["transpose_first"] is True
    assert from_vendor("grad_input", {**entry, "enableVecTrans": 0}).fields["transpose_first"] is False
    assert "transpose_first" not in from_vendor("grad_input", entry).fields
    plan = Plan("dgrad_shares", TURNED)
    assert to_vendor("grad_input", plan)["enableVecTrans"] == 1
    assert "transpose_first" not in unnamed("grad_input", plan)


def test_the_flag_beside_the_number_says_the_same():
    entry = {"baseM": 16, "baseN": 16, "baseK": 16}
    for flag in (True, False):
        alone = from_vendor("grad_input", {**entry, "enableVecTransFlag": flag})
        assert alone.fields["transpose_first"] is flag
        both = from_vendor("grad_input", {**entry, "enableVecTrans": int(flag), "enableVecTransFlag": flag})
        assert both == alone
    assert (
        "transpose_first"
        not in from_vendor("grad_input", {**entry, "enableVecTransFlag": False, "enableC04Flag": True}).fields
    )


@pytest.mark.parametrize(
    ("said", "error", "message"),
    [
        (
            {"enableVecTrans": 0, "enableVecTransFlag": True},
            ConfigError,
            "enableVecTrans 0 but enableVecTransFlag 1",
        ),
        ({"enableVecTrans": 2}, ConfigError, "enableVecTrans is 2; it must be 0 or 1"),
        ({"enableVecTransFlag": "no"}, ConfigError, "enableVecTransFlag is 'no'; it must be 0 or 1"),
        # Four channels a tap lie otherwise than the layout into which weights are turned.
        (
            {"enableVecTrans": 1, "enableC04Flag": True},
            UnsupportedError,
            "enableC04Flag and enableVecTrans are both on",
        ),
    ],
)
def test_what_contradicts_itself_or_means_nothing_is_told(said, error, message):
    with pytest.raises(error, match=message):
        from_vendor("grad_input", {"baseM": 16, "baseN": 16, "baseK": 16, **said})


def test_it_is_a_switch():
    with pytest.raises(ConfigError, match="transpose_first is 1; it must be True or False"):
        Tiling(16, 16, 16, transpose_first=1)
