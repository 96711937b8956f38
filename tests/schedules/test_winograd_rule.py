"""When does the operator of 910_95 compute grad_weight by Winograd, and by which plan?"""

import json
from dataclasses import replace

import pytest

from ascendsim import ConvProblem, estimate, load_profile
from ascendsim.aclnn.interface import asked_by_operator
from ascendsim.errors import ConfigError
from ascendsim.ops.lowering.known import lower
from ascendsim.ops.tiling.vendor.arch35.wgrad import takes_winograd
from ascendsim.ops.tiling.vendor.layer import Layer, Layouts
from ascendsim.ops.tiling.vendor.operators import plan_of_layer
from ascendsim.workloads.loader import load_workload, workload_names
from tests.helpers.conv_cases import call_of
from tests.helpers.requests import chosen_plan, operators_plan
from tests.helpers.vendor_tilings import layer_of, machine_of, records

PR = load_profile("950PR_9589")
WIDE = ConvProblem((1, 256, 16, 16), (256, 256, 3, 3), 1, 1)


def taken(problem, dtype="float32", *, hf32=False, **options):
    return takes_winograd(Layer.of(problem, "hf32" if hf32 else dtype, **options))


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (WIDE, True),  # 256 / 64 = 4 blocks of channels on both sides, 4 * 4 = 16 together: just enough
        (ConvProblem((1, 255, 16, 16), (256, 255, 3, 3), 1, 1), False),  # 3 * 4 blocks
        (ConvProblem((1, 1024, 16, 16), (64, 1024, 3, 3), 1, 1), True),  # 1 * 16
        (replace(WIDE, stride=2), False),
        (replace(WIDE, dilation=2, padding=2), False),
        (ConvProblem((1, 256, 16, 16), (256, 256, 1, 1)), False),
        (replace(WIDE, padding=(1, 2, 1, 1)), False),
        (replace(WIDE, padding=(2, 3)), True),  # unequal along two axes, equal on both ends of each
        (replace(WIDE, input=(1, 256, 80, 80), padding=8), True),
        (replace(WIDE, input=(1, 256, 80, 80), padding=9), False),
        (ConvProblem((1, 512, 16, 16), (512, 256, 3, 3), 1, 1, groups=2), False),
        (ConvProblem((1, 256, 2, 16, 16), (256, 256, 1, 3, 3), 1, (0, 1, 1)), False),
        (ConvProblem((1, 256, 1, 16, 16), (256, 256, 1, 3, 3), 1, (0, 1, 1)), True),
        (ConvProblem((1, 256, 1, 16, 16), (256, 256, 3, 3, 3), 1, 1), False),
        (replace(WIDE, transposed=True), True),
        (replace(WIDE, input=(1, 256, 7, 7)), True),  # of 4 x 4 tiles 3 x 3 are not all padding
        (replace(WIDE, input=(1, 256, 6, 7)), True),  # 2 x 3 of 3 x 4
        (replace(WIDE, input=(1, 256, 6, 6)), False),  # 2 x 2 of 3 x 3
        (replace(WIDE, input=(1, 256, 3, 31)), False),  # 1 x 15 of 2 x 16
    ],
    ids=str,
)
def test_each_condition_on_the_shapes_counts(problem, expected):
    assert taken(problem) == expected


def test_so_does_each_condition_on_formats_and_layouts():
    assert not taken(WIDE, hf32=True)
    assert not taken(WIDE, "float16")
    assert not taken(WIDE, layouts=Layouts("NDHWC", "NCDHW", "NDHWC"))


def test_a_large_batch_of_tiles_is_left_to_the_direct_sum():
    # 512,000 tiles of 2 x 2 are the most: 8000 images of 8 x 8 tiles, the last ones half full.
    at_most = replace(WIDE, input=(8000, 256, 15, 15))
    assert taken(at_most)
    assert not taken(replace(at_most, input=(8001, 256, 15, 15)))


def test_blocks_are_dealt_in_turn_and_those_of_the_last_round_are_cut():
    # 4 x 4 blocks on 32 cores, so 2 parts of each; 8 x 8 tiles are 2 clusters, one for each part.
    found = operators_plan(WIDE, "grad_weight", "float32", PR)
    assert (found.strategy, found.base_m, found.base_n, found.base_k) == ("winograd", 64, 64, 32)
    assert (found.tasks, found.used_cores, found.mapping) == (16, 32, "interleaved")
    assert (found.stream_ways, found.stream_axis) == (2, "clusters")
    # 4 x 6 blocks are more than half of the cores, 8 x 8 fill two rounds, 4 x 10 leave 8: 4 parts each.
    for channels, ways in ((384, 1), (512, 1), (640, 4)):
        wider = ConvProblem((32, channels, 16, 16), (256 if channels != 512 else 512, channels, 3, 3), 1, 1)
        assert operators_plan(wider, "grad_weight", "float32", PR).stream_ways == ways


def test_no_more_parts_than_clusters():
    # 7 x 7 pixels are one cluster an image; 16 blocks would have two parts, and there is one image.
    small = replace(WIDE, input=(1, 256, 7, 7))
    assert operators_plan(small, "grad_weight", "float32", PR).stream_ways == 1
    assert operators_plan(replace(small, input=(2, 256, 7, 7)), "grad_weight", "float32", PR).stream_ways == 2


@pytest.mark.parametrize(("buffer", "size"), [("L0C", 131072), ("L1", 131072)])
def test_a_machine_that_does_not_hold_its_blocks_takes_the_direct_sum(buffer, size):
    small = load_profile("950PR_9589", {f"buffers.{buffer}.capacity_bytes": size})
    assert operators_plan(WIDE, "grad_weight", "float32", small).strategy == "stream_k"


def test_a_machine_with_half_of_l1_has_one_copy_of_each_operand():
    # 16 points x 32 tiles x 64 channels of 4 bytes are 128 KiB.
    half = load_profile("950PR_9589", {"buffers.L1.capacity_bytes": 262144})
    found = operators_plan(WIDE, "grad_weight", "float32", half)
    assert (found.al1_buffers, found.bl1_buffers) == (1, 1)
    options = {"product": half, "output_mask": (False, True, False)}
    assert estimate(WIDE, "float32", **options).cycles > 0


def test_a_call_takes_it_by_default_and_says_so():
    only = (False, True, False)
    r = estimate(WIDE, "float32", product="950PR_9589", output_mask=only)
    plan = r.plans["grad_weight"]
    assert (plan.schedule, plan.chosen_by, plan.instead) == ("wgrad_winograd", "product", "")
    [note] = [kernel.kernel.note for kernel in r.kernels if kernel.name == "grad_weight"]
    assert note.startswith("grad_weight is made by Winograd, F(2x2, 3x3)")
    assert not any("not modelled" in said for said in (*r.notes, note))
    # 16 products a tile of 2 x 2 pixels, of all pairs of channels; the direct sum has 36.
    [macs] = [kernel.macs for kernel in r.kernels if kernel.name == "grad_weight"]
    assert macs * 36 == WIDE.macs * 16
    hf32 = estimate(WIDE, "float32", 3, product="950PR_9589", output_mask=only)
    assert hf32.plans["grad_weight"].schedule == "wgrad_stream"


def test_the_workspace_that_the_operator_asks_for_holds_what_its_kernel_keeps():
    call = call_of(WIDE, "float32", profile=PR)
    [kernel] = lower(call, (False, True, False)).kernels
    asked = asked_by_operator(call, "grad_weight", kernel.op_type)
    # Each of two clusters has 16 points x 32 tiles x 256 channels. Both sides are re-laid. A place of
    # 64 x 64 x 9 for each of 32 cores.
    points, sides, parts = 2 * 16 * 32 * 256 * 4, 2 * 256 * 256 * 4, 32 * 64 * 64 * 9 * 4
    assert asked == points + sides + parts
    own = {name: tensor.size_bytes for name, tensor in kernel.tensors.items() if tensor.role == "workspace"}
    # The places of the parts are as large as all of grad_weight here, where 16 blocks have 2 parts each.
    assert sorted(own.values()) == sorted([points, sides // 2, sides // 2, 2 * 256 * 256 * 9 * 4])
    assert sum(own.values()) == asked


def test_the_recorded_plan_is_one_by_winograd(data_dir):
    everything = json.loads((data_dir / "tilings.json").read_text())["records"]
    found = [record for record in everything if (record.get("tiling_key_fields") or {}).get("winograd")]
    assert [record["case"] for record in found] == ["conv3d_bp_filter_wino_fp32_3x3"]
    layer, machine = layer_of(found[0]), machine_of(found[0])
    assert takes_winograd(layer)
    plan = plan_of_layer(layer, machine, "grad_weight", "float32", "3510")
    # Its base sizes do not fit in L0, as its own validation says; cores and copies in L0 are what is left.
    expected = found[0]["expected"]
    assert found[0]["validation"] == ["L0A", "L0B"]
    assert (plan.used_cores, plan.cl0_buffers) == (expected["usedCoreNum"], expected["cl0Pbuffer"])
    assert (plan.al0_buffers, plan.bl0_buffers) == (expected["al0Pbuffer"], expected["bl0Pbuffer"])
    # The record has 8 of 16 rows a part, which is one of two clusters.
    assert plan.stream_ways == expected["ho"] // expected["singleCoreHo"]
    # No other record of this operator is one, and none of them is taken for one.
    others = records(data_dir, "dW", "arch35")
    assert len(others) > 10
    assert not any(takes_winograd(layer_of(record)) for record in others)


@pytest.mark.parametrize(
    ("given", "schedule", "sizes"),
    [
        ({"base_m": 32}, "wgrad_winograd", (32, 64, 32)),
        ({"al1_buffers": 1}, "wgrad_winograd", (64, 64, 32)),
        # 128 channels at 16 points leave room for 32 in L0C: 128 * 32 * 16 * 4 bytes are 256 KiB.
        ({"base_m": 128}, "wgrad_winograd", (128, 32, 32)),
        # A Mmad of 16 tiles is none that Winograd has: the operator's plan of the direct sum takes its place.
        ({"base_k": 16}, "wgrad_stream", (256, 144, 16)),
        ({"cl0_buffers": 2}, "wgrad_stream", (128, 144, 32)),
    ],
    ids=str,
)
def test_a_part_of_a_plan_is_filled_in_by_the_nest_that_knows_it(given, schedule, sizes):
    options = {"product": "950PR_9589", "output_mask": (False, True, False)}
    r = estimate(WIDE, "float32", tiling={"grad_weight": given}, **options)
    found = r.plans["grad_weight"]
    assert found.schedule == schedule
    assert (found.tiling.base_m, found.tiling.base_n, found.tiling.base_k) == sizes


@pytest.mark.parametrize("name", ["wgrad", "wgrad_stream"])
def test_another_nest_takes_no_sizes_of_winograd(name):
    options = {"product": "950PR_9589", "output_mask": (False, True, False)}
    found = estimate(WIDE, "float32", schedule=name, **options).plans["grad_weight"]
    direct = operators_plan(WIDE, "grad_weight", "float32", PR, by_winograd=False)
    assert direct.strategy == "stream_k"
    assert found.schedule == name
    # Columns are (channel, tap) there, and no channels at 16 points.
    winograd = estimate(WIDE, "float32", **options).plans["grad_weight"].tiling
    assert (found.tiling.base_m, found.tiling.base_n) != (winograd.base_m, winograd.base_n)


def test_winograd_takes_no_sizes_of_another_nest():
    # 64 channels are one block: the operator takes the direct sum, with other base sizes.
    layer = ConvProblem((8, 64, 28, 28), (64, 64, 3, 3), 1, 1)
    options = {"product": "950PR_9589", "output_mask": (False, True, False)}
    assert estimate(layer, "float32", **options).plans["grad_weight"].schedule == "wgrad_stream"
    found = estimate(layer, "float32", schedule="wgrad_winograd", **options).plans["grad_weight"]
    assert (found.tiling.base_k, found.tiling.step_ka, found.tiling.cl0_buffers) == (32, 1, 1)
    given = {"grad_weight": {"base_k": 16}}
    with pytest.raises(ConfigError, match="base_k is 16; by Winograd it is 32"):
        estimate(layer, "float32", schedule="wgrad_winograd", tiling=given, **options)


def test_every_float32_grad_weight_of_the_networks_runs_under_the_operators_plan():
    plans = [
        chosen_plan(ConvProblem(**layer.problem_options(batch)), "grad_weight", "float32", PR)
        for name in workload_names()
        for layer in load_workload(name).layers
        for batch in (1, 32)
    ]
    assert not [plan.instead for plan in plans if plan.instead]
    schedules = [plan.schedule for plan in plans]
    # The figures of docs/plans.md.
    assert (schedules.count("wgrad_winograd"), len(schedules)) == (16, 228)
