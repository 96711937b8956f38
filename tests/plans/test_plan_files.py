"""Can plans be kept in a file, and does the file say what the call did, in our names and in the vendor's?"""

import json
import tomllib
from dataclasses import replace
from math import ceil

import pytest

from ascendsim import ConvProblem, Plan, Tiling, estimate, read_plans, write_plans
from ascendsim.errors import ConfigError, DataError, UnsupportedError
from ascendsim.ops.plan import plans_text
from ascendsim.ops.schedules.dgrad.nest import Dgrad
from ascendsim.ops.tiling.plan_files import PlanFile
from ascendsim.ops.tiling.request import PartialPlan
from ascendsim.ops.tiling.vendor.names import FOLLOWS, MEANS, from_vendor, to_vendor, unnamed
from tests.helpers.outside_records import GRADIENTS, problem_of, profile_of, records
from tests.helpers.slow_tilings import plans_of

LAYER = ConvProblem((4, 64, 14, 14), (64, 64, 3, 3), 1, 1)
BOTH = (True, True, False)
WHOLE = Plan("dgrad", Tiling(128, 64, 32, 2, 4, bl1_buffers=1, used_cores=3))
SHARES = Plan("wgrad_stream", Tiling(64, 32, 32, k_split=2, task_order="group d m n", stream_axis="height"))


def written(tmp_path, text, name="plans.toml"):
    file = tmp_path / name
    file.write_text(text)
    return file


# --- a plan as plain values


@pytest.mark.parametrize("plan", [WHOLE, SHARES, Plan("matmul", Tiling(16, 16, 16, reuse_l1=False))])
def test_a_plan_comes_back_from_its_values(plan):
    values = plan.to_dict()
    assert Plan.from_dict(values) == plan
    assert Plan.from_dict(json.loads(json.dumps(values))) == plan


def test_values_name_what_every_nest_reads_and_what_else_is_set():
    base = {"base_m": 128, "base_n": 64, "base_k": 32, "step_ka": 2, "step_kb": 4, "used_cores": 3}
    copies = {"al1_buffers": 2, "bl1_buffers": 1, "al0_buffers": 2, "bl0_buffers": 2, "cl0_buffers": 1}
    assert WHOLE.to_dict() == {"schedule": "dgrad"} | base | copies
    others = {"k_split": 2, "task_order": "group d m n", "stream_axis": "height"}
    assert set(SHARES.to_dict().items()) >= set(others.items())


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"base_m": None}, "base_m is None; it must be a positive integer"),
        ({"base_mm": 3}, "plan has the field 'base_mm', which no tiling has; did you mean base_m?"),
        ({"schedule": 3}, "plan: it has schedule 3; a whole plan names its schedule and base_m, "),
    ],
)
def test_values_that_are_no_plan_are_refused(changed, message):
    with pytest.raises(ConfigError, match=message):
        Plan.from_dict(WHOLE.to_dict() | changed)


def test_a_whole_plan_says_what_it_lacks():
    values = WHOLE.to_dict()
    del values["schedule"], values["cl0_buffers"]
    with pytest.raises(
        ConfigError, match=r"it lacks schedule, cl0_buffers; a whole plan .* passed as tiling="
    ):
        Plan.from_dict(values)


def test_a_class_has_no_name_in_a_file():
    with pytest.raises(ConfigError, match=r"schedule is the class Dgrad, .* pass the class as schedule="):
        replace(WHOLE, schedule=Dgrad).to_dict()


# --- files


@pytest.mark.parametrize("name", ["plans.toml", "plans.json"])
def test_the_plans_of_a_call_come_back_from_a_file_and_give_the_same_cycles(tmp_path, name):
    usual = estimate(LAYER, output_mask=BOTH)
    file = tmp_path / name
    write_plans(file, usual.plans, about="of a test")
    assert read_plans(file).plans == usual.plans
    for tiling in (file, str(file), usual.plans):
        again = estimate(LAYER, output_mask=BOTH, tiling=tiling)
        assert again.kernels == usual.kernels
        assert not any("Tilings" in note for note in again.notes)  # the user gave them


def test_a_file_is_short_and_says_who_chose(tmp_path):
    file = tmp_path / "plans.toml"
    write_plans(file, {"grad_input": replace(WHOLE, chosen_by="search")}, about="Of a test.")
    lines = file.read_text().splitlines()
    assert lines[:4] == ["# Of a test.", "", "[grad_input]  # chosen by search", 'schedule = "dgrad"']
    assert "base_m = 128" in lines
    assert len(lines) == 3 + len(WHOLE.to_dict())


def test_texts_and_truth_values_are_written_so_that_toml_reads_them():
    values = {"schedule": 'a "b"\\', "reuse_l1": False, "base_m": 16}
    made = tomllib.loads(plans_text({"": {"matmul": values}, 'x"y.z': {"grad_input": values}}, "toml"))
    assert made == {"matmul": values, 'x"y.z': {"grad_input": values}}


def test_a_part_of_a_plan_in_a_file_is_filled_in(tmp_path):
    file = written(tmp_path, "[grad_input]\nbase_m = 64\n")
    assert read_plans(file).plans == {"grad_input": PartialPlan({"base_m": 64})}
    kernels = estimate(LAYER, output_mask=(True, False, False), tiling=file).kernels
    # Changes of layout, which the call runs besides, have no plan.
    [made] = [kernel for kernel in kernels if kernel.plan]
    assert made.plan.tiling.base_m == 64
    assert made.plan.chosen_by == "user, rest product"


def test_a_layer_of_a_network_has_plans_of_its_own(tmp_path):
    file = written(tmp_path, "[grad_input]\nblock_dim = 4\n[conv1.grad_input]\nbase_m = 64\n")
    made = read_plans(file)
    assert made.of_layer("conv1") == {"grad_input": PartialPlan({"base_m": 64})}
    assert made.of_layer("conv2") == made.of_layer(None) == {"grad_input": PartialPlan({}, block_dim=4)}
    assert PlanFile(file).of_layer("conv1") == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[grad_input]\nbase_mm = 3\n",
            "plans.toml: grad_input has the field 'base_mm', .* did you mean base_m?",
        ),
        ("[grad_input]\nbase_m = 0\n", "plans.toml: grad_input: base_m is 0; it must be a positive integer"),
        (
            "[grad_inputs]\nbase_m = 16\n",
            "the table grad_inputs is for nothing that a call makes; did you mean",
        ),
        (
            "[bias]\nbase_m = 16\n",
            r"for nothing that a call makes; it takes grad_input, .*\[LAYER.grad_input\]",
        ),
        ("[a.grad_wieght]\nbase_m = 16\n", "the table a.grad_wieght is for .*; did you mean grad_weight?"),
        ("[a.grad_weight]\nreuse_l1 = 2\n", "a.grad_weight: reuse_l1 is 2; it must be True or False"),
        (
            "base_m = 16\n",
            r"plans.toml: base_m is 16, outside of a table; write it under one, as \[grad_input\]",
        ),
        ("[grad_input\n", "plans.toml: is not valid TOML: "),
        ("[grad_input]\nschedule = 3\n", "plans.toml: grad_input: schedule is 3; it must be a name"),
    ],
)
def test_a_bad_file_says_where_what_and_why(tmp_path, text, message):
    with pytest.raises(ConfigError, match=message):
        read_plans(written(tmp_path, text))


def test_a_file_that_is_none_says_so(tmp_path):
    with pytest.raises(DataError, match=r"none.toml: cannot be read \(No such file"):
        read_plans(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match=r"plans.txt: a file of plans ends in .toml or .json, not in .txt"):
        read_plans(tmp_path / "plans.txt")
    with pytest.raises(ConfigError, match=r"plans.json: holds \[\]; it must hold a table for each gradient"):
        read_plans(written(tmp_path, "[]", "plans.json"))
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match=r"bytes.toml: is no text in UTF-8"):
        read_plans(tmp_path / "bytes.toml")
    with pytest.raises(DataError, match="cannot be written"):
        write_plans(tmp_path / "no" / "folder.toml", {"grad_input": WHOLE})


# --- the vendor's names


def test_the_vendors_names_mean_our_fields():
    # As in an entry of a grad_input: a block of 48 x 168 x 96 on 28 cores, each a share of 48 pixels.
    entry = {"baseM": 48, "baseK": 168, "baseN": 96, "stepKa": 3, "al1Pbuffer": 2, "cl0Pbuffer": 2}
    entry |= {"singleCoreM": 48, "singleCoreCin": 96, "coreNum": 28, "iterateOrder": 1, "kernelSplitMode": 0}
    made = from_vendor("grad_input", entry)
    sizes = {"base_m": 48, "base_n": 96, "base_k": 168, "step_ka": 3, "al1_buffers": 2, "cl0_buffers": 2}
    shares = {"single_core_m": 48, "single_core_n": 96, "used_cores": 28}
    assert made == PartialPlan(sizes | shares, "dgrad_shares")


# As in an entry of the tuning files: 5 x 5 taps with a stride of 2, whose phases have 16 x 16 pixels each.
SPLIT_LAYER = ConvProblem((64, 128, 32, 32), (256, 128, 5, 5), 2, [1, 2, 1, 2])
SPLIT_ENTRY = {"baseM": 256, "baseN": 128, "baseK": 8, "stepKa": 45, "stepKb": 45, "cl0Pbuffer": 2}
SPLIT_ENTRY |= {"singleCoreM": 256, "singleCoreCin": 128, "coreNum": 32}
SPLIT_ENTRY |= {"kernelSplitMode": 1, "enableSplitKernelFlag": True}


def test_a_kernel_split_by_the_stride_has_its_nest_and_multiplies_no_zeros(tmp_path):
    part = from_vendor("grad_input", SPLIT_ENTRY)
    assert (part.schedule, part.fields["kernel_split"]) == ("dgrad_split", "hw")
    file = written(tmp_path, json.dumps({"grad_input": SPLIT_ENTRY}), "entry.json")
    only = {"output_mask": (True, False, False), "product": "950PR_9589", "dtype": "float32"}
    split = estimate(SPLIT_LAYER, tiling=file, **only).kernels[-1]
    # The product's own plan here cuts the sum over 25 taps into segments; that of a split kernel is whole.
    assert (split.plan.tiling.k_split, split.plan.chosen_by) == (1, "user, rest product")
    # A task makes 256 pixels of each phase: one task an image, two for each core. Each pixel of grad_output
    # meets its 25 taps once; zeros between the pixels make it four times as many.
    whole = estimate(SPLIT_LAYER, tiling="search", **only).kernels[-1]
    assert split.plan.schedule == "dgrad_split"
    turned, tiles = split.kernel.phases
    assert (turned.name, len(tiles.work)) == ("turned weights", 32)
    assert split.cycles < whole.cycles / 3


def test_a_stream_of_grad_weight_has_its_nest_and_whole_reductions():
    entry = {"baseM": 64, "singleCoreK": 36, "usedCoreNum": 28}
    assert from_vendor("grad_weight", entry | {"streamkType": 1}) == PartialPlan(
        {"base_m": 64, "used_cores": 28}, "wgrad_stream"
    )
    # An entry that says of no last round that it is cut has whole ones.
    assert from_vendor("grad_weight", entry | {"streamkType": 0}) == PartialPlan(
        {"base_m": 64, "used_cores": 28, "k_split": 1, "stream_axis": ""}, "wgrad_stream"
    )
    assert from_vendor("grad_weight", entry).schedule == "wgrad_shares"
    assert from_vendor("grad_weight", entry).fields["single_core_k"] == 36


def test_what_the_vendor_has_no_name_for_stands_in_ours():
    plan = Plan("dgrad_shares", Tiling(48, 96, 168, 3, 3, single_core_m=96, used_cores=28, task_order="m n"))
    values = to_vendor("grad_input", plan)
    assert (values["baseK"], values["singleCoreM"], values["task_order"]) == (168, 96, "m n")
    assert unnamed("grad_input", plan) == ["schedule", "task_order"]
    for means in MEANS.values():
        assert set(means.values()) <= set(Tiling.__dataclass_fields__)
        assert not set(means) - {"singleCoreCin"} & FOLLOWS


@pytest.mark.parametrize(
    ("entry", "error", "message"),
    [
        (
            # No entry that we know has a 2, so that its axes are not known.
            {"baseM": 16, "kernelSplitMode": 2},
            UnsupportedError,
            "kernelSplitMode is 2, which asks for a kernel split .* only kernelSplitMode 1 is read",
        ),
        (
            # A split whose axes are not said.
            {"baseM": 16, "enableSplitKernelFlag": True, "kernelSplitMode": 0},
            UnsupportedError,
            "enableSplitKernelFlag is True, .* say schedule dgrad_split and kernel_split in ours",
        ),
        (
            {"baseM": 16, "enableSplitK": True},
            UnsupportedError,
            "segments of the reduction; that is not read yet from the vendor's names; say k_split",
        ),
        (
            {"baseM": 16, "groupEnlarge": True},
            UnsupportedError,
            "groupEnlarge is True, which asks for merged groups; it does not say how many; say group_merge",
        ),
        (
            {"baseM": 16, "baseL": 4},
            ConfigError,
            "the field 'baseL' beside the vendor's names; did you mean base",
        ),
        (
            {"baseM": 16, "base_n": 4},
            ConfigError,
            "the field 'base_n' beside the vendor's names; did you mean",
        ),
        ({"baseM": 0}, ConfigError, "base_m is 0; it must be a positive integer"),
    ],
)
def test_an_entry_that_no_nest_executes_is_refused(tmp_path, entry, error, message):
    file = written(tmp_path, json.dumps({"grad_input": entry}), "entry.json")
    with pytest.raises(error, match=message):
        read_plans(file)


def test_four_channels_a_tap_are_a_flag_of_the_vendors():
    entry = {"baseM": 64, "baseN": 16, "baseK": 48, "enableC04Flag": True}
    assert from_vendor("grad_input", entry).schedule == "dgrad_c04"
    assert from_vendor("grad_input", entry | {"enableC04Flag": False}).schedule == "dgrad_shares"


def test_the_vendor_has_no_names_for_matrix_products(tmp_path):
    with pytest.raises(UnsupportedError, match="known for grad_input and grad_weight alone"):
        read_plans(written(tmp_path, "[matmul]\nbaseM = 16\n"))
    with pytest.raises(UnsupportedError, match="known for grad_input and grad_weight alone"):
        write_plans(tmp_path / "m.toml", {"matmul": WHOLE}, names="vendor")
    with pytest.raises(ConfigError, match="names is 'theirs'; it must be ours or vendor"):
        write_plans(tmp_path / "m.toml", {"grad_input": WHOLE}, names="theirs")


@pytest.mark.parametrize(("op", "refused"), [("dX", 2), ("dW", 0)])
def test_hand_tuned_entries_become_plans_or_say_why_not(data_dir, op, refused):
    gradient, found = GRADIENTS[op], records(data_dir, op, "arch35", "runtime_kb")
    reasons = []
    for record in found:
        entry, profile = record["expected"], profile_of(record)
        try:
            part = from_vendor(gradient, entry)
        except UnsupportedError as error:
            reasons.append(str(error))
            continue
        compute = "hf32" if record["hf32"] else record["dtype"]
        made = plans_of(problem_of(record), [gradient], compute, profile, {gradient: part}, {})[
            gradient
        ].tiling
        # What the entry says stands: its blocks, steps, copies and cores.
        assert {name: getattr(made, name) for name in part.fields} == part.fields
        if op == "dW" and made.k_split > 1:
            # Parts of the last round are as many as the cores that it leaves to each task.
            assert made.k_split <= ceil(profile.cores.cube / 2)
    assert len(reasons) == refused
    assert all("segments of the reduction" in reason for reason in reasons)
