"""Is every argument of a public function taken as it is meant, or refused with a sentence of ours?"""

import contextlib
import random
import re
import sys
from dataclasses import fields
from pathlib import Path
from time import monotonic

import numpy as np
import pytest

from ascendsim import (
    ConvProblem,
    MatmulProblem,
    PartialPlan,
    Plan,
    Tiling,
    check_schedule,
    conv_tbc_backward,
    convolution_backward,
    estimate,
    estimate_many,
    estimate_matmul,
    legal_tilings,
    load_profile,
    matmul,
    read_plans,
    write_plans,
)
from ascendsim.aclnn import Out, aclrtCtxGetSysParamOpt, aclrtCtxSetSysParamOpt, aclrtMemcpy
from ascendsim.errors import (
    AscendSimError,
    BudgetError,
    ConfigError,
    ShapeError,
    UnsupportedError,
    shown,
    truth,
    whole,
)
from ascendsim.ops.options import budget
from ascendsim.ops.options.budget import reckoned_instructions
from ascendsim.ops.options.call import Options, options_of
from ascendsim.ops.options.keywords import CallOptions, Keywords, ProductOptions, meanings
from ascendsim.ops.problems.convolution import as_multiplied, full_name, stored_name
from ascendsim.precision import (
    Math,
    attribute,
    error_metrics,
    format_of,
    identify,
    quantise,
    rank_by_public_figures,
    reduction_tree,
    spread,
)
from ascendsim.program.program import CHUNK
from tests.helpers.slow_tilings import chosen_plan

# -------------------------------------------------------------------------------------------------------
# Is every argument of the Python interface taken as it is meant, or refused with a sentence of ours?
# -------------------------------------------------------------------------------------------------------

PROBLEM = ConvProblem((1, 16, 4, 4), (16, 16, 3, 3), padding=1)


def backward(tensors, number=int, **options):
    """Compute all gradients of a small convolution, its attributes as numbers of a kind."""
    one = number(1)
    return convolution_backward(
        *tensors, [number(16)], one, one, one, False, number(0), one, (True, True, True), number(0), **options
    )


@pytest.fixture
def tensors():
    random = np.random.default_rng(1)
    shapes = (PROBLEM.grad_output, PROBLEM.input, PROBLEM.weight)
    return [random.standard_normal(shape).astype(np.float16) for shape in shapes]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"accumulation": 3}, "accumulation is 3; it must be the text of a model"),
        ({"accumulation": ""}, "cannot read ''"),
        ({"tiling": 5}, "tiling is 5; it must be a Tiling"),
        ({"tiling": {"grad_input": 1}}, "tiling is {'grad_input': 1}; it must be a Tiling"),
        ({"deterministic": "x"}, "deterministic is 'x'; it must be true, false or None"),
        ({"product": None}, "product is None; it must be a name"),
        ({"output_dtypes": "float16"}, "output_dtypes is 'float16'; it must be three formats"),
        ({"output_dtypes": 3}, "output_dtypes is 3"),
        ({"dtype": None}, "dtype is None; it must be a format"),
        ({"dtype": ("float16", None, "float16")}, "it must be a format"),
        ({"strides": 3}, "strides is 3; it must be like"),
        ({"strides": {"input": 3}}, "it must be like"),
        ({"strides": {"inputs": (1, 1)}}, "strides has keys"),
    ],
)
def test_an_option_without_a_meaning_is_refused(options, words):
    with pytest.raises(ConfigError, match=words):
        estimate(PROBLEM, **options)


@pytest.mark.parametrize("dtype", [3, np.int32, "float61"])
def test_an_unknown_format_is_refused(dtype):
    with pytest.raises(UnsupportedError, match="is not a supported format"):
        estimate(PROBLEM, dtype)


def test_what_is_no_problem_is_refused():
    with pytest.raises(ConfigError, match=r"problem is \(1, 2\); it must be ConvProblem"):
        estimate((1, 2))
    with pytest.raises(ConfigError, match=r"problem is \(1, 2\); it must be MatmulProblem"):
        estimate_matmul((1, 2))


@pytest.mark.parametrize("order", [-1, np.int64(-1), 1.5, None, "late"])
def test_an_order_without_a_meaning_is_refused(tensors, order):
    with pytest.raises(ConfigError, match="order is "):
        backward(tensors, order=order)


@pytest.mark.parametrize("dtype", [np.float16, np.dtype("float16"), [np.float16, "float16", np.float16]])
def test_a_format_by_numpys_types(dtype):
    assert estimate(PROBLEM, dtype).cycles == estimate(PROBLEM, "float16").cycles


def test_strides_of_numpy(tensors):
    dense = np.array(tensors[1].strides) // 2
    assert estimate(PROBLEM, strides={"input": dense}).cycles == estimate(PROBLEM).cycles


def test_numbers_of_numpy_in_a_call(tensors):
    plain, numpys = backward(tensors, order=3), backward(tensors, np.int64, order=np.int64(3))
    assert numpys.order == plain.order == "seed 3"
    assert np.array_equal(numpys.grad_weight, plain.grad_weight)


def test_numbers_of_numpy_in_plans():
    assert Tiling(np.int64(16), 16, 16) == Tiling(16, 16, 16)
    assert MatmulProblem(np.int32(4), 5, 6) == MatmulProblem(4, 5, 6)


def test_the_order_of_bytes_does_not_matter(tensors):
    plain = backward(tensors)
    turned = backward([tensor.astype(">f2") for tensor in tensors])
    for name in ("grad_input", "grad_weight", "grad_bias"):
        assert getattr(turned, name).tobytes() == getattr(plain, name).tobytes()


def test_turned_bytes_keep_their_place_in_memory(tensors):
    # The view of every second column costs a Contiguous kernel, whichever end of an element comes first.
    wide = np.zeros((1, 16, 4, 8), ">f2")
    wide[..., ::2] = tensors[1]
    made = backward([tensors[0], wide[..., ::2], tensors[2]])
    assert "contiguous_input" in [kernel.name for kernel in made.kernels]
    assert made.grad_weight.tobytes() == backward(tensors).grad_weight.tobytes()


@pytest.mark.parametrize(
    ("value", "number", "flag"),
    [
        (1, 1, True),
        (np.int8(0), 0, False),
        (2, 2, None),
        (True, None, True),
        (np.False_, None, False),
        *((value, None, None) for value in (1.0, "1", None, [1], np.array([1]))),
    ],
)
def test_integers_and_truth_values(value, number, flag):
    assert whole(value) == number
    assert truth(value) is flag


def test_hf32_is_named_after_its_bits_and_stored_as_float32():
    for product, bits in (("910B", 11), ("910_95", 10)):
        profile = load_profile(product)
        assert full_name("hf32", profile) == f"hf32_{bits}"
        # 1 + 2^-bits is the last value above 1 that HF32 keeps; half of that step is a tie, to even.
        given = np.array([1 + 2.0**-bits, 1 + 2.0 ** -(bits + 1)], np.float32)
        assert as_multiplied(given, "hf32", profile, "RNE").tolist() == [1 + 2.0**-bits, 1]
        assert as_multiplied(given, "float32", profile, "RNE") is given
    assert (stored_name("hf32"), stored_name("bfloat16")) == ("float32", "bfloat16")


# --- the keywords that all operators share


def test_keywords_are_declared_once_and_agree():
    # CallOptions is what type checkers read, Keywords what is run, and the docstrings what flags say.
    names = list(CallOptions.__annotations__)
    assert names == [field.name for field in fields(Keywords)] == list(meanings())
    assert set(ProductOptions.__annotations__) < set(names)


@pytest.mark.parametrize(
    ("known", "given", "hint"),
    [
        (CallOptions, "tilling", "'tilling'; did you mean tiling?"),
        (CallOptions, "fix_pipe", "did you mean fixpipe?"),
        (ProductOptions, "deterministic", "it takes product, accumulation, tiling, schedule, l2_start"),
        (ProductOptions, "xyz", "'xyz'; it takes product"),
    ],
)
def test_an_unknown_keyword_is_refused_with_a_near_miss(known, given, hint):
    with pytest.raises(TypeError, match=f"f\\(\\) got an unexpected keyword argument .*{re.escape(hint)}"):
        options_of("f", {given: 1}, known)


def test_options_left_out_have_their_defaults():
    assert options_of("f", {}) == Options()
    assert options_of("f", {"l2_start": "cold"}) == Options(l2_start="cold")


def test_the_doors_refuse_unknown_keywords(tensors):
    with pytest.raises(TypeError, match=r"convolution_backward\(\) got .* 'produkt'; did you mean product"):
        backward(tensors, produkt="910B")
    with pytest.raises(TypeError, match=r"estimate\(\) got .* 'rule'; did you mean rules"):
        estimate(PROBLEM, rule="shipped")
    with pytest.raises(TypeError, match=r"estimate_matmul\(\) got .* 'rules'"):
        estimate_matmul(MatmulProblem(16, 16, 16), rules="shipped")


# ---- The budget


HUGE = {
    "every size": ConvProblem((509, 521, 523, 541), (503, 521, 7, 7), padding=3),
    "a kernel of 255 x 255": ConvProblem((1, 16, 1024, 1024), (16, 16, 255, 255), padding=127),
    "a batch of a million": ConvProblem((10**6, 64, 56, 56), (64, 64, 3, 3), padding=1),
    "a batch of 31 bits": ConvProblem((2**31 - 1, 16, 8, 8), (16, 16, 3, 3), padding=1),
}


@pytest.mark.parametrize("name", HUGE)
def test_an_enormous_call_is_refused_before_the_work(name):
    begun = monotonic()
    with pytest.raises(UnsupportedError, match=r"about [\d,]+ instructions.*, which is 100,000,000"):
        estimate(HUGE[name])
    assert monotonic() - begun < 5


def test_the_budget_is_that_of_the_call():
    problem = ConvProblem((2, 16, 8, 8), (16, 16, 3, 3), padding=1)
    with pytest.raises(UnsupportedError) as caught:
        estimate(problem, most_instructions=1)
    reckoned = int(re.search(r"about ([\d,]+)", str(caught.value))[1].replace(",", ""))
    usual = estimate(problem)
    assert estimate(problem, most_instructions=reckoned) == usual
    assert estimate(problem, most_instructions=None) == usual
    with pytest.raises(UnsupportedError):
        estimate(problem, most_instructions=reckoned - 1)


@pytest.mark.parametrize("name", ["most_instructions", "most_bytes"])
@pytest.mark.parametrize("most", [0, -1, 1.5, "1", True, [1]])
def test_a_budget_without_a_meaning_is_refused(name, most):
    with pytest.raises(ConfigError, match=rf"{name} is .*a whole number from 1 on, or None"):
        estimate(ConvProblem((1, 16, 4, 4), (16, 16, 1, 1)), **{name: most})


def _any_call(pick):
    """Return a random call: of groups, of narrow and deep layers, transposed, in up to three dimensions."""
    while True:
        axes, groups, transposed = (
            pick.choice((1, 2, 2, 3)),
            pick.choice((1, 1, 2, 32, 96)),
            pick.random() < 0.25,
        )
        big, small = (groups * pick.choice((1, 1, 2, 16, 32)) for _ in range(2))
        taps = [pick.choice((1, 3, 5, 7)) for _ in range(axes)]
        weight = (big, small // groups, *taps) if transposed else (small, big // groups, *taps)
        image = (pick.choice((1, 2, 8, 64)), big, *(pick.choice((1, 7, 14, 28, 56)) for _ in range(axes)))
        steps = [pick.choice((1, 1, 2)) for _ in range(axes)]
        padding = [pick.choice((0, size // 2)) for size in taps]
        try:
            problem = ConvProblem(image, weight, steps, padding, 1, transposed, 0, groups)
        except ShapeError:  # the kernel is larger than the image
            continue
        if problem.macs < 3 * 10**8:
            product = pick.choice(("910B2", "310P3", "950PR_9589", "910A"))
            return problem, pick.choice(("float16", "float32")), product


def _reckoned_and_made(calls, seed):
    pick, found = random.Random(seed), []
    while len(found) < calls:
        problem, dtype, product = _any_call(pick)
        try:
            kernels = [one.kernel for one in estimate(problem, dtype, 1, product=product).kernels]
        except AscendSimError:  # not every product has every rank and format
            continue
        made = sum(len(work.build()) for kernel in kernels for phase in kernel.phases for work in phase.work)
        found.append((sum(map(reckoned_instructions, kernels)), made, problem))
    return found


@pytest.mark.parametrize("calls", [12, pytest.param(200, marks=pytest.mark.slow)])
def test_what_is_reckoned_is_near_to_what_is_made(calls):
    for reckoned, made, problem in _reckoned_and_made(calls, seed=37):
        assert made <= 2 * reckoned <= 4 * made, problem


def test_of_many_instructions_no_more_kernels_are_counted_than_it_takes_to_refuse(monkeypatch):
    """As if each kernel had 6,000,000: two of them are more than 10,000,000, which is quickly cut."""
    seen = []
    monkeypatch.setattr(budget, "reckoned_instructions", lambda kernel: seen.append(kernel.name) or 6 * 10**6)
    problem = ConvProblem((2, 64, 28, 28), (64, 64, 3, 3), padding=1)
    with pytest.raises(BudgetError, match=r"6,000,000 of them in "):
        estimate(problem, most_instructions=10**4)
    assert len(seen) == 2
    seen.clear()
    # Of few all are, so that the number in the message is one that suffices.
    monkeypatch.setattr(budget, "reckoned_instructions", lambda kernel: seen.append(kernel.name) or 5001)
    with pytest.raises(BudgetError, match="5,001 of them in grad_"):
        estimate(problem, most_instructions=10**4)
    assert len(seen) > 4


def test_a_long_program_is_reckoned_by_its_first_tasks():
    """What is walked is a small part of it, and all tasks but those at edges are alike."""
    problem = ConvProblem((4096, 64, 28, 28), (64, 64, 3, 3), padding=1)
    result = estimate(problem, output_mask=(True, False, False))
    [kernel] = [one.kernel for one in result.kernels if one.kernel.macs]
    made = sum(len(cores) * len(work.build()) for phase in kernel.phases for work, cores in phase.folded())
    assert made > 5 * CHUNK * 24
    assert made <= 1.1 * reckoned_instructions(kernel) <= 1.21 * made


@pytest.mark.parametrize(
    "problem",
    [
        ConvProblem((1, 1, 28, 7, 28), (2, 1, 5, 7, 7)),  # one channel: sizes alone say a thousandth
        ConvProblem((2, 2048, 28, 28), (64, 32, 5, 3), groups=64),
    ],
)
def test_a_call_whose_sizes_say_little_is_counted(problem):
    made = sum(reckoned_instructions(one.kernel) for one in estimate(problem).kernels)
    assert estimate(problem, most_instructions=made)
    with pytest.raises(BudgetError, match=f"about {made:,} instructions"):
        estimate(problem, most_instructions=made - 1)


@pytest.mark.parametrize(
    "problem",
    [
        ConvProblem((10**6, 64, 56, 56), (64, 1, 3, 3), 1, 1, groups=64),  # sizes alone: 4 in 100 of them
        ConvProblem((1, 16, 1024, 1024), (16, 16, 255, 255)),  # 66 million tiles
        ConvProblem((10**6, 64, 56, 56), (64, 64, 3, 3), 1, 1),
        ConvProblem((2**31 - 1, 1, 8, 8), (1, 1, 3, 3), 1, 1),
        ConvProblem((1, 1, 1024, 1024), (1, 1, 255, 255)),  # one channel in groups of 16
        ConvProblem((1, 10**6, 8, 8), (10**6, 10**6, 1, 1)),
        ConvProblem((1, 16, 10**5, 10**5), (16, 16, 3, 3), 1, 1),
        ConvProblem((16, 64, 2 * 10**8), (64, 64, 3), 1, 1),
    ],
)
@pytest.mark.parametrize("product", ["910B2", "910_95", "310P3", "910A"])
def test_a_call_far_beyond_its_budget_is_refused_before_it_is_cut_into_tasks(problem, product, monkeypatch):
    """In a number of steps that does not grow with the call: one lists some thousands of plans at most."""

    def cut(kernel):
        raise AssertionError(f"{kernel.name} is cut into tasks")

    monkeypatch.setattr("ascendsim.ops.options.budget.reckoned_instructions", cut)
    steps, tracer = [], sys.getprofile()
    sys.setprofile(lambda _, event, __: steps.append(event))
    try:
        with pytest.raises(BudgetError, match=r"about [\d,]+ instructions, .* more than most_instructions"):
            estimate(problem, product=product)
    finally:
        sys.setprofile(tracer)
    assert len(steps) < 200_000


@pytest.mark.parametrize(
    ("problem", "left_out"),
    [
        (ConvProblem((131072, 64, 56, 56), (64, 1, 3, 3), 1, 1, groups=64), "grad_input"),
        (ConvProblem((10_000, 8192, 14, 14), (8192, 2, 3, 3), 1, 1, groups=4096), "grad_input"),
        (ConvProblem((1, 10**5, 8, 8), (10**5, 10**5, 3, 3), 1, 1), "cast_grad_weight"),
    ],
)
@pytest.mark.parametrize("product", ["910B2", "910_95", "310P3", "910A"])
def test_the_kernel_that_takes_longest_to_cut_is_not_cut_to_refuse_a_call(
    problem, left_out, product, monkeypatch
):
    cut, names = reckoned_instructions, []
    monkeypatch.setattr(
        budget, "reckoned_instructions", lambda kernel: names.append(kernel.name) or cut(kernel)
    )
    with pytest.raises(BudgetError, match="at least about"):
        estimate(problem, product=product)
    assert left_out not in names


@pytest.mark.parametrize("calls", [40, pytest.param(400, marks=pytest.mark.slow)])
def test_what_sizes_alone_say_is_no_more_than_is_made(calls, monkeypatch):
    """Within a tenth and two dozen instructions: what is too large even so is refused by its sizes."""
    found, counted = [], budget.require_instructions

    def kept(graph, profile, *limits):
        sized = sum(budget.sized_instructions(kernel, profile) for kernel in graph.kernels)
        found.append((sized, sum(map(reckoned_instructions, graph.kernels))))
        counted(graph, profile, *limits)

    monkeypatch.setattr("ascendsim.ops.options.call.require_instructions", kept)
    pick = random.Random(370)
    while len(found) < calls:
        problem, dtype, product = _any_call(pick)
        with contextlib.suppress(AscendSimError):  # not every product has every rank and format
            estimate(problem, dtype, 1, product=product, most_instructions=1)
        if found and found[-1][0] > 1.1 * found[-1][1] + 24:
            pytest.fail(f"{found[-1]} {problem} {product}")


ONES, WIDE = np.ones((4, 2, 16), np.float16), np.ones((512, 512), np.float16)
BUDGETED = {
    "convolution_backward": lambda tensors, most: backward(tensors, most_instructions=most),
    "conv_tbc_backward": lambda _, most: conv_tbc_backward(
        ONES, ONES, ONES[:1, 0, :, None] * np.ones(16, np.float16), ONES[0, 0], 0, 0, most_instructions=most
    ),
    "matmul": lambda _, most: matmul(WIDE, WIDE, most_instructions=most),
    "estimate_matmul": lambda _, most: estimate_matmul(MatmulProblem(512, 512, 512), most_instructions=most),
}


def test_a_call_has_no_more_bytes_than_are_wanted(tensors):
    """16 for each element of three operands and three gradients; for an estimate 16 for each instruction."""
    grad_output, image, weight = tensors
    elements = grad_output.size + 2 * image.size + 2 * weight.size + grad_output.shape[1]
    assert backward(tensors, most_bytes=16 * elements)
    with pytest.raises(BudgetError, match=f"about {16 * elements:,} bytes for its tensors are more than"):
        backward(tensors, most_bytes=16 * elements - 1)
    with pytest.raises(BudgetError, match=r"bytes for [\d,]+ instructions .* most_bytes, which is 9"):
        estimate(ConvProblem((1, 16, 4, 4), (16, 16, 1, 1)), most_bytes=9, most_instructions=None)


def test_tensors_beyond_any_machine_are_refused_before_any_is_made():
    """A view of one number: 2 ** 42 elements take no memory until somebody reads them as float32."""
    image, weight = np.broadcast_to(np.float16(1), (1, 16, 2**19, 2**19)), np.ones((16, 16, 1, 1), np.float16)
    mask = (True, True, False)
    with pytest.raises(BudgetError, match="bytes for its tensors"):
        convolution_backward(image, image, weight, None, 1, 0, 1, False, 0, 1, mask, 0, timing=False)
    with pytest.raises(BudgetError, match="bytes for its tensors"):
        matmul(np.broadcast_to(np.float16(1), (2**35, 16)), WIDE[:16, :16], most_instructions=None)


@pytest.mark.parametrize("door", BUDGETED)
def test_every_door_has_the_budget(tensors, door):
    assert BUDGETED[door](tensors, None)
    with pytest.raises(UnsupportedError, match="most_instructions, which is 1"):
        BUDGETED[door](tensors, 1)


# --- Does every public function answer a mistaken argument in one line: whose, what was got, the rule? -

MISTAKEN_PROBLEM = ConvProblem((1, 16, 6, 6), (16, 16, 3, 3), 1, 1)
SHAPES = {
    "grad_output": MISTAKEN_PROBLEM.grad_output,
    "input": MISTAKEN_PROBLEM.input,
    "weight": MISTAKEN_PROBLEM.weight,
}
TENSORS = {name: np.ones(shape) for name, shape in SHAPES.items()}
HALVES = [values.astype(np.float16) for values in TENSORS.values()]
B2 = load_profile("910B2")
WHOLE = Plan("dgrad", Tiling(16, 16, 16))
# No type, size or text of these means anything to the arguments that get all of them.
ODD = (
    *(None, -1, 1.5, float("nan"), "", "x", "ünï💥", "\0", "a" * 10000, b"x", (), [], {}, {1: 2}, (None,)),
    *(object(), int, np.zeros(0), np.zeros((2, 2)), np.array(1.5), 2**70, [1, [2]], range(10**12)),
    *(Path("nowhere"), ...),
)


def chosen(problem=MISTAKEN_PROBLEM, gradient="grad_input", dtype="float16", profile=B2, **given):
    return chosen_plan(problem, gradient, dtype, profile, **given)


def computed(**given):
    return convolution_backward(
        *HALVES, [16], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, (True,) * 3, 0, **({"timing": False} | given)
    )


FORMAT = format_of("e4m3")
# A function of one argument that no odd value means anything to.
ASKED = {
    "plan problem": lambda odd: chosen(problem=odd),
    "plan gradient": lambda odd: chosen(gradient=odd),
    "plan dtype": lambda odd: chosen(dtype=odd),
    "plan profile": lambda odd: chosen(profile=odd),
    "plan deterministic": lambda odd: chosen(deterministic=odd),
    "plan transposed_forward": lambda odd: chosen(transposed_forward=odd),
    "plan strategy": lambda odd: chosen(strategy=odd),
    "plan group_merge": lambda odd: chosen(group_merge=odd),
    "legal_tilings problem": lambda odd: legal_tilings(odd, "grad_input", B2),
    "legal_tilings dtype": lambda odd: legal_tilings(MISTAKEN_PROBLEM, "grad_input", B2, odd),
    "legal_tilings hf32": lambda odd: legal_tilings(MISTAKEN_PROBLEM, "grad_input", B2, hf32=odd),
    "Plan tiling": lambda odd: Plan("dgrad", odd),
    "Plan.from_dict": Plan.from_dict,
    "PartialPlan block_dim": lambda odd: PartialPlan({"base_m": 16}, block_dim=odd),
    "read_plans": read_plans,
    "write_plans plans": lambda odd: write_plans("plans.toml", {"grad_input": odd}),
    "write_plans names": lambda odd: write_plans("plans.toml", {"grad_input": WHOLE}, names=odd),
    "check_schedule orders": lambda odd: check_schedule("dgrad", MISTAKEN_PROBLEM, orders=odd),
    "check_schedule seed": lambda odd: check_schedule("dgrad", MISTAKEN_PROBLEM, seed=odd),
    "timing": lambda odd: computed(timing=odd),
    "threads": lambda odd: computed(threads=odd),
    "order": lambda odd: computed(order=odd),
    "workers": lambda odd: estimate_many([{"problem": MISTAKEN_PROBLEM}], workers=odd),
    "Math operands": lambda odd: Math(operands=odd),
    "Math accumulation": lambda odd: Math(accumulation=odd),
    "Math rounding": lambda odd: Math(rounding=odd),
    "spread problem": lambda odd: spread(odd, TENSORS, [Math()]),
    "spread tensors": lambda odd: spread(MISTAKEN_PROBLEM, odd, [Math()]),
    "spread one tensor": lambda odd: spread(MISTAKEN_PROBLEM, TENSORS | {"input": odd}, [Math()]),
    "attribute math": lambda odd: attribute(MISTAKEN_PROBLEM, TENSORS, odd),
    "error_metrics": lambda odd: error_metrics(odd, np.ones(3), "float16"),
    "format_of": format_of,
    "quantise values": lambda odd: quantise(odd, FORMAT, axis=7),
    "quantise fmt": lambda odd: quantise(TENSORS["input"], odd),
    "quantise rounding": lambda odd: quantise(TENSORS["input"], FORMAT, rounding=odd),
    "reduction_tree model": lambda odd: reduction_tree(odd, 4),
    "reduction_tree products": lambda odd: reduction_tree("seq:RNE", odd),
    "identify": identify,
    "rank_by_public_figures": lambda odd: rank_by_public_figures([odd]),
}
# What some of them do take.
MEANT = {
    "plan group_merge": (None,),
    "workers": (None, 2**70),
    "PartialPlan block_dim": (2**70,),
    "order": (2**70,),
}


@pytest.mark.parametrize("name", ASKED)
def test_what_means_nothing_is_refused_in_one_short_line(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for odd in ODD:
        if any(odd is each or (type(odd) is type(each) and odd == each) for each in MEANT.get(name, ())):
            continue
        with pytest.raises(AscendSimError) as caught:
            ASKED[name](odd)
        told = str(caught.value)
        # Of paths and texts the whole is quoted, of all else the beginning.
        assert len(told) < 600 or isinstance(odd, str), (odd, told)
        assert "\n" not in told, (odd, told)


def test_a_format_that_the_cube_does_not_multiply_is_told_with_those_that_it_does():
    message = "plan: compute_dtype is 'float64', which the cube of 910B2 does not multiply; it does fl"
    with pytest.raises(UnsupportedError, match=message):
        chosen(dtype="float64")
    with pytest.raises(
        UnsupportedError, match="compute_dtype is 'hf32', which the cube of 910A does not multiply"
    ):
        chosen(dtype="float32", hf32=True, profile=load_profile("910A"))


def test_a_gradient_is_one_that_the_problem_has():
    with pytest.raises(
        ConfigError, match="gradient is 'matmul'; it must be grad_input or grad_weight of a Conv"
    ):
        chosen(gradient="matmul")
    with pytest.raises(ConfigError, match="gradient is 'grad_input'; it must be matmul of a MatmulProblem"):
        chosen(problem=MatmulProblem(16, 16, 16))


def test_a_bound_beyond_all_counts_is_none():
    free, bound = (estimate(MISTAKEN_PROBLEM, stop_above=stop).cycles for stop in (None, 2**70))
    assert free == bound


def test_an_array_is_shown_in_one_line():
    assert shown(np.zeros((2, 2))) == "array([[0., 0.], [0., 0.]])"


# ---- What came out as an error of Python's


class Two:
    """A number that only `operator.index` reads."""

    def __index__(self):
        return 2


def test_numbers_of_any_kind_are_taken_as_numbers():
    assert PartialPlan({"base_m": 16}, block_dim=Two()) == PartialPlan({"base_m": 16}, block_dim=2)
    assert reduction_tree("seq:RNE", Two()) == reduction_tree("seq:RNE", 2)
    assert reduction_tree("seq:RNE", 4, Two()) == reduction_tree("seq:RNE", 4, 2)
    assert Options(most_instructions=Two()).most_instructions == 2


@pytest.mark.parametrize("orders", [10_001, 2**31, 2**32])
def test_nobody_waits_for_thousands_of_orders(orders):
    with pytest.raises(ConfigError, match=r"orders is .*from 0 to 10000"):
        check_schedule("dgrad", ConvProblem((1, 16, 2, 2), (16, 16, 1, 1)), orders=orders)


def test_a_range_of_a_billion_is_not_read():
    problem = ConvProblem((1, 16, 2, 2), (16, 16, 1, 1))
    tensors = {"grad_output": range(10**9), "input": range(10**9), "weight": range(10**9)}
    with pytest.raises(ShapeError, match="grad_output has 1000000000 parts"):
        spread(problem, tensors, [Math()])


@pytest.mark.parametrize("switch", [np.array([0, 1]), np.zeros((2, 2)), [0], object(), 99, None])
def test_a_switch_of_the_context_is_a_number(switch):
    assert aclrtCtxSetSysParamOpt(switch, 1) == aclrtCtxGetSysParamOpt(switch, Out()) != 0


@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_a_matrix_is_memory_like_any_array():
    there, back = np.asmatrix(np.arange(16, dtype=np.uint8).reshape(4, 4)), np.zeros(16, np.uint8)
    assert aclrtMemcpy(back, 16, there, 16) == 0
    assert (back == range(16)).all()
