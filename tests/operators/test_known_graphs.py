"""Are the kernels of a call that is made again those of the first time, and those of another call others?"""

import gc
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from weakref import ref

import numpy as np
import pytest

from ascendsim import ConvProblem, convolution_backward
from ascendsim.ops.graph_times import known_times
from ascendsim.ops.lowering import known
from ascendsim.ops.lowering.call import Call
from ascendsim.ops.lowering.known import lower
from ascendsim.ops.plan import Plan
from ascendsim.ops.problems.strips import View
from ascendsim.ops.schedules import Dgrad
from ascendsim.profile import load_profile
from ascendsim.timing.kernel import measure_kernel
from tests.helpers.conv_cases import SPLIT, UNIFIED, call_of, split

BOTH = (True, True, False)
SMALL = ConvProblem((1, 20, 7, 6), (19, 20, 3, 3), padding=1)
DEVICE = load_profile("910B2")


class Own(Dgrad):
    """A schedule of the user's."""

    name = "own"


@pytest.fixture(autouse=True)
def _nothing_is_known():
    known._OWN.remembered.cache_clear()


def test_an_equal_call_has_the_same_kernels_and_programs():
    first, again = (known.known_graph(call_of(SMALL, profile=DEVICE), BOTH) for _ in range(2))
    assert again is first
    cube = [kernel for kernel in first.kernels if kernel.op_type.startswith("Conv")]
    assert len(cube) == 2
    for kernel in cube:
        for work in kernel.phases[-1].work:
            assert work.build() is work.build()


def chosen_by(name):
    call = call_of(SMALL)
    return replace(call, plans={key: replace(plan, chosen_by=name) for key, plan in call.plans.items()})


def written(form):
    call = call_of(SMALL)
    return replace(call, dtypes={**call.dtypes, "grad_input": form})


# Each differs from the first in one thing that kernels follow from.
OTHERS = {
    "another mask": (call_of(SMALL), (True, False, False)),
    "another problem": (replace(call_of(SMALL), problem=replace(SMALL, dilation=2)), BOTH),
    "another format": (call_of(SMALL, "bfloat16"), BOTH),
    "another product": (call_of(SMALL, profile=UNIFIED), BOTH),
    "another variant": (call_of(SMALL, profile=replace(SPLIT, variant="another")), BOTH),
    "another model": (call_of(SMALL, accumulation="seq:RNE"), BOTH),
    "another sum of parts": (call_of(SMALL, deterministic=True), BOTH),
    "another tiling": (split(call_of(SMALL), 2, 0), BOTH),
    "another chooser": (chosen_by("somebody"), BOTH),
    "another format of grad_input alone": (written("float32"), BOTH),
    "another format on the cube alone": (replace(call_of(SMALL), compute_dtype="bfloat16"), BOTH),
    "another view": (replace(call_of(SMALL), views={"input": View(SMALL.input, (1, 42, 1, 7))}), BOTH),
    "another page on Fixpipe": (replace(call_of(SMALL), fixpipe="c-api-pages"), BOTH),
    "another way out": (replace(call_of(SMALL), direct_outputs=True), BOTH),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_call_that_differs_in_one_thing_has_kernels_of_its_own(name):
    usual = known.known_graph(call_of(SMALL), BOTH)
    call, mask = OTHERS[name]
    assert known.known_graph(call, mask) is not usual
    assert known.known_graph(call_of(SMALL), BOTH) is usual


def test_every_field_of_a_call_tells_it_from_others():
    # A field that is added to `Call` needs a case above, which fails until it is part of what is compared.
    usual = call_of(SMALL)

    def changed(call):
        return {
            field.name for field in fields(Call) if getattr(call, field.name) != getattr(usual, field.name)
        }

    alone = [changed(call) for call, _ in OTHERS.values() if len(changed(call)) == 1]
    every = {field.name for field in fields(Call)}
    assert set.union(*alone) == every


def test_times_that_are_remembered_are_those_that_are_measured():
    graph = known.known_graph(call_of(SMALL, profile=DEVICE), BOTH)
    fresh = lower(call_of(SMALL, profile=DEVICE), BOTH)
    for _ in range(2):
        for kernel, measured in zip(graph.kernels, fresh.kernels, strict=True):
            found = known_times(kernel, DEVICE, folded=True, l2_start="warm")
            assert found == measure_kernel(measured, DEVICE, l2_start="warm")


def test_times_of_what_all_calls_do_are_shared_and_those_of_gradients_are_of_their_call():
    # A Cast of so many elements takes as long in every call; a gradient hangs on all that tells its call.
    plain = {kernel.name: kernel.recipe for kernel in lower(call_of(SMALL, profile=DEVICE), BOTH).kernels}
    assert plain["cast_grad_weight"] == "cast"
    assert plain["grad_input"] is None
    one, other = (
        {kernel.name: kernel.recipe for kernel in known.known_graph(call, BOTH).kernels}
        for call in (call_of(SMALL, profile=DEVICE), call_of(SMALL, profile=DEVICE, deterministic=True))
    )
    assert one["cast_grad_weight"] == other["cast_grad_weight"] == "cast"
    assert None not in (one["grad_input"], other["grad_input"])
    assert one["grad_input"] != other["grad_input"]
    assert one["grad_input"] != one["grad_weight"]


def test_a_call_made_again_gives_its_bits_and_cycles_on_other_values():
    rng = np.random.default_rng(0)
    shapes = SMALL.grad_output, SMALL.input, SMALL.weight
    rest = None, 1, 1, 1, False, 0, 1, BOTH, 0
    cycles = set()
    for _ in range(3):
        tensors = [rng.standard_normal(shape).astype(np.float16) for shape in shapes]
        again = convolution_backward(*tensors, *rest, product="910B2")
        known._OWN.remembered.cache_clear()
        first = convolution_backward(*tensors, *rest, product="910B2")
        assert again.grad_input.tobytes() == first.grad_input.tobytes()
        assert again.grad_weight.tobytes() == first.grad_weight.tobytes()
        cycles |= {again.cycles, first.cycles}
    assert len(cycles) == 1


@pytest.mark.parametrize("name", ["large", "own schedule"])
def test_large_calls_and_schedules_of_the_user_are_not_remembered(name, monkeypatch):
    call = call_of(SMALL)
    if name == "large":
        monkeypatch.setattr(known, "MOST_MACS", SMALL.macs - 1)
    else:
        plans = {"grad_input": Plan(Own, call.plans["grad_input"].tiling)}
        call = replace(call, plans={**call.plans, **plans})
    assert known.known_graph(call, BOTH) is not known.known_graph(call, BOTH)
    assert known._OWN.remembered.cache_info().currsize == 0


def test_long_programs_are_not_kept_and_no_program_is_pickled(monkeypatch):
    graph = known.known_graph(call_of(SMALL, profile=DEVICE), BOTH)
    work = next(kernel for kernel in graph.kernels if kernel.name == "grad_input").phases[-1].work[0]
    kept = work.build()
    copy = pickle.loads(pickle.dumps(work.build))
    assert copy._program is None
    assert len(copy()) == len(kept)
    monkeypatch.setattr(known, "MOST_INSTRUCTIONS", len(kept) - 1)
    long = pickle.loads(pickle.dumps(work.build))
    assert long() is not long()


def test_threads_that_make_the_same_call_get_its_bits():
    rng = np.random.default_rng(0)
    shapes = SMALL.grad_output, SMALL.input, SMALL.weight
    tensors = [rng.standard_normal(shape).astype(np.float16) for shape in shapes]

    def made(_):
        rest = None, 1, 1, 1, False, 0, 1, BOTH, 0
        result = convolution_backward(*tensors, *rest, product="910B2")
        return result.grad_input.tobytes(), result.grad_weight.tobytes(), result.cycles

    usual = sys.getswitchinterval()
    # Threads take turns far more often than usual, in the middle of the writing of programs.
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(6) as threads:
            found = set(threads.map(made, range(12)))
    finally:
        sys.setswitchinterval(usual)
    assert found == {made(0)}


def test_what_is_forgotten_is_not_kept_alive():
    kernel = ref(known.known_graph(call_of(SMALL), BOTH).kernels[0])
    known._OWN.remembered.cache_clear()
    gc.collect()
    assert kernel() is None
