"""Are the gradients right, bit for bit, in every legal order, and of any random call?"""

import random
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ascendsim
import fuzz.__main__ as fuzzing
from ascendsim import ConvProblem, convolution_backward, estimate, precision
from ascendsim.errors import STATUS_NAMES, AclnnError
from ascendsim.numerics.casts import decode, encode
from ascendsim.numerics.dtypes import dtype as lookup_dtype
from ascendsim.ops.reference.call import reference_gradients
from ascendsim.ops.reference.float64 import gradients_float64
from ascendsim.ops.reference.ordered import TWIN_LIMIT_MACS
from ascendsim.profile import load_profile
from fuzz.draws import any_problem, any_view
from fuzz.judge import WrongError, must
from fuzz.nasty import APART, DOORS
from fuzz.odd import ODD
from tests.helpers.calls import GRADIENTS as RANDOM_GRADIENTS
from tests.helpers.calls import as_carrier, calls, check_against_reference, gradients, with_changes
from tests.helpers.conv_cases import (
    DATA,
    GRADIENTS,
    MODES,
    SPLIT,
    UNIFIED,
    Case,
    assert_same_bits,
    call_of,
    check_bits,
    dress,
    filter_schedule,
    grid_2d,
    is_atomic,
    other_ranks,
    problems,
    run,
)

# --- Are the gradients right, bit for bit, in every legal order? ---------------------------------------

GRID = [*grid_2d(), *other_ranks()]
# Eight images in as many parts on five cores; the sums of random data depend on the order.
SPLIT_SUMS = Case(ConvProblem((8, 3, 4, 4), (5, 3, 3, 3), 1, 1), "float32", splits=(0, 8))
ORDERS = ("program", "arrival", 0, 1, 2, 3)


@cache
def load(product):
    return load_profile(product)


# --- bits equal the ordered reference


@pytest.mark.parametrize("case", GRID, ids=str)
def test_the_gradients_are_those_of_the_ordered_reference(case):
    check_bits(case, "program", "arrival", case.seed, case.seed + 1)


def test_the_grid_reaches_what_it_is_for():
    calls = [case.call() for case in GRID]
    assert {(case.dtype, case.cube_math_type) for case in GRID} == set(MODES)
    assert {case.data for case in GRID} == set(DATA)
    assert {case.profile for case in GRID} == {SPLIT, UNIFIED}
    by_twin = sum(case.problem.macs < TWIN_LIMIT_MACS for case in GRID)
    assert len(GRID) // 2 <= by_twin <= len(GRID) - 15
    kinds = Counter(
        "atomic" if is_atomic(call) else "in order" if filter_schedule(call).tiling.k_split > 1 else "whole"
        for call in calls
    )
    assert min(kinds[kind] for kind in ("atomic", "in order", "whole")) >= 10


@pytest.mark.slow
@pytest.mark.parametrize("case", [*grid_2d(seed=7, per_shape=2), *other_ranks(7), *other_ranks(8)], ids=str)
def test_more_of_the_grid_in_every_order(case):
    check_bits(case, *ORDERS)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(problem=problems(most_channels=18, most_pixels=60), seed=st.integers(0, 10**6))
def test_random_problems_have_the_gradients_of_the_ordered_reference(problem, seed):
    check_bits(dress(random.Random(seed), problem))


@pytest.mark.slow
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(problem=problems(most_channels=40, most_pixels=150), seed=st.integers(0, 10**6))
def test_many_random_problems_have_the_gradients_of_the_ordered_reference(problem, seed):
    check_bits(dress(random.Random(seed), problem))


@pytest.mark.parametrize(
    "model",
    [
        "seq:RNE",
        "block:4:RNE",
        "block:32:RZ",
        "exact:RNE",
        "exact-mmad:RNE",
        "align:cube_k:F24:RZ:acc",
        "tree:16:halves:RNE",
    ],
)
@pytest.mark.parametrize("case", GRID[5::16], ids=str)
def test_other_accumulation_models_change_both_alike(case, model):
    check_bits(replace(case, accumulation=model))


# --- orders


@pytest.mark.parametrize("case", GRID[::12], ids=str)
def test_without_atomic_additions_every_order_gives_the_same_bits(case):
    case = replace(case, deterministic=True)
    call, tensors = case.call(), case.tensors()
    results = [run(call, tensors, order)[0] for order in ORDERS]
    for result in results[1:]:
        for name in GRADIENTS:
            assert_same_bits(result[name], results[0][name], name)


def test_atomic_additions_give_the_sum_in_the_order_of_arrival():
    check_bits(SPLIT_SUMS, *ORDERS)


def test_the_order_of_atomic_additions_is_part_of_the_answer():
    call, tensors = SPLIT_SUMS.call(), SPLIT_SUMS.tensors()
    made = [run(call, tensors, seed)[0]["grad_weight"].tobytes() for seed in range(6)]
    assert len(set(made)) > 1


def test_parts_that_are_kept_apart_are_added_in_order_whatever_the_order_of_execution():
    case = replace(SPLIT_SUMS, deterministic=True)
    made = [run(case.call(), case.tensors(), order)[0]["grad_weight"].tobytes() for order in ORDERS]
    assert len(set(made)) == 1
    check_bits(case)


def test_arrival_order_is_the_order_of_the_timeline():
    # Of the parts of one core the first comes first; of all parts of an element each comes once.
    _, arrivals = run(SPLIT_SUMS.call(), SPLIT_SUMS.tensors(), "arrival")
    assert (np.sort(arrivals, axis=0) == np.arange(8).reshape(8, 1, 1, 1, 1)).all()


# --- whole numbers on real products


LAYERS = [
    ConvProblem((2, 40, 14, 15), (33, 40, 3, 3), 1, 1),
    ConvProblem((2, 40, 15, 14), (33, 40, 3, 3), 2, 1),
    ConvProblem((1, 3, 38, 40), (64, 3, 7, 7), 2, 3),
    ConvProblem((2, 64, 9, 9), (96, 64, 1, 1), 2),
    ConvProblem((2, 24, 12, 12), (24, 6, 3, 3), 1, 1, groups=4),
    ConvProblem((2, 24, 9, 8), (24, 20, 4, 4), 2, 1, transposed=True),
    ConvProblem((1, 8, 6, 9, 9), (20, 8, 3, 3, 3), 1, 1),
]


@pytest.mark.parametrize("product", ["910B", "910_93", "910_95", "310P", "910"])
@pytest.mark.parametrize("problem", LAYERS, ids=lambda p: "x".join(map(str, p.weight)))
def test_whole_numbers_give_the_gradients_of_float64_on_every_product(problem, product):
    # At most 2 * 4 * (products per output) < 2^11: exact even in float16.
    rng = np.random.default_rng(1)
    shapes = {"grad_output": problem.grad_output, "input": problem.input, "weight": problem.weight}
    sparse = {
        name: (rng.integers(-1, 2, shape) * (rng.random(shape) < 0.3)).astype(np.float32)
        for name, shape in shapes.items()
    }
    got, _ = run(call_of(problem, "float16", profile=load(product)), sparse)
    for name, want in zip(GRADIENTS, gradients_float64(problem, **sparse), strict=True):
        assert np.abs(want).max() <= 2048
        assert np.array_equal(got[name], want), name


# --- the error against real numbers is bounded by what the model may lose


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_the_error_against_float64_is_within_the_bound_of_the_model(dtype):
    problem = ConvProblem((2, 20, 9, 10), (24, 20, 3, 3), 1, 1)
    case = Case(problem, dtype, deterministic=True)
    tensors = case.tensors()
    got, _ = run(case.call(), tensors)
    exact = gradients_float64(problem, **tensors)
    sizes = gradients_float64(problem, **{name: np.abs(values) for name, values in tensors.items()})
    # A sum of n products takes fewer than n + 20 roundings (one for each block, part or lane), each of at
    # most 2^-24 of what is summed in magnitude, to first order; then one rounding to the output format.
    lengths = {"grad_input": 9 * 24, "grad_weight": 2 * 90, "grad_bias": 2 * 90}
    unit = 2.0 ** -(lookup_dtype(dtype).mantissa_bits + 1)
    for name, want, size in zip(GRADIENTS, exact, sizes, strict=True):
        in_sum = size * (lengths[name] + 20) * 2.0**-24
        assert (np.abs(got[name] - want) <= in_sum + (np.abs(want) + in_sum) * unit).all(), name


# --- through the user's function


def api(case, tensors, **keywords):
    p = case.problem
    stored = [encode(tensors[name], case.dtype) for name in ("grad_output", "input", "weight")]
    attributes = (p.stride, p.padding, p.dilation, p.transposed, p.output_padding, p.groups)
    mask = keywords.pop("output_mask", (True, True, True))
    bias_sizes = (p.grad_output[1],)
    return convolution_backward(*stored, bias_sizes, *attributes, mask, case.cube_math_type, **keywords)


@pytest.mark.parametrize(("dtype", "cube_math_type"), MODES)
def test_the_function_returns_the_reference_in_the_tensors_own_formats(dtype, cube_math_type):
    profile = load("910B")
    case = Case(ConvProblem((2, 18, 7, 6), (20, 18, 3, 3), 2, 1), dtype, cube_math_type, profile=profile)
    tensors = case.tensors()
    result = api(case, tensors, deterministic=True)
    want = reference_gradients(replace(case, deterministic=True).call(), **tensors)
    for name in GRADIENTS:
        got = getattr(result, name)
        assert got.dtype == lookup_dtype(dtype).storage
        assert_same_bits(decode(got, dtype), want[name], name)


def test_only_what_is_asked_for_is_computed():
    case = Case(ConvProblem((1, 4, 5, 5), (4, 4, 3, 3)))
    tensors = case.tensors()
    every = api(case, tensors)
    for wanted in range(1, 8):
        mask = tuple(bool(wanted >> bit & 1) for bit in range(3))
        result = api(case, tensors, output_mask=mask)
        for name, asked in zip(GRADIENTS, mask, strict=True):
            got = getattr(result, name)
            assert (got is not None) == asked
            assert not asked or got.tobytes() == getattr(every, name).tobytes()
        assert {k.name for k in result.kernels} <= {k.name for k in every.kernels}


@pytest.mark.parametrize(("order", "named"), [("program", "program"), ("arrival", "arrival"), (3, "seed 3")])
def test_the_result_names_the_order(order, named):
    case = Case(ConvProblem((1, 4, 5, 5), (4, 4, 3, 3)))
    assert api(case, case.tensors(), order=order).order == named


@pytest.mark.slow
def test_a_layer_of_resnet_equals_the_reference():
    # ResNet-50 v1.5, 128 -> 128 channels, 3 x 3 on 28 x 28
    problem = ConvProblem((2, 128, 28, 28), (128, 128, 3, 3), 1, 1)
    case = Case(problem, profile=load("910B"), deterministic=True)
    check_bits(case, "program", "arrival", 5)
    check_bits(replace(case, deterministic=False), "arrival")


# -------------------------------------------------------------------------------------------------------
# Do random calls of every kind give the bits of the ordered reference, and the cycles of an estimate?
# -------------------------------------------------------------------------------------------------------

USUAL = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
LONG = settings(USUAL, max_examples=3000)


def has_all_it_asks_for(case, result):
    shapes = (case.problem.input, case.problem.weight, (case.problem.grad_output[1],))
    for name, got, shape, wanted in zip(RANDOM_GRADIENTS, gradients(result), shapes, case.mask, strict=True):
        assert (got is not None) == wanted, name
        if wanted:
            assert got.shape == shape, name


def check_bits_random(case):
    has_all_it_asks_for(case, check_against_reference(case))


@USUAL
@given(case=calls())
def test_bits_equal_the_reference(case):
    check_bits_random(case)


@pytest.mark.slow
@LONG
@given(case=calls())
def test_bits_equal_the_reference_at_length(case):
    check_bits_random(case)


@settings(USUAL, max_examples=12)
@given(case=calls())
def test_any_legal_order_gives_the_same_bits(case):
    # Parts that are added atomically depend on the order; kept apart, nothing does.
    case = with_changes(case, deterministic=True)
    first, second, third = (
        gradients(with_changes(case, order=order).run()) for order in ("program", "arrival", 7)
    )
    for a, b, c in zip(first, second, third, strict=True):
        if a is not None:
            assert as_carrier(a).tobytes() == as_carrier(b).tobytes() == as_carrier(c).tobytes()


@settings(USUAL, max_examples=25)
@given(case=calls())
def test_an_estimate_has_the_cycles_of_the_run(case):
    result = case.run()
    strides = {
        name: tuple(step // array.itemsize for step in array.strides)
        for name, array in zip(("grad_output", "input", "weight"), plain_codes(case.arrays()), strict=True)
    }
    options = case.options | {"output_mask": case.mask, "strides": strides}
    expected = estimate(case.problem, case.dtypes, case.cube_math_type, **options)
    assert [kernel.name for kernel in expected.kernels] == [kernel.name for kernel in result.kernels]
    assert expected.cycles == result.cycles
    assert (expected.compute_dtype, expected.accumulation) == (result.compute_dtype, result.accumulation)


def plain_codes(arrays):
    """The numpy arrays that lie in memory: codes for hifloat8."""
    return [getattr(array, "codes", array) for array in arrays]


@settings(USUAL, max_examples=25)
@given(case=calls())
def test_a_call_counts_each_kernel_once(case):
    result = case.run()
    names = [kernel.name for kernel in result.kernels]
    assert len(set(names)) == len(names)
    assert result.cycles == sum(kernel.cycles for kernel in result.kernels)
    assert sum(kernel.macs > 0 for kernel in result.kernels) == sum(case.mask[:2])
    assert all(kernel.cycles > 0 for kernel in result.kernels)
    strided = sum(not array.flags.c_contiguous for array in plain_codes(case.arrays()))
    assert sum(name.startswith("contiguous") for name in names) == strided


def test_rules_answer_before_anything_is_computed():
    from ascendsim.ops.problems.convolution import ConvProblem
    from tests.helpers.calls import ApiCall

    case = ApiCall(ConvProblem((1, 2, 3, 3, 3), (2, 2, 1, 1, 1)), product="310P")
    with pytest.raises(AclnnError, match="161002") as caught:
        case.run()
    assert caught.value.status == 161002
    assert isinstance(caught.value, ValueError)


# --- Do random calls at every door come to an answer, and does the fuzzer see one that does not? -------

ROOT = Path(__file__).parents[2]
TORCH = {"Record", *(f"Conv{way}{axes}d" for way in ("", "Transpose") for axes in (1, 2, 3)), "record"}
# So many calls take some seconds; those that compute take longest.
CALLS = {"status": 500, "definition": 8, "two_phases": 8, "views": 15, "tbc": 15}
CALLS |= {"gradients_only": 30, "torch_layers": 30}
CALLS |= {"nasty": 1000, "call_file": 60, "rule_file": 60}
# A study that is killed, and a command that is interrupted, start processes.
CALLS |= {"damaged_file": 100, "damaged_store": 6, "command_line": 30, "killed_study": 1, "interrupted": 2}


# One killed study is among the tests of studies.
SLOW = {"killed_study"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in fuzzing.FUZZERS]
)
def test_random_calls_are_answered(name):
    outcomes, failures = fuzzing.fuzz([name], seed=0, seconds=0, calls=CALLS[name])
    assert not failures, "\n".join(failures.values())
    assert outcomes[name].total() == CALLS[name]


def test_every_door_is_drawn_with_its_own_arguments():
    """A new export is fuzzed the day it opens, but for those that are named apart."""
    drawn = {function.__name__ for function, _ in DOORS}
    exported = {*ascendsim.__all__, *precision.__all__} - APART
    errors = {name for name in exported if name.endswith("Error")}
    assert exported - errors <= drawn
    assert {*ascendsim.__all__, *precision.__all__, *TORCH} >= APART
    # Options are read from what a function takes, so that a new one is drawn, too.
    usual = {function.__name__: usual for function, usual in DOORS}
    assert {"most_instructions", "engine", "fixpipe"} <= set(usual["convolution_backward"])
    assert "most_instructions" in usual["matmul"]


def test_the_usual_arguments_are_right_ones():
    # Odd ones among wrong ones would all be refused for the wrong ones.
    # What has no usual value, and what computes: that is run by tests of its own.
    apart = {"read_plans", "identify", "format_of", "estimate_many", "quantise", "error_metrics"}
    apart |= {"convolution_backward", "conv_tbc_backward", "matmul", "convolution", "check_schedule"}
    for function, usual in DOORS:
        if function.__name__ not in apart | {"spread", "attribute"}:
            function(**usual)


def test_the_mixture_of_calls_is_worth_its_name():
    counts = fuzzing.fuzz(["status"], seed=7, seconds=0, calls=1000)[0]["status"]
    # Many pass; 561103, of well-formed calls that no kernel takes, is rare among random ones.
    assert counts["0"] > 80
    assert {"0", "161001", "161002"} <= set(counts) <= {"0", *map(str, STATUS_NAMES)}


@pytest.mark.slow
@pytest.mark.parametrize("name", fuzzing.FUZZERS)
def test_many_random_calls_are_answered(name):
    _, failures = fuzzing.fuzz([name], seed=1, seconds=0, calls=40 * CALLS[name])
    assert not failures, "\n".join(failures.values())


def test_a_call_is_drawn_from_its_name_seed_and_number_alone(monkeypatch):
    drawn = []
    monkeypatch.setitem(fuzzing.FUZZERS, "tbc", lambda pick: drawn.append(pick.random()) or "ran")
    fuzzing.fuzz(["tbc"], seed=5, seconds=0, calls=4)
    fuzzing.run("tbc", 5, 3)
    fuzzing.run("tbc", 6, 3)
    assert drawn[4] == drawn[3] != drawn[5]
    assert len(set(drawn)) == 5


def out_of_bounds(pick):
    must(pick.random() < 0.5, "half of them fail")
    return [0][1 if pick.random() < 0.5 else 0] or "ran"


def test_a_failure_says_what_to_paste(monkeypatch, capsys):
    monkeypatch.setitem(fuzzing.FUZZERS, "tbc", out_of_bounds)
    monkeypatch.setattr(sys, "argv", ["fuzz", "--only", "tbc", "--seed", "3", "--calls", "40"])
    assert fuzzing.main() == 1
    said = capsys.readouterr().out
    # Two kinds of failure, told once each, with the first call that has it.
    lines = [line for line in said.splitlines() if "To see this again" in line]
    assert len(lines) == 2
    for line, error in zip(lines, (WrongError, IndexError), strict=True):
        number = int(line.rpartition(" ")[2].rstrip("'"))
        assert line.endswith(f"make fuzz FUZZ='--only tbc --seed 3 --call {number}'")
        with pytest.raises((WrongError, IndexError)) as caught:
            fuzzing.run("tbc", 3, number)
        assert caught.type in (WrongError, IndexError), error
    assert "half of them fail" in said
    assert "IndexError" in said


def test_a_slow_or_greedy_refusal_is_a_failure(monkeypatch):
    clock = iter((0.0, 6.0, 0.0, 0.0))
    monkeypatch.setattr(fuzzing.time, "process_time", lambda: next(clock))
    monkeypatch.setitem(fuzzing.FUZZERS, "tbc", lambda _: "161002")
    with pytest.raises(WrongError, match=r"a refusal took 6\.0 s"):
        fuzzing.run("tbc", 0, 0)
    peak = iter((0, 2**30))
    monkeypatch.setattr(fuzzing, "_peak_bytes", lambda: next(peak))
    with pytest.raises(WrongError, match="a refusal took 1024 MiB"):
        fuzzing.run("tbc", 0, 0)


def test_what_was_computed_may_take_its_time(monkeypatch):
    monkeypatch.setattr(fuzzing, "MOST_SECONDS", -1.0)
    monkeypatch.setitem(fuzzing.FUZZERS, "tbc", lambda _: "ran")
    assert fuzzing.run("tbc", 0, 0) == "ran"


def test_the_command_runs():
    command = [sys.executable, "-m", "fuzz", "--calls", "2", "--only", "status", "--only", "nasty"]
    done = subprocess.run(
        command, cwd=ROOT, env={"PYTHONPATH": f"tools:{ROOT}"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("status: 2 calls: ")


def test_problems_are_of_every_kind():
    pick = random.Random(0)
    drawn = [any_problem(pick, 10**5) for _ in range(300)]
    assert {problem.rank for problem in drawn} == {1, 2, 3}
    assert {problem.transposed for problem in drawn} == {True, False}
    assert max(problem.groups for problem in drawn) > 2
    assert any(len(problem.padding) == 4 for problem in drawn)
    assert all(problem.macs <= 10**5 for problem in drawn)


def test_views_hold_the_values_they_are_made_of():
    import numpy as np

    pick, array = random.Random(0), np.arange(60.0).reshape(3, 4, 5)
    made = [any_view(pick, array) for _ in range(50)]
    assert all(np.array_equal(view, array) for view in made)
    assert sum(not view.flags.c_contiguous for view in made) > 20
    assert any(min(view.strides) < 0 for view in made)


def test_odd_values_are_many():
    assert len(ODD) > 60
