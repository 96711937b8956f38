"""Does an error about a plan name its gradient and its file, and does a result say what a plan pads?"""

import json

import numpy as np
import pytest

from ascendsim import ConvProblem, Plan, Tiling, convolution_backward, estimate, matmul, read_plans
from ascendsim.cli import main
from ascendsim.errors import CapacityError, ConfigError

P = ConvProblem((1, 64, 14, 14), (64, 64, 3, 3), padding=1)
BOTH = (True, True, False)
WIDE = Tiling(512, 512, 512)  # 512 x 512 float32 sums are 1 MiB, L0C has 128 KiB


def written(tmp_path, made, plan, name="plan.json"):
    path = tmp_path / name
    path.write_text(json.dumps({made: plan}))
    return path


@pytest.mark.parametrize(("gradient", "nest"), [("grad_input", "dgrad"), ("grad_weight", "wgrad")])
@pytest.mark.parametrize("engine", ["compiled", "simpy"])
def test_a_whole_plan_that_does_not_fit_names_its_gradient(gradient, nest, engine):
    with pytest.raises(CapacityError, match=rf"^tiling of {gradient}: L0[ABC] of 910B2 holds") as told:
        estimate(P, output_mask=BOTH, tiling={gradient: Plan(nest, WIDE)}, engine=engine)
    assert told.value.buffer in ("L0A", "L0B", "L0C")


def test_so_does_one_that_is_executed_without_cycles():
    # Parts that arrive in some order have to be executed: no product in one go says their bits.
    tensors = [np.zeros(shape, np.float16) for shape in (P.grad_output, P.input, P.weight)]
    rest = None, 1, 1, 1, False, 0, 1, (False, True, False), 0
    with pytest.raises(CapacityError, match=r"^tiling of grad_weight: L0"):
        convolution_backward(*tensors, *rest, tiling=WIDE, timing=True, order=3)


def test_so_does_a_matrix_product():
    with pytest.raises(CapacityError, match=r"^tiling of matmul: L1"):
        matmul(np.zeros((512, 512), np.float16), np.zeros((512, 512), np.float16), tiling=WIDE)


@pytest.mark.parametrize(
    ("gradient", "nest", "field"),
    [
        ("grad_input", "dgrad_shares", "single_core_n"),
        ("grad_input", "dgrad_split", "single_core_n"),
        ("grad_weight", "wgrad_shares", "single_core_m"),
        ("grad_weight", "wgrad_stream", "single_core_m"),
    ],
)
def test_tasks_end_where_groups_of_channels_end(gradient, nest, field):
    def of(size):
        return estimate(P, output_mask=BOTH, tiling={gradient: {"schedule": nest, field: size}})

    with pytest.raises(ConfigError, match=rf"{gradient}: {field} is 24, which is no multiple of 16; take 32"):
        of(24)
    # Of 64 channels these are all.
    for size in (32, 64, 100):
        assert getattr(of(size).plans[gradient].tiling, field) == size


# Whole, in part, in the vendor's names; and one that breaks a rule of its nest.
WRONG = {
    "whole": ("grad_weight", Plan("wgrad", WIDE).to_dict(), CapacityError, "L0"),
    "part": (
        "grad_input",
        {"base_m": 128, "base_k": 1024, "al0_buffers": 2},
        CapacityError,
        "with base_m",
    ),
    "vendor": (
        "grad_input",
        {"baseM": 128, "baseK": 1024, "al0Pbuffer": 2},
        CapacityError,
        "with base_m",
    ),
    "rule": ("grad_weight", {"base_m": 100}, ConfigError, "base_m is 100, which is no multiple of 16"),
    "unread": (
        "grad_input",
        Plan("dgrad", Tiling(64, 64, 64, strip_w=8)).to_dict(),
        ConfigError,
        "strip_w",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_plan_of_a_file_names_the_file_too(name, tmp_path):
    gradient, plan, error, reason = WRONG[name]
    path = written(tmp_path, gradient, plan)
    for given in (path, read_plans(path).plans):
        with pytest.raises(error) as told:
            estimate(P, output_mask=BOTH, tiling=given, product="910_95")
        assert str(told.value).startswith(f"{path}: tiling of {gradient}: {reason}"), told.value
        assert str(told.value).count(str(path)) == 1


def test_the_file_of_an_equal_plan_before_is_not_named(tmp_path):
    # Kernels of equal calls are remembered; where their plans came from is each call's own affair.
    for name in ("first.json", "second.json"):
        path = written(tmp_path, "grad_weight", Plan("wgrad", WIDE).to_dict(), name)
        tensors = [np.zeros(shape, np.float16) for shape in (P.grad_output, P.input, P.weight)]
        rest = None, 1, 1, 1, False, 0, 1, BOTH, 0
        with pytest.raises(CapacityError) as told:
            convolution_backward(*tensors, *rest, tiling=path)
        assert str(told.value).startswith(f"{path}: tiling of grad_weight: ")


def test_the_command_line_says_it_in_one_line(tmp_path, capsys):
    path = written(tmp_path, "grad_weight", Plan("wgrad", WIDE).to_dict())
    assert main(["run", "s3b1_3x3", "--tiling", str(path)]) != 0
    assert f"{path}: tiling of grad_weight: L0" in capsys.readouterr().err


# What is padded


def notes(tiling, **options):
    return estimate(P, output_mask=(True, False, False), tiling=tiling, **options).notes


@pytest.mark.parametrize("tiling", [{"base_m": 100}, Tiling(100, 64, 64)], ids=["part", "whole"])
def test_rows_that_are_multiplied_for_nothing_are_told(tiling):
    # 100 pixels are seven fractals of 16 rows: 112, of which 12 hold nothing.
    told = [note for note in notes(tiling) if "base_m" in note]
    assert told == [
        "base_m of grad_input is 100, no multiple of 16: the cube multiplies 112 rows for a whole block, the "
        "last 12 for nothing."
    ]


@pytest.mark.parametrize("tiling", [None, "search", {"base_m": 96}, {"base_m": 196}], ids=str)
def test_nothing_is_told_of_whole_fractals_whole_images_and_plans_by_rule(tiling):
    # 14 x 14 = 196 pixels are one block: no other base_m would multiply fewer rows.
    assert not [note for note in notes(tiling) if "base_m" in note]


@pytest.mark.parametrize(
    ("gradient", "part", "told"),
    [
        ("grad_input", {"base_m": 512, "base_n": 16}, "base_m is 512 for 196 pixels of an image"),
        ("grad_weight", {"base_m": 512, "base_n": 16}, "base_m is 512 for 64 rows"),
        ("grad_weight", {"base_m": 16, "base_n": 1024}, "base_n is 1024 for 576 columns"),
        # 196 pixels begin a thirteenth fractal, which 208 fill.
        ("grad_input", {"base_m": 208}, ""),
        ("grad_input", {"base_n": 64}, ""),
    ],
)
def test_blocks_larger_than_what_they_cut_are_told(gradient, part, told):
    mask = gradient == "grad_input", gradient == "grad_weight", False
    found = [note for note in estimate(P, output_mask=mask, tiling=part).notes if "cut to what" in note]
    assert found == ([f"Blocks of {gradient} are cut to what there is: {told}."] if told else [])
