"""Are the vendor's files of tuned layers (runtime_kb) read as plans, and plans written as their entries?"""

import json

import pytest

from ascendsim import ConvProblem, Plan, Tiling, estimate, read_plans
from ascendsim.errors import AscendSimError, ConfigError, DataError, UnsupportedError
from ascendsim.ops.tiling.entries import (
    MEANINGS,
    NESTS,
    Entry,
    LayerEntries,
    entry_values,
    layer_of,
    layer_values,
    write_entries,
)
from ascendsim.ops.tiling.vendor.layer import Layer
from ascendsim.ops.tiling.vendor.names import MEANS
from tests.helpers.requests import nest_plan, plans_of
from tests.helpers.vendor_tilings import GRADIENTS, problem_of, profile_of, records

LAYER = ConvProblem((4, 64, 14, 14), (96, 64, 3, 3), padding=1)
PRODUCT = "950PR_9589"
OTHER = ConvProblem((4, 64, 14, 14), (96, 64, 1, 1))
MASKS = {"grad_input": (True, False, False), "grad_weight": (False, True, False)}


def plan_of(gradient, problem=LAYER):
    return estimate(problem, product=PRODUCT, output_mask=MASKS[gradient]).plans[gradient]


def entry(gradient, plan=None, problem=LAYER):
    return entry_values(gradient, problem, "float16", plan or plan_of(gradient, problem), "3510")


@pytest.mark.parametrize("gradient", MASKS)
def test_a_plan_written_as_an_entry_comes_back(gradient, tmp_path):
    plan = plan_of(gradient)
    write_entries(tmp_path / "kb.json", [entry(gradient, problem=OTHER), entry(gradient, plan)])
    read = estimate(LAYER, product=PRODUCT, output_mask=MASKS[gradient], tiling=tmp_path / "kb.json")
    assert read.plans == {gradient: plan}


def test_one_file_serves_both_gradients_and_other_layers_follow_the_rules(tmp_path):
    write_entries(tmp_path / "kb.json", [entry("grad_input"), entry("grad_weight")])
    plans = read_plans(tmp_path / "kb.json").plans
    assert {made: len(found.entries) for made, found in plans.items()} == {"grad_input": 1, "grad_weight": 1}
    usual = estimate(OTHER, product=PRODUCT)
    read = estimate(OTHER, product=PRODUCT, tiling=tmp_path / "kb.json")
    assert read.plans == usual.plans
    assert {plan.chosen_by for plan in read.plans.values()} == {"product"}


@pytest.mark.parametrize("form", ["lines", "list", "nested", "alone"])
def test_entries_are_told_by_their_fields_whatever_is_around_them(form, tmp_path):
    one = entry("grad_weight")
    two = {"id": 7, "layer": one["info_dict"], "more": {"tiling": one["knowledge"], "version": 1}}
    content = {
        "lines": json.dumps(one) + "\n" + json.dumps(entry("grad_input")) + "\n",
        "list": json.dumps([one]),
        "nested": json.dumps([two]),
        "alone": json.dumps(two),
    }[form]
    (tmp_path / "kb.json").write_text(content)
    found = read_plans(tmp_path / "kb.json").plans["grad_weight"].of(LAYER, "float16")
    assert found.fields["base_m"] == one["knowledge"]["baseM"]


def test_an_entry_is_for_its_layer_and_size_of_elements_alone():
    made = entry("grad_weight")
    where = "kb.json: entry 1"
    layer = layer_of("grad_weight", made["info_dict"], where)
    entries = LayerEntries((Entry(where, "grad_weight", layer, made["knowledge"]),))
    assert entries.of(LAYER, "float16") == entries.of(LAYER, "bfloat16") is not None
    assert entries.of(LAYER, "hf32") is None
    # Another batch is another layer, as a device finds entries by all of its sizes.
    assert entries.of(ConvProblem((8, 64, 14, 14), (96, 64, 3, 3), padding=1), "float16") is None
    assert entries.has_layer(LAYER)
    assert not entries.has_layer(OTHER)


def test_a_last_round_that_is_whole_stays_whole():
    plan = plan_of("grad_weight")
    assert plan.tiling.k_split > 1  # its rules cut it
    whole = Plan(plan.schedule, Tiling(**{**vars(plan.tiling), "k_split": 1, "stream_axis": ""}))
    made = entry("grad_weight", whole)
    assert made["knowledge"]["streamkType"] == 0
    layer = layer_of("grad_weight", made["info_dict"], "")
    part = Entry("", "grad_weight", layer, made["knowledge"]).plan()
    assert plans_of(LAYER, ["grad_weight"], "float16", _profile(), {"grad_weight": part}, {}) == {
        "grad_weight": whole
    }


def _profile():
    from ascendsim import load_profile

    return load_profile(PRODUCT)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"arch": "2201"}, UnsupportedError, "known of npu_arch 3510 .* this product has 2201"),
        ({"plan": Plan("wgrad", Tiling(16, 16, 16))}, UnsupportedError, "written of wgrad_stream"),
        (
            {"plan": Plan("wgrad_stream", Tiling(16, 16, 16, strip_w=16))},
            UnsupportedError,
            "takes strips of 16 columns; no entry with strips is known",
        ),
        (
            {"problem": ConvProblem((1, 32, 8, 8), (32, 16, 3, 3), groups=2)},
            UnsupportedError,
            "the layer has 2 groups; no entry with groups is known",
        ),
        (
            {"problem": ConvProblem((1, 32, 8, 8), (32, 16, 3, 3), transposed=True)},
            ConfigError,
            "no entry of a transposed convolution is known",
        ),
        ({"compute_dtype": "hifloat8"}, ConfigError, "no entry of the format hifloat8 is known"),
    ],
)
def test_what_no_entry_says_is_not_written(given, error, message):
    usual = {
        "gradient": "grad_weight",
        "problem": LAYER,
        "compute_dtype": "float16",
        "plan": Plan("wgrad_stream", Tiling(16, 16, 16)),
        "arch": "3510",
    }
    with pytest.raises(error, match=message):
        entry_values(**usual | given)


def test_segments_of_grad_input_are_not_written():
    plan = Plan("dgrad_shares", Tiling(16, 16, 16, k_split=2))
    with pytest.raises(UnsupportedError, match="adds its reduction in 2 segments"):
        entry("grad_input", plan)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("ho", None, "kb.json: entry 1: the layer's ho is missing; it must be a whole number"),
        ("stride_h", 1.5, "the layer's stride_h is 1.5"),
        ("groups", 3, "the layer's groups are 3; they must divide its channels"),
        ("groups", 0, "the layer's groups are 0"),
    ],
)
def test_an_entry_without_a_layer_is_refused(field, value, message, tmp_path):
    made = entry("grad_weight")
    layer = {name: held for name, held in made["info_dict"].items() if name != field}
    layer |= {} if value is None else {field: value}
    (tmp_path / "kb.json").write_text(json.dumps(made | {"info_dict": layer}))
    with pytest.raises(ConfigError, match=message):
        read_plans(tmp_path / "kb.json")


def test_a_cut_of_the_last_round_that_no_entry_has_is_refused(tmp_path):
    made = entry("grad_weight")
    made["knowledge"] |= {"streamkType": 5}
    write_entries(tmp_path / "kb.json", [made])
    with pytest.raises(UnsupportedError, match=r"kb.json: entry 1: streamkType is 5"):
        estimate(LAYER, product=PRODUCT, output_mask=MASKS["grad_weight"], tiling=tmp_path / "kb.json")


def test_a_file_of_entries_has_its_name_and_its_place(tmp_path):
    with pytest.raises(ConfigError, match=r"a file of entries ends in .json, not in .toml"):
        write_entries(tmp_path / "kb.toml", [])
    with pytest.raises(DataError, match="cannot be written"):
        write_entries(tmp_path / "no" / "kb.json", [])


def test_the_command_takes_a_file_of_entries_and_refuses_one_of_other_layers(answer, refusal, tmp_path):
    write_entries(tmp_path / "kb.json", [entry("grad_weight")])
    sizes = ("--input", "4,64,14,14", "--weight", "96,64,3,3", "--padding", "1", "--mask", "weight")
    words = ("run", *sizes, "--product", PRODUCT, "--cycles-only", "--tiling", str(tmp_path / "kb.json"))
    assert "user, rest product" in answer(*words)
    other = ("run", "s3b1_3x3", "--product", PRODUCT, "--cycles-only", *words[-2:])
    assert "none of its 1 entries is for what is run" in refusal(*other)


# ---- The entries that were tuned by hand


def tuned(data_dir):
    kind = "arch35", "runtime_kb"
    return [(record, GRADIENTS[op]) for op in GRADIENTS for record in records(data_dir, op, *kind)]


def test_layers_of_hand_tuned_entries_are_read_and_written_whole(data_dir):
    found = tuned(data_dir)
    assert len(found) == 36
    for record, gradient in found:
        dtype = record["dtype"].split("|")[0]
        layer = layer_of(gradient, record["kb_inputs"], record["case"])
        assert layer == Layer.of(problem_of(record), "hf32" if record["hf32"] else dtype)
        # Weights lie in some of them with their channels last, which no call of the interface has.
        said = {**record["kb_inputs"], "filterFormat": 30}
        assert {**layer_values(gradient, layer, dtype)} == said


def test_tilings_of_hand_tuned_entries_are_written_as_they_were_read(data_dir):
    written = 0
    for record, gradient in tuned(data_dir):
        layer = layer_of(gradient, record["kb_inputs"], record["case"])
        one = Entry(record["case"], gradient, layer, record["expected"])
        dtype = record["dtype"].split("|")[0]
        compute = "hf32" if record["hf32"] else dtype
        problem, profile = problem_of(record), profile_of(record)
        if record["expected"].get("enableSplitK") or record["expected"].get("kernelSplitMode"):
            continue  # segments, which are not read, and split kernels, which are not written
        plan = plans_of(problem, [gradient], compute, profile, {gradient: one.plan()}, {})[gradient]
        made = entry_values(gradient, problem, compute, plan, "3510")["knowledge"]
        assert made == record["expected"], record["case"]
        written += 1
    assert written == 30


def test_last_rounds_are_cut_as_the_operators_unit_tests_expect(data_dir):
    names = ("streamkType", "singleCoreHo", "singleCoreBatchDout")
    found = {}
    for record in records(data_dir, "dW", "arch35"):
        if not record["success"] or record["groups"] > 1:
            continue
        try:
            problem, profile = problem_of(record), profile_of(record)
            plan = nest_plan(problem, "grad_weight", record["dtype"], profile, hf32=record["hf32"])
            compute = "hf32" if record["hf32"] else record["dtype"]
            made = entry_values("grad_weight", problem, compute, plan, "3510")["knowledge"]
        except AscendSimError:
            continue  # strips, padding of depths: no nest, no problem or no entry
        found[record["case"]] = made["streamkType"]
        assert {name: made[name] for name in names} == {name: record["expected"][name] for name in names}
    # Of each kind there is at least one.
    assert set(found.values()) == {0, 1, 2}


def test_every_field_that_is_written_has_a_meaning():
    for gradient, nest in NESTS.items():
        written = set(entry(gradient, Plan(nest, Tiling(16, 16, 16)))["knowledge"])
        words = " ".join(MEANINGS[gradient]).replace(",", "").split()
        meant = set(MEANS[gradient]) | {word.replace("...", "backpropPad") for word in words}
        assert written == meant
