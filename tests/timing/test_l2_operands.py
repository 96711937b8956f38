"""Does a call find in L2 the operands that are named, as far as they fit? And does a step leave one?"""

import random
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from ascendsim import (
    ConvProblem,
    MatmulProblem,
    convolution_backward,
    estimate,
    estimate_matmul,
    load_profile,
    matmul,
)
from ascendsim.errors import ConfigError
from ascendsim.ops.graph_times import Layouts
from ascendsim.ops.lowering.call import INPUTS
from ascendsim.ops.lowering.graph import TransData
from ascendsim.ops.many import L2Left, estimate_behind, left_by_call
from ascendsim.ops.options.keywords import l2_begun
from ascendsim.program.places import GmTensor
from ascendsim.timing.kernel import measure_kernel
from ascendsim.timing.l2 import l2_meanings
from ascendsim.timing.l2.account import left_by
from tests.helpers.both_engines import random_call

BOTH = (True, True, False)
FLAT = ConvProblem((2, 32, 12, 12), (48, 32, 3, 3), 1, 1)
BYTES = {"grad_output": 2 * 48 * 144 * 2, "input": 2 * 32 * 144 * 2, "weight": 48 * 32 * 9 * 2}


def call(start, product="910_95", problem=FLAT, **options):
    return estimate(problem, product=product, output_mask=BOTH, l2_start=start, **options)


def from_memory(kernel):
    return kernel.bytes["memory_read"]


def read(made):
    return sum(map(from_memory, made.kernels))


def cycles(made):
    return sum(kernel.cycles for kernel in made.kernels)


def begun(start, sizes, capacity):
    operands = {name: GmTensor.of(name, (size,), "float8_e5m2") for name, size in sizes.items()}
    return dict(l2_begun(start, operands, load_profile("910B2", overrides={"l2.capacity_bytes": capacity})))


# --- The words ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", INPUTS)
def test_an_operand_that_is_named_is_not_fetched(name):
    # Our plans: those of the operators read parts of sums from memory, too.
    empty, there = (read(call(start, tiling="search")) for start in ("chained", name))
    assert empty - there == BYTES[name]


@pytest.mark.parametrize(
    ("starts", "first_words"),
    [
        (
            ("step", "step"),
            ("L2 holds grad_output alone", "L2 holds a alone as"),
        ),
        (("chained", "chained"), ("L2 is empty as the call begins",) * 2),
        (
            ("input,weight", "a,b"),
            ("L2 holds input, weight as", "L2 holds a, b as"),
        ),
    ],
    ids=["step", "chained", "operands"],
)
def test_results_and_pages_say_in_the_same_words_how_l2_starts(starts, first_words):
    (convolution, product), (ours, theirs) = starts, first_words
    (note,) = [note for note in call(convolution).notes if note.startswith(ours)]
    assert l2_meanings([convolution]) == {f"L2 {convolution}": note}
    held = [np.ones(shape, np.float16) for shape in ((32, 48), (48, 16))]
    timed, made = (
        estimate_matmul(MatmulProblem(32, 48, 16), l2_start=product),
        matmul(*held, l2_start=product),
    )
    assert timed.notes == made.notes
    assert [note.startswith(theirs) for note in timed.notes].count(True) == 1


def test_names_come_in_any_order_and_any_collection():
    made = call("input,grad_output").kernels
    for start in (" grad_output , input", ("input", "grad_output"), {"grad_output", "input"}, [*INPUTS[:2]]):
        assert call(start).kernels == made
    assert call(()).kernels == call("chained").kernels


def test_the_default_is_what_a_training_step_leaves():
    usual = estimate(FLAT, product="910B", output_mask=BOTH)
    for start in ("step", "grad_output"):
        assert call(start, "910B").kernels == usual.kernels
    assert cycles(usual) < cycles(call("chained", "910B"))
    assert any("L2 holds grad_output alone" in note for note in usual.notes)
    assert any("L2 holds grad_output, weight as the" in note for note in call("weight,grad_output").notes)


def test_of_a_matrix_product_the_first_operand_is_there():
    problem = MatmulProblem(64, 512, 256)
    # A product whose cores fetch what they share once.
    on = {"product": "910_95"}
    found = {start: estimate_matmul(problem, l2_start=start, **on) for start in ("step", "a", "b", "chained")}
    assert estimate_matmul(problem, **on).kernels == found["step"].kernels == found["a"].kernels
    assert read(found["chained"]) - read(found["a"]) == 64 * 512 * 2
    assert read(found["chained"]) - read(found["b"]) == 512 * 256 * 2
    ran = matmul(np.zeros((64, 512), np.float16), np.zeros((512, 256), np.float16), l2_start="b", **on)
    assert cycles(ran) == cycles(found["b"])


WORDS = "it must be one of step, warm, cold, handed, chained, or operands with commas between, of "


@pytest.mark.parametrize(
    ("start", "says"),
    [
        ("hot", f"l2_start is 'hot'; {WORDS}grad_output, input, weight$"),
        ("inptu,weight", r"did you mean input\?$"),
        ("warm,input", f"l2_start is 'warm,input'; {WORDS}"),
        ("", f"l2_start is ''; {WORDS}"),
        (["input", 3], r"l2_start is \['input', 3\]; it must be"),
        (3, "l2_start is 3; it must be"),
        (None, "l2_start is None; it must be"),
    ],
)
def test_what_is_no_operand_is_refused(start, says):
    with pytest.raises(ConfigError, match=says):
        call(start)


def test_a_matrix_product_has_operands_of_its_own():
    with pytest.raises(ConfigError, match=r"of a, b$"):
        estimate_matmul(MatmulProblem(16, 16, 16), l2_start="input")


# --- What fits ------------------------------------------------------------------------------------------


def test_what_does_not_fit_is_not_there():
    sizes = {"grad_output": 600, "input": 500, "weight": 200}
    assert begun("input,grad_output,weight", sizes, 10_000) == {
        name: (size, 0, 1) for name, size in sizes.items()
    }
    # grad_output has its place first, whatever the order of the names.
    assert begun("weight,input,grad_output", sizes, 1000) == {
        "grad_output": (600, 0, 1),
        "input": (400, 0, 1),
    }
    assert list(begun("input,weight", sizes, 600)) == ["weight", "input"]  # the one used longest ago first
    assert begun("input,grad_output", sizes, 512) == {"grad_output": (512, 0, 1)}
    assert begun("step", sizes, 512) == {"grad_output": (512, 0, 1)}
    assert begun("chained", sizes, 512) == begun("step", {}, 512) == {}


def test_a_tensor_larger_than_l2_is_there_in_part():
    capacity = BYTES["grad_output"] // 2
    profile = load_profile("910_95", overrides={"l2.capacity_bytes": capacity})
    one, more = (call(start, profile, tiling="search") for start in ("step", "grad_output,input,weight"))
    first = one.kernels[0].bytes["memory_read"]
    assert first >= BYTES["grad_output"] - capacity
    # There is no room for another one.
    assert one.kernels == more.kernels


@pytest.mark.parametrize("product", ["910B", "910_95", "310P"])
@pytest.mark.parametrize("problem", [FLAT, ConvProblem((4, 64, 14, 14), (96, 64, 1, 1), 2)])
def test_more_operands_there_are_never_slower_where_all_fit(product, problem):
    sets = [names for count in range(4) for names in combinations(INPUTS, count)]
    times = {names: call(names, product, problem) for names in sets}
    plans = {tuple(kernel.plan for kernel in made.kernels) for made in times.values()}
    assert len(plans) == 1
    for fewer in sets:
        for more in sets:
            if set(fewer) <= set(more):
                assert cycles(times[more]) <= cycles(times[fewer]), (fewer, more)
                assert read(times[more]) <= read(times[fewer]), (fewer, more)


# --- From kernel to kernel ------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_what_a_kernel_leaves_is_what_the_slow_definition_says(seed):
    kernels, profile, _ = random_call(random.Random(seed))
    rng, held = random.Random(seed), {}
    for kernel in kernels:
        for name, tensor in kernel.tensors.items():
            if name not in held and rng.random() < 0.5:
                held[name] = (rng.randint(1, tensor.size_bytes), 0, rng.choice((0, 1)))
        left = left_by(kernel, profile, held)
        for engine in ("compiled", "simpy"):
            made = measure_kernel(kernel, profile, l2_start=held, engine=engine)
            assert dict(made.left) == left, engine
        held = left


def test_an_even_tensor_that_a_kernel_does_not_touch_stays_even():
    kernels = call("chained", "910B").kernels
    first = kernels[0].kernel
    held = {"elsewhere": (1000, 0, 1)}
    assert measure_kernel(first, load_profile("910B"), l2_start=held).left["elsewhere"] == (1000, 0, 1)


def test_a_step_finds_what_the_layer_behind_it_leaves():
    # The next layer's grad_input is this layer's grad_output; its weight and input are of no use here.
    on = {"product": "910_95", "output_mask": BOTH, "tiling": "search"}
    later = ConvProblem((2, 48, 12, 12), (16, 48, 1, 1))
    behind = estimate_behind(left_by_call(L2Left(), later, **on), FLAT, **on)
    assert read(behind) == read(estimate(FLAT, **on))
    assert [each.cycles for each in behind.kernels] == [each.cycles for each in estimate(FLAT, **on).kernels]


@pytest.mark.parametrize("start", ["step", "weight", "input,grad_output"])
@pytest.mark.parametrize("capacity", [20_000, 10**8])
@pytest.mark.parametrize("product", ["910B", "910_95", "310P"])
def test_both_engines_and_a_run_with_tensors_say_the_same(product, capacity, start):
    profile = load_profile(product, overrides={"l2.capacity_bytes": capacity})
    found, simpy = call(start, profile), call(start, profile, engine="simpy")
    tensors = [np.zeros(shape, np.float16) for shape in (FLAT.grad_output, FLAT.input, FLAT.weight)]
    rest = (None, 1, 1, 1, False, 0, 1, BOTH, 0)
    ran = convolution_backward(*tensors, *rest, product=profile, l2_start=start)
    for one, two, three in zip(found.kernels, simpy.kernels, ran.kernels, strict=True):
        assert one.cycles == two.cycles == three.cycles == one.timeline.cycles, one.name
        assert one.bytes == two.bytes == three.bytes, one.name
        assert one.times.left == two.times.left == three.times.left, one.name


# --- One tensor in several layouts ----------------------------------------------------------------------


def laid(name, size):
    return GmTensor.of(name, (size,), "float8_e5m2")


def seen(held, *tensors, capacity=10**6):
    """Return what L2 holds behind changes of layout of the first tensor into each of the others."""
    layouts = Layouts(capacity)
    for tensor in tensors[1:]:
        held = layouts.changed(held, TransData(tensors[0], tensor, abs))
    return layouts, dict(held)


ROWS, PADDED, GROUPED = laid("rows", 300), laid("padded", 1600), laid("grouped", 4800)


def test_a_tensor_in_a_third_layout_or_in_the_first_again_is_still_there():
    layouts, held = seen({"rows": (300, 0, 1), "other": (5, 0)}, ROWS, PADDED, GROUPED)
    assert held == {"grouped": (4800, 0, 1), "other": (5, 0)}
    assert list(held) == ["grouped", "other"]
    for tensor in (PADDED, ROWS, GROUPED, ROWS):
        held = layouts.seen_as(held, [laid("more", 7), tensor])
        assert held == {tensor.name: (tensor.size_bytes, 0, 1), "other": (5, 0)}


@pytest.mark.parametrize("there", [1, 75, 150, 299, 300])
def test_a_share_of_a_tensor_is_a_share_in_every_layout(there):
    layouts, held = seen({"rows": (there, 0, 1)}, ROWS, PADDED)
    assert held == {"padded": (there * 1600 // 300, 0, 1)}
    # Rounded down on the way there and back, of which the first is less than a byte of these rows.
    assert there - layouts.seen_as(held, [ROWS])["rows"][0] in (0, 1)


def test_a_filled_up_tensor_has_no_more_than_the_room_in_l2():
    _, held = seen({"other": (400, 0), "rows": (300, 0, 1)}, ROWS, PADDED, capacity=1000)
    assert held == {"other": (400, 0), "padded": (600, 0, 1)}


def test_what_is_dirty_is_written_back_once_in_whatever_layout():
    layouts, held = seen({"padded": (1600, 1600)}, PADDED, ROWS)
    assert held == {"rows": (1600, 1600)}
    assert layouts.seen_as({"rows": (150, 40)}, [PADDED]) == {"padded": (800, 40)}


DEPTHWISE = ConvProblem((2, 32, 12, 12), (32, 1, 3, 3), 1, 1, groups=32)
ON_950 = {"product": "910_95", "tiling": "search"}


@pytest.mark.parametrize("mask", [BOTH, (True, True, True), (True, False, True), (False, True, False)])
@pytest.mark.parametrize(
    "problem",
    [ConvProblem((2, 20, 12, 12), (24, 20, 3, 3), 1, 1), ConvProblem((2, 3, 9, 9), (5, 3, 1, 1), 2)],
)
def test_a_step_fetches_no_grad_output_whose_channels_are_filled_up(problem, mask):
    for kernel in estimate(problem, output_mask=mask, **ON_950).kernels:
        tensors = kernel.kernel.tensors.values()
        others = [each for each in tensors if each.role == "input" and "grad_output" not in each.name]
        assert from_memory(kernel) <= sum(tensor.size_bytes for tensor in others), kernel.name


def merging(problem, *merges, dtype="float16", **options):
    """Return a call on the 950 whose two gradients see so many groups as one."""
    plans = estimate(problem, dtype, output_mask=BOTH, **ON_950).plans
    tilings = {
        name: replace(plan.tiling, group_merge=merge)
        for (name, plan), merge in zip(plans.items(), merges, strict=True)
    }
    return estimate(problem, dtype, output_mask=BOTH, **{**ON_950, "tiling": tilings, **options})


@pytest.mark.parametrize("merges", [(1, 16), (16, 1), (8, 16), (4, 4)])
def test_gradients_that_see_grad_output_in_other_groups_fetch_it_once(merges):
    made = {kernel.name: kernel for kernel in merging(DEPTHWISE, *merges, l2_start="chained").kernels}
    sizes = {
        name.split()[0]: tensor.size_bytes for name, tensor in made["grad_weight"].kernel.tensors.items()
    }
    # The input comes from memory, and nothing else.
    assert from_memory(made["grad_weight"]) == sizes["input"]
    assert from_memory(made["grad_input"]) > 0


@pytest.mark.parametrize("capacity", [20_000, 60_000, 10**8])
@pytest.mark.parametrize("merges", [(1, 2), (1, 1)])
def test_the_content_of_l2_is_that_of_a_call_whose_tensors_have_one_name_each(merges, capacity):
    # Groups of 16 channels are full, so that only names differ; float32 needs no cast behind grad_weight.
    profile = load_profile("910_95", overrides={"l2.capacity_bytes": capacity})
    problem = ConvProblem((2, 64, 12, 12), (64, 16, 3, 3), 1, 1, groups=4)
    made = merging(problem, *merges, dtype="float32", product=profile, l2_start="chained").kernels
    held = {}
    for result in made:
        # A name begins with that of the tensor of the call.
        own = {name.split()[0]: name for name in result.kernel.tensors}
        begun = {own.get(name, name): bytes_ for name, bytes_ in held.items()}
        slow = measure_kernel(result.kernel, profile, l2_start=begun)
        assert (result.cycles, result.bytes) == (slow.cycles, slow.bytes), result.name
        held = {name.split()[0]: bytes_ for name, bytes_ in slow.left.items()}
        assert {name.split()[0]: bytes_ for name, bytes_ in result.times.left.items()} == held
    assert [result.name for result in made] == ["grad_input", "grad_weight"]
