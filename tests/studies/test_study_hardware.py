"""Does the study of changes read them as they are meant, and say what they buy and how sure it is?"""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from ascendsim import ConvProblem, estimate, load_profile
from ascendsim.errors import AscendSimError, ConfigError
from ascendsim.frozen import FrozenMap
from ascendsim.ops.convolution_backward import plans_of_call
from ascendsim.profile import Change, contradiction, parse_changes, read_changes
from ascendsim.profile.records import DERIVED, ranged_figures
from ascendsim.report.studies.hardware import (
    hardware_record,
    hardware_table,
    hardware_tables,
    notes,
    plans_table,
    tuned_table,
)
from ascendsim.report.studies.hardware_words import hardware_sentence
from ascendsim.studies.engine.point import NETWORK
from ascendsim.studies.engine.run import Budget, Engine, Store
from ascendsim.studies.hardware import gains
from ascendsim.studies.hardware.gains import base_points, study_hardware
from ascendsim.studies.hardware.records import Doubt, Gain, StudiedLayer
from ascendsim.studies.table import share
from ascendsim.studies.tuning.records import TilingQuestion
from ascendsim.studies.tuning.search import tune
from ascendsim.studies.tuning.tune import Tuner
from ascendsim.workloads import load_workload
from tests.helpers.report_samples import (
    BOTH,
    CORES,
    DENSE,
    L0C,
    MEMORY,
    SMALL,
    SMALL_LAYERS,
    STREAM,
    answered,
    question,
    time_us,
)

# -------------------------------------------------------------------------------------------------------
# Does the study of changes say what they buy, by the times that the model gives, and how sure that is?
# -------------------------------------------------------------------------------------------------------

ONE = (True, False, False)  # Doubt is some 160 times as much work as a gain.

# ---- Gains


@pytest.mark.parametrize("start", ["warm", "handed"])
def test_times_are_those_of_estimate(start):
    (gain,) = answered(question(CORES, starts=(start,))).gains
    (layer,) = gain.layers
    base = time_us({}, start)
    plans = {kernel.name: kernel.plan for kernel in base.kernels if kernel.plan}
    changed = {"cores.cube": 48}
    assert gain.figures == {"cores.cube": (24, 48), "cores.vector": (48, 96)}
    assert layer.base_us == base.time_us
    assert layer.same_us == time_us(changed, start, plans).time_us
    assert layer.anew_us == time_us(changed, start).time_us


@pytest.mark.parametrize(("change", "planned"), [(MEMORY, 1), (CORES, 2)])
def test_planned_anew_is_timed_where_the_change_moves_a_plan(change, planned):
    seen = []
    engine = Engine(Store(), 1, advance=lambda *done: seen.append(done[-1]))
    answer, timed = study_hardware(question(change, starts=("handed",)), engine, Budget())
    (gain,) = answer.gains
    # The product before, and after where twice the cores are planned for otherwise.
    assert sum(point.tiling == "product" for point in seen) == planned
    # Nothing is timed twice, and every call is in the table.
    assert len({point.key for point in seen}) == len(seen) == len(timed)
    (layer,) = gain.layers
    values = {path: new for path, (_, new) in gain.figures.items()}
    anew = time_us(values, "handed")
    assert layer.anew_us == anew.time_us
    chosen = plans_of_call(STREAM, output_mask=BOTH, product=load_profile("910B2", overrides=values))
    assert chosen == {kernel.name: kernel.plan for kernel in anew.kernels if kernel.plan}


def test_better_is_never_worse_than_either_plan():
    for gain in answered(question(CORES, MEMORY)).gains:
        for layer in gain.layers:
            assert layer.better_us <= min(layer.same_us, layer.anew_us)


def test_memory_buys_nothing_with_a_warm_l2_and_something_in_a_step():
    warm, step = answered(question(MEMORY, layers=(StudiedLayer("dense", DENSE, BOTH),))).gains
    # Warm, no byte crosses the link to memory: not one cycle can change.
    assert (warm.share, warm.distinguishable) == (0, False)
    assert step.share > 0.01


def test_added_cores_stay_idle_where_they_cost_more_than_they_save():
    # 48 vector cores more take 0.1 us each to be launched, in each of nine kernels; the layer is small.
    changes = (CORES + "+cores.vector=x2", CORES + "+cores.vector=x2+scalar.start_us=x0.5")
    alone, with_more = answered(question(*changes, starts=("handed",), layers=SMALL_LAYERS)).gains
    (layer,) = alone.layers
    assert layer.better_us == layer.base_us < min(layer.same_us, layer.anew_us)
    # What else changes is still there: the idle cores are all that is left out.
    (layer,) = with_more.layers
    base = time_us({}, "handed", problem=SMALL)
    plans = {kernel.name: kernel.plan for kernel in base.kernels if kernel.plan}
    started = {"scalar.start_us": load_profile("910B2").figures["scalar.start_us"].value / 2}
    assert layer.better_us == time_us(started, "handed", plans, SMALL).time_us < base.time_us


@pytest.mark.slow
def test_the_doubt_of_idle_cores_leaves_them_idle():
    layers = (StudiedLayer("small", SMALL, ONE),)
    (gain,) = answered(
        question(CORES + "+cores.vector=x2", starts=("handed",), layers=layers, doubt=True)
    ).gains
    # Before and after are one call, whatever is assumed.
    assert (gain.share, gain.doubt.low, gain.doubt.high) == (0, 0, 0)


def test_tuned_plans_are_those_of_the_tuner_before_and_after():
    asked = question(CORES, starts=("handed",), layers=SMALL_LAYERS, tilings=6)
    (gain,) = answered(asked).gains
    (layer,) = gain.layers
    before, after = layer.tuned_us
    assert before <= layer.base_us
    assert after <= layer.better_us
    found = []
    for changes, usual in (({}, layer.base_us), ({"cores.cube": 48}, layer.better_us)):
        plans = {}
        for name in ("grad_input", "grad_weight"):
            one = TilingQuestion(
                "small", "910B2", SMALL, name, starts=("handed",), trials=6, changes=FrozenMap(changes)
            )
            plans[name] = tune(Tuner(one, Engine(Store(), 1), Budget(), "float16"))[1].plan
        found.append(min(usual, time_us(changes, "handed", plans, SMALL).time_us))
    # Twice the cores cost time here even so, and may stay idle: what was tuned before holds then.
    assert found[1] > found[0]
    assert (before, after) == gain.tuned_us == (found[0], found[0])
    answer = answered(asked)
    table = tuned_table(answer)
    row = dict(zip(table.headings, table.rows[0], strict=True))
    assert row["saves"] == f"{share(1 - after / before)} %" == "0.0 %"
    assert table in hardware_tables(answer)


def test_nothing_is_tuned_unless_asked_for():
    answer = answered(question(MEMORY, starts=("warm",), layers=SMALL_LAYERS))
    assert answer.gains[0].tuned_us is None
    assert tuned_table(answer).rows == ()
    assert "Under plans tuned" not in "".join(table.title for table in hardware_tables(answer))


def test_a_plan_that_does_not_fit_any_more_leaves_the_one_planned_anew():
    # A quarter of L0C holds 8192 sums of float32; the plan of the whole one has more.
    (gain,) = answered(question(L0C, starts=("warm",))).gains
    assert gain.same_us is None
    assert gain.better_us == gain.anew_us


# A smaller L1 has the rules of the 910A choose plans that suit these layers better, with room for them in its
# own; and the loops of the 910B's fill what L1 has.
SMALLER = (
    ("910A", "conv1", "buffers.L1.capacity_bytes=x0.25"),
    ("910A", "s3b0_3x3", "buffers.L0C.capacity_bytes=x0.5"),
    ("910B2", "s2b0_1x1b", "buffers.L1.capacity_bytes=x0.75"),
)


def smaller(case, start="warm", **options):
    """The answer about one of these, of ResNet-50 at batch 8."""
    product, name, change = case
    problem = ConvProblem(**load_workload("resnet50").layer(name).problem_options(8))
    asked = question(change, layers=(StudiedLayer(name, problem, BOTH),), starts=(start,), **options)
    return answered(replace(asked, product=product))


@pytest.mark.parametrize("case", SMALLER)
@pytest.mark.parametrize("start", ["warm", "handed"])
def test_a_smaller_buffer_buys_nothing_itself(case, start):
    answer = smaller(case, start)
    (gain,) = answer.gains
    # What is saved with less of it is saved by the plan, or by leaving it unused.
    assert gain.share > 0
    assert gain.own_share == 0
    assert gain.plan_share == gain.share
    assert "itself changes nothing, but another plan" in hardware_sentence(answer)


def test_a_plan_that_fits_the_product_as_it_is_is_timed_there():
    (gain,) = smaller(SMALLER[0]).gains
    (layer,) = gain.layers
    problem = ConvProblem(**load_workload("resnet50").layer("conv1").problem_options(8))
    values = {path: new for path, (_, new) in gain.figures.items()}
    said = {"output_mask": BOTH, "l2_start": gain.start}
    plans = plans_of_call(problem, **said, product=load_profile("910A", overrides=values))
    there = estimate(problem, **said, product="910A", tiling=plans)
    assert layer.new_plan
    assert layer.plan_us <= there.time_us < layer.base_us == estimate(problem, **said, product="910A").time_us


def test_a_row_says_which_plan_is_another_than_before_and_who_else_follows_it():
    answer = smaller(SMALLER[0])
    problem = ConvProblem(**load_workload("resnet50").layer("conv1").problem_options(8))
    (gain,) = answer.gains
    values = {path: new for path, (_, new) in gain.figures.items()}
    said = {"output_mask": BOTH, "l2_start": gain.start}
    before = plans_of_call(problem, **said, product="910A")
    better = plans_of_call(problem, **said, product=load_profile("910A", overrides=values))
    found = gain.layers[0].new_plans
    assert found
    for new in found:
        assert new.before == before[new.gradient] != new.better == better[new.gradient]
        # It saves nothing that the product as it is does not save, too.
        assert (new.found_for, new.alone) == (gain.change, True)
    rows = plans_table(answer).values
    assert [(row[2], row[3], row[-1]) for row in rows] == [
        ("conv1", new.gradient, "as well") for new in found
    ]
    for new, row in zip(found, rows, strict=True):
        fields = {**new.before.to_dict(), **new.better.to_dict()}
        changed = [
            name for name in fields if new.before.to_dict().get(name) != new.better.to_dict().get(name)
        ]
        assert (
            f"{changed[0]} {new.before.to_dict()[changed[0]]} to {new.better.to_dict()[changed[0]]}" in row[4]
        )
    assert [row["gradient"] for row in hardware_record(answer)["gains"][0]["layers"][0]["new_plans"]] == [
        new.gradient for new in found
    ]
    (same,) = answered(question("scalar.issue_cycles=x2", starts=("warm",))).gains
    assert same.layers[0].new_plans == ()


def test_what_a_layer_saves_without_the_change_is_no_saving_of_another_that_pays():
    # Of both together the change costs what it costs the second one.
    first, second = (smaller(case).gains[0].layers[0] for case in (SMALLER[0], SMALLER[1]))
    costs = replace(second, base_us=100.0, same_us=110.0, better_us=110.0, plan_us=None, new_plan=False)
    gain = Gain("both", {}, "warm", (first, costs))
    assert gain.own_share == pytest.approx(-10 / gain.base_us)


@pytest.mark.slow
def test_the_doubt_is_that_of_the_change_itself():
    (gain,) = smaller(SMALLER[1], doubt=True).gains
    # With as much of it left unused before, no figure moves them apart: not those of lists, either.
    assert gain.share > 0
    assert gain.doubt == Doubt(0, 0, 0)
    assert any(isinstance(figure.value, list) for figure in ranged_figures(load_profile("910A")).values())


def test_a_change_that_contradicts_the_product_is_refused_with_its_reason():
    answer = answered(question("buffers.L0A.capacity_bytes=64", MEMORY))
    assert "buffers.L0A.capacity_bytes=64" in answer.refused
    assert {gain.change for gain in answer.gains} == {MEMORY}
    only = answered(question("buffers.L0A.capacity_bytes=64"))
    assert "none of the changes can be timed" in hardware_sentence(only)


def test_a_layer_that_a_change_refuses_is_named_and_the_others_go_on():
    # A row of 7 x 7 taps needs more of L1 than is left.
    wide = ConvProblem((1, 3, 224, 224), (64, 3, 7, 7), stride=2, padding=3)
    layers = (StudiedLayer("small", SMALL, BOTH, 2), StudiedLayer("wide", wide, (False, True, False)))
    change = "buffers.L1.capacity_bytes=2560"
    answer = answered(question(change, layers=layers, starts=("warm",)))
    (gain,) = answer.gains
    assert not answer.refused
    assert [layer.layer for layer in gain.layers] == ["small"]
    assert "no tile of this convolution fits in L1" in gain.without["wide"]
    # The times before leave it out as well.
    assert gain.base_us == 2 * time_us({}, "warm", problem=SMALL).time_us
    assert hardware_table(answer).rows[0][0] == f"{change} without wide"
    assert f"{change} cannot run wide, which no time of it counts" in " ".join(notes(answer))
    assert "without wide" in hardware_sentence(answer)


def test_a_layer_that_the_product_cannot_run_is_told():
    asked = question(MEMORY, dtype="float8_e4m3fn")
    with pytest.raises(AscendSimError, match="stream on 910B2"):
        answered(asked)


def test_layers_add_up_to_the_network_with_their_counts():
    layers = (StudiedLayer("one", STREAM, BOTH, 3), StudiedLayer("two", SMALL, (False, True, False), 2))
    (gain,) = answered(question(MEMORY, layers=layers, starts=("handed",))).gains
    one, two = gain.layers
    assert gain.base_us == 3 * one.base_us + 2 * two.base_us
    assert gain.better_us == 3 * one.better_us + 2 * two.better_us
    assert (
        two.base_us
        == estimate(SMALL, product="910B2", output_mask=(False, True, False), l2_start="handed").time_us
    )


def test_a_study_without_trials_says_how_to_go_on_and_goes_on():
    store, seen = Store(), []
    asked = question(CORES)
    with pytest.raises(ConfigError, match="run the same command again to go on"):
        study_hardware(asked, Engine(store, 1, advance=lambda *of: seen.append(of)), Budget(trials=3))
    assert len(seen) == 3
    assert answered(asked, store) == answered(asked)


# ---- How sure that is


@pytest.fixture(scope="module")
def doubtful():
    """Two changes of a small layer, with their doubt: one that changes nothing, and one that costs."""
    layers = (StudiedLayer("small", SMALL, ONE),)
    return answered(question(MEMORY, "scalar.issue_cycles=x2", layers=layers, starts=("warm",), doubt=True))


def test_the_doubt_holds_the_gain(doubtful):
    for gain in doubtful.gains:
        assert gain.doubt.low <= gain.share <= gain.doubt.high


def test_what_changes_nothing_is_sure_to_change_nothing(doubtful):
    warm = doubtful.gains[0]
    assert (warm.change, warm.start, warm.doubt) == (MEMORY, "warm", Doubt(0, 0, 0))


def test_doubt_moves_a_figure_before_and_after_the_change(doubtful):
    # A core that issues for 2 cycles and one that issues for 40: x2 costs in both, the second time much more.
    gain = next(gain for gain in doubtful.gains if gain.change == "scalar.issue_cycles=x2")
    at = {}
    usual = time_us({}, "warm", problem=SMALL, mask=ONE)
    plans = {kernel.name: kernel.plan for kernel in usual.kernels if kernel.plan}
    for end in (1, 20):
        before = time_us({"scalar.issue_cycles": end}, "warm", plans, SMALL, ONE).time_us
        after = time_us({"scalar.issue_cycles": 2 * end}, "warm", plans, SMALL, ONE).time_us
        at[end] = 1 - after / before
    assert gain.doubt.low <= min(at.values())
    assert gain.doubt.high >= max(at.values())


def test_a_saving_is_a_part_of_the_time_before_the_change(monkeypatch):
    savings = []
    monkeypatch.setattr(gains, "doubt_of", lambda saving, *_: savings.append(saving) or Doubt(0, 0, 0))
    layers = (StudiedLayer("small", SMALL, ONE),)
    answered(question("scalar.issue_cycles=x2", layers=layers, starts=("warm",), doubt=True))
    (saving,) = savings
    plans = {k.name: k.plan for k in time_us({}, "warm", problem=SMALL, mask=ONE).kernels if k.plan}
    for cycles in (1, 4, 20):
        before, after = (
            time_us({"scalar.issue_cycles": each}, "warm", plans, SMALL, ONE).time_us
            for each in (cycles, 2 * cycles)
        )
        assert saving([{"scalar.issue_cycles": cycles}]) == [pytest.approx((before - after) / before)]
    # Nothing is known where figures contradict each other: the nearest part of L2 answers before it is asked.
    assert saving([{"paths.GM_L1.latency_cycles": 1}]) == [None]


# --- Do changes of figures, as users state them, become the values that they mean? ---------------------

PROFILE = load_profile("910B2")
CHANGES_L0C = "buffers.L0C.capacity_bytes"
RATE = "paths.GM_L1.bytes_per_cycle"
CHANGES_MEMORY = "links.memory.nominal_tb_per_s"


def only(text):
    (change,) = parse_changes(text)
    return change


def test_a_factor_multiplies_the_figure_of_the_product():
    assert only(f"{CHANGES_L0C}=x2").on(PROFILE) == {CHANGES_L0C: 2 * PROFILE.buffers["L0C"].capacity_bytes}


def test_a_whole_figure_stays_whole():
    # 24 cores: x1.3 is 31.2, of which 31 are cores.
    value = only("cores.cube=x1.3").on(PROFILE)["cores.cube"]
    assert (value, type(value)) == (31, int)


def test_a_factor_that_rounds_to_what_there_is_is_refused():
    # 24 x 1.01 is 24.24: a study of it would answer that it changes nothing.
    with pytest.raises(ConfigError, match=r"cores\.cube: x1\.01 of 24 is 24 in whole numbers"):
        only("cores.cube=x1.01").on(PROFILE)
    assert only("cores.cube=x1").on(PROFILE) == {"cores.cube": 24}


def test_a_share_is_multiplied_in_tenths_and_not_in_binary():
    # 1.6 TB/s x 1.1 is 1.76; in floats it would be 1.7600000000000002.
    assert only(f"{CHANGES_MEMORY}=x1.1").on(PROFILE) == {CHANGES_MEMORY: 1.76}


def test_a_value_replaces_the_figure():
    assert only("clock.cube_mhz=20").on(PROFILE) == {"clock.cube_mhz": 20}
    assert only(f"{CHANGES_MEMORY}=2.5").on(PROFILE) == {CHANGES_MEMORY: 2.5}


def test_vector_cores_follow_the_cube_cores_that_they_stand_beside():
    # An AI core of the 910B is a cube core with two vector cores.
    assert only("cores.cube=20").on(PROFILE) == {"cores.cube": 20, "cores.vector": 40}
    # Who says both asks for another core, and who says the vector cores alone does.
    assert only("cores.cube=20+cores.vector=20").on(PROFILE) == {"cores.cube": 20, "cores.vector": 20}
    assert only("cores.vector=72").on(PROFILE) == {"cores.vector": 72}
    # AI cores of the 310P hold their vector unit; seven vector cores beside eight of them are others.
    assert only("cores.cube=4").on(load_profile("310P")) == {"cores.cube": 4}


def test_a_list_makes_a_change_of_each_value():
    names = [change.name for change in parse_changes(f"{CHANGES_L0C}=x0.5,x2")]
    assert names == [f"{CHANGES_L0C}=x0.5", f"{CHANGES_L0C}=x2"]


def test_joined_figures_change_together():
    one, two = parse_changes(f"{CHANGES_L0C}=x2,x4+{RATE}=x2")
    assert one.figures == {CHANGES_L0C: "x2", RATE: "x2"}
    assert two.figures == {CHANGES_L0C: "x4", RATE: "x2"}


@pytest.mark.parametrize(
    "text", ["", "=x2", CHANGES_L0C, f"{CHANGES_L0C}=", f"{CHANGES_L0C}=x2,", f"{CHANGES_L0C}=x2+"]
)
def test_what_is_no_change_is_told_the_form(text):
    with pytest.raises(ConfigError, match="expected PATH=VALUE, PATH=xFACTOR"):
        parse_changes(text)


def test_lists_of_other_lengths_do_not_join():
    with pytest.raises(ConfigError, match="equally many values"):
        parse_changes(f"{CHANGES_L0C}=x2,x4,x8+{RATE}=x1,x2")


def test_a_figure_joins_once():
    with pytest.raises(ConfigError, match="stands there twice"):
        parse_changes(f"{CHANGES_L0C}=x2+{CHANGES_L0C}=x4")


def test_an_unknown_figure_is_told_with_the_nearest():
    with pytest.raises(
        ConfigError, match=r"no such figure of 910B2; did you mean buffers\.L0C\.capacity_bytes"
    ):
        only("buffers.L0C.capacity_byte=x2").on(PROFILE)


def test_a_text_has_no_factor():
    with pytest.raises(ConfigError, match="multiplies a number"):
        only("core_structure=x2").on(PROFILE)


REFUSED = {
    # What is no number is told the rule of the figure, and what the product has.
    "cores.cube=xyz": r"got 'xyz'; expected an integer from 1 to 4096, or a factor .*\(the product has 24\)$",
    # A factor is told with what it makes.
    "cores.cube=x0": r"got x0 of 24, which is 0; expected an integer from 1",
    "cores.cube=x-2": r"got x-2 of 24, which is -48; expected",
    "cores.cube=-5": r"got -5; expected",
    f"{CHANGES_MEMORY}=-1.6": r"got -1\.6; expected a number from 0\.001 to 1000000",
    "cores.cube=nan": r"got nan; expected",
    f"{CHANGES_MEMORY}=inf": r"got inf; expected",
    "cores.cube=20.5": r"got 20\.5; expected an integer",
    # Near misses are told how they are written.
    "cores.cube=1e2": r"; did you mean 100\?$",
    "cores.cube=2x": r"; did you mean x2\?$",
    "cores.cube=*1.5": r"; did you mean x1\.5\?$",
    "cores.cube=150%": r"; did you mean x1\.5\?$",
    f"{CHANGES_MEMORY}=1600 GB/s": r"; give the number alone, in the unit that the figure's name ends with$",
    f"{CHANGES_L0C}=256KiB": r"; give the number alone",
    # A yes or no is no number, so that no factor is offered.
    "deterministic_default=yes": r"got 'yes'; expected true or false \(the product has false\)$",
    "load3d.L0A.fast_strides=3": r"got 3; expected a list of integers of at least 1",
    # What follows from other figures would be made anew of them.
    "scalar.start_cycles=x2": r"it follows from start_us beside it; change that instead$",
    "cube.rates.float16.macs_per_cycle=x2": r"it follows from block_k beside it",
}


@pytest.mark.parametrize("text", REFUSED)
def test_a_value_that_a_figure_cannot_have_is_told_with_the_rule(text):
    with pytest.raises(ConfigError, match=f"^change of {text.partition('=')[0]}: .*{REFUSED[text]}"):
        only(text).on(PROFILE)


def test_every_figure_of_every_product_may_have_the_value_it_has():
    for product in ("910", "910B2", "910_93", "910_95", "310P"):
        profile = load_profile(product)
        # Those that follow from others are no figures of a product's file.
        own = [path for path in profile.figures if path.rpartition(".")[2] not in DERIVED]
        assert len(own) > 100
        for path in own:
            value = profile.figures[path].value
            assert Change("same", {path: value}).on(profile) == {path: value}


def test_a_yes_or_no_is_read_as_one():
    change = only("deterministic_default=true")
    assert (change.name, change.on(PROFILE)) == (
        "deterministic_default=true",
        {"deterministic_default": True},
    )


def test_figures_that_no_product_can_have_together_are_told_in_a_line():
    # Each alone may have the value; 12 vector cores cannot stand beside 24 cube cores.
    assert contradiction("910B2", {"cores.cube": 20}) == ""
    told = contradiction("910B2", {"cores.vector": 12})
    assert told.startswith("cores.vector: got 12 for 24 cube cores, expected equally many for each")
    assert "\n" not in told


def test_a_file_names_its_changes(tmp_path):
    path = tmp_path / "changes.toml"
    path.write_text(
        f'[[change]]\nname = "large L0C"\nfigures = {{ "{CHANGES_L0C}" = "x2" }}\n'
        f'[[change]]\nname = "both"\nfigures = {{ "{CHANGES_L0C}" = "x2", "cores.cube" = 20 }}\n'
    )
    large, both = read_changes(path)
    assert (large.name, large.on(PROFILE)) == ("large L0C", only(f"{CHANGES_L0C}=x2").on(PROFILE))
    assert both.on(PROFILE)["cores.cube"] == 20


BAD_FILES = {
    "": "expected \\[\\[change\\]\\]",
    "[[changes]]\nname = 'a'\n": "expected \\[\\[change\\]\\]",
    "[[change]]\nname = 'a'\n": "change\\[0\\] \\(a\\): figures is None",
    "[[change]]\nfigures = { 'a.b' = 1 }\n": "change\\[0\\]: got",
    "[[change]]\nname = 'a'\nfigures = {'a.b' = 1}\nfigure = 1\n": "change\\[0\\]: got",
    "[[change]]\nname = 1\nfigures = {'a.b' = 1}\n": "change\\[0\\]: got",
    "change = [1]\n": "change\\[0\\]: got 1",
    "change = []\n": "expected \\[\\[change\\]\\]",
    "[[change]]\nname = 'a'\nfigures = {}\n": "figures is {}",
    "other = 1\n[[change]]\nname = 'a'\nfigures = {'a.b' = 1}\n": "expected .* and nothing else",
    "[[change]]\nname = 'a'\nfigures = { a.b = 1 }\n": "a is a table; a dotted path stands in quotes",
    "[[change]]\nname = 'a'\nfigures = {'a.b' = 1}\n" * 2: "a is there twice",
    "[[change": "is not valid TOML",
}


@pytest.mark.parametrize("text", BAD_FILES)
def test_a_bad_file_is_told_with_its_place(tmp_path, text):
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=rf"bad\.toml.*{BAD_FILES[text]}"):
        read_changes(path)


def test_a_missing_file_is_told(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        read_changes(tmp_path / "none.toml")


def test_a_bad_value_in_a_file_is_told_as_on_the_command_line(tmp_path):
    path = tmp_path / "changes.toml"
    path.write_text('[[change]]\nname = "a"\nfigures = { "cores.cube" = "2x" }\n')
    (change,) = read_changes(path)
    with pytest.raises(ConfigError, match=r"change of cores\.cube: got '2x'.* did you mean x2\?"):
        change.on(PROFILE)


@pytest.mark.parametrize(
    "text",
    [f"{CHANGES_L0C}=x2,{RATE}=x2", f"{CHANGES_L0C}=x2+{RATE}=x2,{CHANGES_L0C}=x4", f"{CHANGES_L0C}==2"],
)
def test_commas_between_figures_lead_to_another_option(text):
    with pytest.raises(ConfigError, match="give each change of its own by another --change"):
        parse_changes(text)


def test_before_the_call_of_a_layer_come_those_behind_it_the_last_first():
    layers = [
        StudiedLayer(str(at), ConvProblem((1, 16, 4 + at, 8), (16, 16, 1, 1)), (True, at > 0, False))
        for at in range(3)
    ]
    asked = SimpleNamespace(product="910B2", dtype="float16", cube_math_type=0, layers=layers)
    asked.starts = "warm", NETWORK
    points = base_points(asked)
    first, second, third = layers
    assert [points[layer, NETWORK].before for layer in layers] == [
        ((third.problem, third.gradients), (second.problem, second.gradients)),
        ((third.problem, third.gradients),),
        (),
    ]
    assert points[first, NETWORK].gradients == (True, False, False)
    assert all(points[layer, "warm"].before == () for layer in layers)
