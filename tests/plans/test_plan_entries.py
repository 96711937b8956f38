"""Are plans in the vendor's names, and its files of tuned layers, read and written as what they are?"""

import json
import random
from contextlib import suppress
from dataclasses import replace
from itertools import product

import pytest

from ascendsim import (
    ConvProblem,
    Plan,
    Tiling,
    estimate,
    legal_tilings,
    load_profile,
    read_plans,
    write_plans,
)
from ascendsim.errors import AscendSimError, ConfigError, DataError, UnsupportedError
from ascendsim.ops.plan import WHOLE
from ascendsim.ops.schedules.base import SCHEDULES, schedule_named
from ascendsim.ops.tiling.entries import (
    MEANINGS,
    NESTS,
    LayerEntries,
    TilingEntry,
    entry_values,
    layer_of,
    layer_values,
    write_entries,
)
from ascendsim.ops.tiling.request import PartialPlan
from ascendsim.ops.tiling.vendor.layer import LayerSizes
from ascendsim.ops.tiling.vendor.names import MEANS, from_vendor, to_vendor
from tests.helpers.outside_records import GRADIENTS, problem_of, profile_of, records
from tests.helpers.slow_tilings import nest_plan, plans_of
from tests.helpers.toy_machines import VARIANTS

# -------------------------------------------------------------------------------------------------------
# Are the vendor's files of tuned layers (runtime_kb) read as plans, and plans written as their entries?
# -------------------------------------------------------------------------------------------------------

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
    entries = LayerEntries((TilingEntry(where, "grad_weight", layer, made["knowledge"]),))
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
    part = TilingEntry("", "grad_weight", layer, made["knowledge"]).plan()
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
        assert layer == LayerSizes.of(problem_of(record), "hf32" if record["hf32"] else dtype)
        # Weights lie in some of them with their channels last, which no call of the interface has.
        said = {**record["kb_inputs"], "filterFormat": 30}
        assert {**layer_values(gradient, layer, dtype)} == said


def test_tilings_of_hand_tuned_entries_are_written_as_they_were_read(data_dir):
    written = 0
    for record, gradient in tuned(data_dir):
        layer = layer_of(gradient, record["kb_inputs"], record["case"])
        one = TilingEntry(record["case"], gradient, layer, record["expected"])
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


# --- Is a plan that is written in the vendor's names the same plan when it is read again, and as fast? -

TRIP_GRADIENTS = ("grad_input", "grad_weight")
ONE_OF_EACH = ("910A", "310P3", "910B2", "910_9382", "950PR_9589")
# By what they are; batches of 1 and more, one to three axes, groups that are merged and single ones.
LAYERS = {
    "one axis": ConvProblem((4, 32, 40), (48, 32, 3), 1, 1),
    "two axes": ConvProblem((8, 64, 14, 14), (64, 64, 3, 3), 1, 1),
    "one image": ConvProblem((1, 64, 28, 28), (32, 64, 1, 1)),
    "stride": ConvProblem((2, 64, 30, 40), (64, 64, 3, 3), 2, 1),
    "three axes": ConvProblem((2, 32, 4, 8, 8), (32, 32, 3, 3, 3), 1, 1),
    "groups": ConvProblem((2, 64, 12, 12), (64, 16, 3, 3), 1, 1, groups=4),
    "depthwise": ConvProblem((16, 48, 9, 9), (48, 1, 3, 3), 1, 1, groups=48),
    "dilation": ConvProblem((2, 32, 16, 16), (32, 32, 3, 3), 1, 2, 2),
    "transposed": ConvProblem((2, 32, 8, 8), (32, 16, 2, 2), 2, transposed=True),
    "few channels": ConvProblem((2, 3, 32, 32), (16, 3, 7, 7), 2, 3),
    "as large as the image": ConvProblem((2, 32, 5, 5), (32, 32, 5, 5)),
}


def layers_of(variant):
    """Return the layers that a product takes: those before the 910B convolve no volumes."""
    old = load_profile(variant).product in ("910", "310P")
    return {name: layer for name, layer in LAYERS.items() if not (old and layer.rank == 3)}


def through_a_file(folder, plans, form="toml"):
    """Return plans, written and read again."""
    file = folder / f"plans.{form}"
    write_plans(file, plans, names="vendor")
    return read_plans(file).plans


# A quarter of the variants, and the plain ones: 20 of 57, each with ten or eleven layers, are 400 plans.
@pytest.mark.parametrize("variant", dict.fromkeys((*ONE_OF_EACH, *VARIANTS[::4])))
def test_the_plan_of_a_call_comes_back_and_takes_the_same_time(tmp_path, variant):
    for name, problem in layers_of(variant).items():
        usual = estimate(problem, product=variant, output_mask=(True, True, False))
        back = through_a_file(tmp_path, usual.plans)
        assert (back, set(back)) == (usual.plans, set(TRIP_GRADIENTS)), name
        again = estimate(problem, product=variant, output_mask=(True, True, False), tiling=back)
        assert again.kernels == usual.kernels, name


def test_a_stream_of_grad_weight_stays_one(tmp_path):
    # Read as shares of the sum, which the file then did not say it was not, it took three times as long.
    layer, only = ConvProblem((8, 512, 7, 7), (512, 512, 3, 3), 1, 1), (False, True, False)
    usual = estimate(layer, product="950PR_9589", output_mask=only)
    assert usual.plans["grad_weight"].schedule == "wgrad_stream"
    back = through_a_file(tmp_path, usual.plans)
    assert estimate(layer, product="950PR_9589", output_mask=only, tiling=back).cycles == usual.cycles


def nests(variant):
    """Yield the plans of every nest and layer, in a format, where there is one."""
    profile = load_profile(variant)
    for problem, gradient, nest in product(LAYERS.values(), TRIP_GRADIENTS, SCHEDULES):
        if schedule_named(nest).makes != gradient:
            continue
        given = {gradient: PartialPlan({}, nest)}
        with suppress(AscendSimError):  # no plan of this nest
            yield gradient, plans_of(problem, [gradient], "float16", profile, given, {})[gradient]


@pytest.mark.parametrize("variant", ONE_OF_EACH)
def test_the_plans_of_every_nest_come_back(tmp_path, variant):
    found = list(nests(variant))
    # Of eleven layers, each with four nests and more.
    assert len(found) > 44
    for number, (gradient, plan) in enumerate(found):
        form = ("toml", "json")[number % 2]
        assert through_a_file(tmp_path, {gradient: plan}, form) == {gradient: plan}


def test_the_plans_of_the_search_and_random_ones_come_back(tmp_path):
    cases = ((v, name, p, g) for v in ONE_OF_EACH for name, p in layers_of(v).items() for g in TRIP_GRADIENTS)
    for variant, name, problem, gradient in cases:
        mask = tuple(each == gradient for each in (*TRIP_GRADIENTS, "grad_bias"))
        plans = estimate(problem, product=variant, output_mask=mask, tiling="search").plans
        assert through_a_file(tmp_path, plans) == plans, (variant, name)
        for tiling in legal_tilings(problem, gradient, variant).sample(3, seed=1):
            drawn = {gradient: Plan({"grad_input": "dgrad", "grad_weight": "wgrad"}[gradient], tiling)}
            assert through_a_file(tmp_path, drawn) == drawn, (variant, name)


OTHERS = {"mapping": "interleaved", "task_order": "m n d group", "stream_axis": "height"}
OTHERS |= {"kernel_split": "hw", "tap_loop": "kh", "panels": "columns", "fractals_first": "ab"}


@pytest.mark.parametrize("gradient", TRIP_GRADIENTS)
def test_no_field_is_lost(gradient):
    # Any values of all fields at once, those of no nest among them.
    draw = random.Random(3)
    for _ in range(200):
        values = {}
        for name, usual in vars(Tiling(1, 1, 1)).items():
            drawn = not usual if isinstance(usual, bool) else OTHERS.get(name, draw.randint(1, 9))
            values[name] = drawn if name in WHOLE or draw.random() < 0.5 else usual
        plan = Plan(draw.choice(list(SCHEDULES)), Tiling(**values))
        assert from_vendor(gradient, to_vendor(gradient, plan)) == plan


@pytest.mark.parametrize("gradient", TRIP_GRADIENTS)
def test_what_has_a_name_of_the_vendors_is_said_in_it(gradient):
    plan = Plan("dgrad_shares", Tiling(16, 32, 48, group_merge=2, single_core_m=64, transpose_first=True))
    values = to_vendor(gradient, plan)
    assert not set(MEANS[gradient].values()) & set(values)
    assert (values["baseM"], values["baseN"], values["baseK"], values["singleCoreM"]) == (16, 32, 48, 64)
    # Only entries of grad_input say how many groups are one.
    assert values.get("enlarge", values.get("group_merge")) == 2
    assert ("enlarge" in values) == (gradient == "grad_input")


def test_a_table_that_names_its_nest_may_leave_the_rest_to_the_rules():
    values = {"schedule": "wgrad_stream", "baseM": 64, "stream_axis": "height"}
    part = from_vendor("grad_weight", values)
    assert part == PartialPlan({"base_m": 64, "stream_axis": "height"}, "wgrad_stream")
    assert from_vendor("grad_weight", {**values, "block_dim": 8}) == replace(part, block_dim=8)


@pytest.mark.parametrize("name", ["base_n", "streamkType", "enableC04Flag", "baseL", "transpose_first"])
def test_a_table_that_names_its_nest_says_nothing_twice(name):
    told = rf"has the field '{name}' beside schedule; a plan that names its nest says .* leave schedule out"
    with pytest.raises(ConfigError, match=told):
        from_vendor("grad_input", {"schedule": "dgrad_shares", "baseM": 16, name: 1})
