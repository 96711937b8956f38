"""Does everything that a user may hold pickle and copy, and come back alike?"""

import copy
import pickle
import pickletools
from dataclasses import FrozenInstanceError, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import ascendsim
from ascendsim import (
    ConvProblem,
    MatmulProblem,
    Plan,
    Tiling,
    aclnn,
    conv_tbc_backward,
    convolution_backward,
    errors,
    estimate,
    estimate_matmul,
    load_profile,
    matmul,
)
from ascendsim.functional import run_kernel
from ascendsim.numerics.casts import round_to
from ascendsim.numerics.hifloat8 import HiFloat8Array
from ascendsim.ops.results import Estimate
from ascendsim.ops.schedules.dgrad.nest import DgradColumnsOuter
from ascendsim.profile import list_products
from ascendsim.program.program import ProgramBuilder
from ascendsim.report.document import CallReport, run_document
from ascendsim.report.folder import write_run_folder
from ascendsim.rules.loader import load_rules, rule_set_names
from ascendsim.timing.kernel import time_kernel
from tests.helpers.report_samples import assert_alike

SMALL = ConvProblem((1, 16, 6, 6), (32, 16, 3, 3), padding=1)
MANY = {  # every kind of kernel, on split and unified cores, folded or not
    "910B": lambda: estimate(SMALL, product="910B"),
    "910": lambda: estimate(SMALL, product="910"),
    "310P, cold": lambda: estimate(SMALL, product="310P", l2_start="cold"),
    "910_95 in hifloat8": lambda: estimate(
        replace(SMALL, transposed=True, weight=(16, 32, 3, 3)), "hifloat8", product="910_95", rules="hardware"
    ),
    "HF32": lambda: estimate(SMALL, "float32", 1),
    "casts": lambda: estimate(SMALL, ("float16", "float32", "float16")),
    "strided": lambda: estimate(SMALL, strides={"input": (576, 1, 96, 16)}),
    "parts in order": lambda: estimate(SMALL, deterministic=True, tiling={"grad_weight": split_k()}),
    "parts as a tree": lambda: estimate(
        SMALL, product="910_95", deterministic=True, tiling={"grad_weight": split_k()}
    ),
    "parts as they arrive": lambda: estimate(SMALL, deterministic=False, tiling={"grad_weight": split_k()}),
    "another nest": lambda: estimate(SMALL, schedule="dgrad_columns_outer"),
    "own nest": lambda: estimate(SMALL, schedule=OwnNest),
    "groups in 3-D": lambda: estimate(ConvProblem((1, 32, 3, 5, 5), (32, 16, 2, 3, 3), groups=2)),
    "matrices": lambda: estimate_matmul(MatmulProblem(40, 70, 90)),
    "int8": lambda: estimate_matmul(MatmulProblem(40, 70, 90), "int8"),
    "gradients": lambda: gradients(),
    "gradients as they arrive": lambda: gradients(order="arrival", deterministic=False),
    "product": lambda: matmul(*(tensor(shape) for shape in ((20, 30), (30, 40)))),
    "tbc": lambda: conv_tbc_backward(
        *(tensor(shape) for shape in ((4, 1, 32), (4, 1, 16), (1, 16, 32), (32,))), 0, 0
    ),
}


class OwnNest(DgradColumnsOuter):
    """A loop nest of a user's own, whose signatures are read off its programs."""

    name = "own nest"

    def program(self, tasks):
        return super().program(tasks)


def split_k():
    return Tiling(base_m=16, base_n=16, base_k=16, k_split=3, used_cores=6)


def tensor(shape, dtype=np.float16):
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(dtype)


def gradients(**keywords):
    given = [tensor(shape) for shape in (SMALL.grad_output, SMALL.input, SMALL.weight)]
    return convolution_backward(*given, [32], 1, 1, 1, False, 0, 1, (True, True, True), 0, **keywords)


def sent(value):
    return pickle.loads(pickle.dumps(value))


@cache
def result(name):
    return MANY[name]()


# ---- Results


@pytest.mark.parametrize("how", [sent, copy.deepcopy], ids=["pickle", "deep copy"])
@pytest.mark.parametrize("name", MANY)
def test_a_result_comes_back_alike_to_the_last_span(name, how):
    assert_alike(result(name), how(result(name)))


@pytest.mark.parametrize("name", MANY)
def test_a_kernel_that_comes_back_is_timed_alike(name):
    # Not the spans that were kept: those of programs that what came back builds itself.
    variant = result(name).variant
    for kernel in result(name).kernels:
        profile = load_profile(variant)
        assert_alike(time_kernel(kernel.kernel, profile), time_kernel(sent(kernel.kernel), profile))


@pytest.mark.parametrize("name", ["gradients", "product", "parts in order", "strided", "own nest"])
def test_a_kernel_that_comes_back_makes_the_same_bits(name):
    for kernel in result(name).kernels:
        found = []
        for one in (kernel.kernel, sent(kernel.kernel)):
            read = [t for t in one.tensors.values() if t.role == "input"]
            given = {t.name: round_to(tensor(t.shape, np.float32), t.dtype) for t in read}
            run_kernel(one, given)
            found.append({name: values.tobytes() for name, values in given.items()})
        assert found[0] == found[1]
        # What it makes is among that, beside what it was given; a MemSet is given nothing.
        assert {t.name for t in one.tensors.values() if t.role == "output"} <= set(found[0])


@pytest.mark.parametrize("name", ["910B", "gradients as they arrive", "parts as a tree"])
def test_a_report_of_what_comes_back_is_the_same_to_the_byte(name, tmp_path):
    folders = []
    for number, one in enumerate((result(name), sent(result(name)))):
        run = CallReport(one, load_profile(one.variant))
        folder = tmp_path / str(number)
        write_run_folder(folder, run_document("a call", {}, [run], ["run"]), [run], trace_spans=50_000)
        folders.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert folders[0] == folders[1]
    assert {Path(name).suffix for name in folders[0]} >= {".json", ".png", ".md"}


@pytest.mark.parametrize("name", MANY)
def test_no_program_is_built_to_pickle_and_none_travels(name, monkeypatch):
    one = result(name)

    def refuse(*_):
        raise AssertionError("a program is built")

    monkeypatch.setattr(ProgramBuilder, "__init__", refuse)
    sent(one)
    words = {
        argument for _, argument, _ in pickletools.genops(pickle.dumps(one)) if isinstance(argument, str)
    }
    assert {"Kernel", "Retimed"} <= words
    assert not words & {"Program", "Template", "Mmad", "CopyGmToUb", "CoreTimeline"}


def test_a_call_of_many_images_is_no_larger_in_a_pickle():
    one, many = (
        len(pickle.dumps(estimate(replace(SMALL, input=(batch, 16, 6, 6)), product="310P")))
        for batch in (1, 64)
    )
    assert many < 1.1 * one  # numbers of more digits, and no more numbers


def test_a_result_without_timelines_is_the_same():
    one = result("910B")
    assert_alike(one, one.without_timelines())
    assert one.without_timelines() == one
    assert type(result("gradients").without_timelines()) is type(result("gradients"))


def test_a_timeline_is_worked_out_once():
    made = sent(result("910B")).kernels[0]
    assert made.timeline is made.timeline


@pytest.mark.parametrize("name", [name for name in MANY if type(result(name)) is Estimate])
def test_an_estimate_equals_what_comes_back(name):
    one = result(name)
    assert sent(one) == copy.deepcopy(one) == one


def test_estimates_that_say_something_else_differ():
    one = result("910B")
    assert estimate(SMALL, product="910B") == one
    assert estimate(replace(SMALL, input=(2, 16, 6, 6)), product="910B") != one
    longer = replace(one.kernels[0], cycles=one.kernels[0].cycles + 1)
    assert replace(one, kernels=(longer, *one.kernels[1:])) != one


def test_what_comes_back_is_frozen():
    again = sent(result("910B"))
    for record, name in ((again, "product"), (again.kernels[0], "cycles"), (again.kernels[0].kernel, "name")):
        with pytest.raises(FrozenInstanceError):
            setattr(record, name, None)


def test_gradients_come_back_bit_for_bit():
    again, one = sent(result("gradients")), result("gradients")
    for name in ("grad_input", "grad_weight", "grad_bias"):
        assert getattr(again, name).tobytes() == getattr(one, name).tobytes()
        assert getattr(again, name).dtype == getattr(one, name).dtype


def test_tensors_in_hifloat8_come_back():
    made = HiFloat8Array(np.arange(256, dtype=np.uint8))
    for again in (sent(made), copy.deepcopy(made)):
        assert again.codes.tobytes() == made.codes.tobytes()


# ---- What results are made of


@pytest.mark.parametrize(
    "name", [name for product in list_products() for name in (product.name, *product.variants)]
)
def test_a_profile_comes_back_alike_and_frozen(name):
    profile = load_profile(name)
    for again in (sent(profile), copy.deepcopy(profile)):
        assert_alike(profile, again)
        with pytest.raises(TypeError):
            again.figures["cores.cube"] = None
        with pytest.raises(FrozenInstanceError):
            again.variant = "mine"
    assert estimate(SMALL, product=again) == estimate(SMALL, product=name)


def test_a_profile_with_figures_of_ones_own_comes_back():
    profile = load_profile("910B", overrides={"scalar.issue_cycles": 3})
    assert_alike(profile, sent(profile))


@pytest.mark.parametrize("name", rule_set_names())
def test_a_rule_set_comes_back_alike(name):
    assert_alike(load_rules(name), sent(load_rules(name)))


@pytest.mark.parametrize(
    "value",
    [
        SMALL,
        MatmulProblem(40, 70, 90, transpose_a=True),
        split_k(),
        Plan("dgrad", Tiling(base_m=16, base_n=16, base_k=16)),
        Plan(OwnNest, Tiling(base_m=16, base_n=16, base_k=16)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_asked_comes_back_equal(value):
    value = copy.copy(value)
    assert sent(value) == copy.deepcopy(value) == value
    assert hash(sent(value)) == hash(value)


def test_the_plan_of_a_result_that_comes_back_gives_the_same_call():
    one = sent(result("910B"))
    plans = {kernel.name: kernel.plan for kernel in one.kernels if kernel.plan is not None}
    assert plans == {kernel.name: kernel.plan for kernel in result("910B").kernels if kernel.plan is not None}
    assert estimate(SMALL, tiling=plans).cycles == one.cycles


# ---- The two-phase interface


def executor(*, arrays):
    def made(shape):
        return aclnn.AclTensor(tensor(shape) if arrays else shape, "float16")

    shapes = SMALL.grad_output, SMALL.input, SMALL.weight
    given = [*(made(shape) for shape in shapes), [32], [1, 1], [1, 1], [1, 1], False, [0, 0], 1]
    outputs = [made(SMALL.input), made(SMALL.weight), None]
    mask = True, True, False
    return aclnn.convolution_backward_get_workspace_size(*given, mask, 0, *outputs)[1]


@pytest.mark.parametrize("arrays", [False, True])
def test_an_executor_comes_back_alike(arrays):
    one = executor(arrays=arrays)
    for again in (sent(one), copy.deepcopy(one)):
        assert_alike(one, again)
        assert (again.call, again.decision, again.workspace_size) == (
            one.call,
            one.decision,
            one.workspace_size,
        )


def test_an_executor_that_comes_back_runs_on_memory_of_its_own():
    one = executor(arrays=True)
    again = sent(one)
    before = one.tensors["grad_input"].array.copy()
    made = again.run(again.workspace_size)
    assert again.tensors["grad_input"].array.tobytes() == made.grad_input.tobytes()
    assert one.tensors["grad_input"].array.tobytes() == before.tobytes()
    assert one.run(one.workspace_size).grad_input.tobytes() == made.grad_input.tobytes()


# ---- Errors


@pytest.mark.parametrize(
    "kind",
    [
        kind
        for kind in vars(errors).values()
        if getattr(kind, "__module__", "") == errors.__name__ and isinstance(kind, type)
    ],
    ids=lambda kind: kind.__name__,
)
def test_an_error_comes_back_with_its_notes(kind):
    one = kind(161002, "1", "wrong") if kind is errors.AclnnError else kind("wrong")
    one.add_note("of item 3")
    again = sent(one)
    assert type(again) is kind
    assert (str(again), again.args, again.__notes__) == (str(one), one.args, ["of item 3"])
    assert vars(again) == vars(one)


# ---- Nothing new that does not travel


def test_no_file_makes_mapping_proxies():
    # They neither pickle nor copy; `FrozenMap` does.
    root = Path(ascendsim.__file__).parent
    found = [path for path in root.rglob("*.py") if "import MappingProxyType" in path.read_text()]
    assert found == []


def test_the_comparison_of_these_tests_sees_differences():
    one = result("910B")
    kernel = one.kernels[0]
    for name, value in (("cycles", kernel.cycles + 1), ("bound_by", "S"), ("busy", {})):
        with pytest.raises(AssertionError):
            assert_alike(one, replace(one, kernels=(replace(kernel, **{name: value}), *one.kernels[1:])))
    # A slot that became two would let an instruction pass that has to wait.
    program = kernel.timeline.phases[0].cores[0].program
    slot = program.slots[0]
    with pytest.raises(AssertionError, match="has become two"):
        assert_alike((slot, slot), (slot, copy.copy(slot)))
    with pytest.raises(AssertionError, match="two have become"):
        assert_alike((slot, copy.copy(slot)), (slot, slot))
