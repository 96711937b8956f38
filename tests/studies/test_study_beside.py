"""Is a plan of one's own set beside the usual one, with all that differs, in numbers that add up?"""

import json
from pathlib import Path

import pytest

from ascendsim import ConvProblem, Tiling, estimate, load_profile
from ascendsim.cli import main
from ascendsim.report.studies.beside import beside_record, beside_sentence, beside_tables
from ascendsim.studies.tuning.records import TilingQuestion
from ascendsim.studies.tuning.study import set_beside
from ascendsim.timing.times import bytes_by_pipe

LAYER = ConvProblem((2, 64, 14, 14), (64, 64, 3, 3), 1, 1)
OWN = Path(__file__).parents[2] / "examples" / "04_your_own_schedule.py"
WORDS = ("study", "tiling", "s3b1_3x3", "--l2-start", "warm")


def question(gradient="grad_input", starts=("warm", "cold"), margin=0.0):
    return TilingQuestion("a layer", "910B2", LAYER, gradient, starts=starts, margin=margin)


@pytest.fixture
def file(tmp_path):
    """A part of a plan of grad_input, and one of a single layer."""
    path = tmp_path / "mine.toml"
    path.write_text("[grad_input]\nbase_m = 64\n[s3b2_3x3.grad_input]\nbase_m = 32\n")
    return path


@pytest.mark.parametrize("gradient", ["grad_input", "grad_weight"])
def test_every_group_of_cycles_adds_up_and_both_sides_are_those_of_estimates(gradient):
    given = {"base_m": 32, "base_n": 32}
    record = beside_record(set_beside(question(gradient), given))
    mask = (gradient == "grad_input", gradient == "grad_weight", False)
    for at, own in enumerate(({}, {"tiling": {gradient: given}})):
        for started in record["starts"]:
            call = {"product": "910B2", "output_mask": mask, "l2_start": started["l2_start"]}
            kernels = [k for k in estimate(LAYER, **call, **own).kernels if k.kernel.op_type != "TransData"]
            [product] = [kernel for kernel in kernels if kernel.name == gradient]
            assert started["cycles"][at] == sum(kernel.cycles for kernel in kernels)
            assert started["times_us"][at] == sum(kernel.time_us for kernel in kernels)
            for parts in ("stages", "M"):
                assert sum(sides[at] for sides in started[parts].values()) == started["cycles"][at]
            moved = {name: sides[at] for name, sides in started["bytes"].items()}
            assert moved["MTE2"] == product.bytes["l2_read"]
            assert moved.get("FIX", 0) + moved.get("MTE3", 0) == product.bytes["l2_write"]
            assert moved.get("from memory", 0) == product.bytes["memory_read"]


def test_bytes_of_mte1_are_those_of_the_tiles_that_it_fills():
    # 16 x 16 pixels of 16 channels, 1 x 1 taps, one base block: one tile of 256 x 16 and one of 16 x 16, of
    # 2 bytes an element.
    one = ConvProblem((1, 16, 16, 16), (16, 16, 1, 1))
    result = estimate(one, product="910B2", output_mask=(True, False, False), tiling=Tiling(256, 16, 16))
    [product] = [kernel for kernel in result.kernels if kernel.plan]
    assert bytes_by_pipe(product.kernel, load_profile("910B2"))["MTE1"] == 2 * (256 * 16 + 16 * 16)


def test_fields_that_are_alike_are_left_out():
    plans, *cycles = beside_tables(set_beside(question(starts=("warm",)), {"base_m": 32}))
    told = {row[0]: row[1:] for row in plans.rows}
    assert told["base_m"][1] == "32"
    assert told["chosen by"] == ("product", "user, rest product")
    assert "base_k" not in told
    assert len(cycles) == 1


def test_the_sentence_says_what_the_plan_costs_and_whether_the_model_can_tell():
    found = set_beside(question(starts=("warm",)), {"base_m": 16, "base_n": 16})
    assert "the given plan costs " in beside_sentence(found)
    wide = set_beside(question(starts=("warm",), margin=1e9), {"base_m": 16, "base_n": 16})
    assert "the model's own error" in beside_sentence(wide)
    usual = estimate(LAYER, product="910B2", output_mask=(True, False, False)).plans["grad_input"]
    assert beside_sentence(set_beside(question(), usual)).endswith("the given plan is the usual one.")


def test_the_command_takes_a_file_and_a_nest_of_ones_own(file, tmp_path, capsys):
    assert main([*WORDS, "--plan", str(file), "--schedule", f"{OWN}:WeightsStay", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["given"]["schedule"], record["given"]["base_m"]) == ("weights_stay", 64)
    assert record["usual"]["chosen_by"] == "product"
    assert main([*WORDS, "--plan", str(file), "--out", str(tmp_path)]) == 0
    assert "What differs in the plan" in capsys.readouterr().out
    assert "bytes by MTE2" in (tmp_path / "study.html").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--gradient", "weight"), "has no plan of grad_weight for s3b1_3x3 (but of grad_input)"),
        (("--write-plan", "x.toml"), "--write-plan is of plans that are searched"),
        (("--product", "910B", "--product", "910_95"), "and 2 calls (of layers and products) are asked for"),
        (("--schedule", "wgrad"), "which makes grad_weight"),
    ],
)
def test_what_does_not_go_with_it_is_refused(refusal, file, words, message):
    assert message in refusal(*WORDS, "--plan", str(file), *words)
