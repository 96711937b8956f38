"""What does the first phase answer, and how much workspace does it ask for?"""

import resource
import time

import numpy as np
import pytest

from ascendsim import convolution_backward
from ascendsim.aclnn import AclnnError, AclTensor
from ascendsim.aclnn.workspace import LARGEST, planned_sizes
from ascendsim.errors import CapacityError
from ascendsim.ops.problems.convolution import ConvProblem
from tests.aclnn_calls import arguments_of, first_phase
from tests.rules_calls import changed, conv, tbc

SMALL = conv((2, 3, 5, 6), (4, 3, 3, 3), groups=1)
SYSTEM = 16 * 2**20


def refusal(call, arguments=None, **options):
    """Return (status, number of the check) of a call that the first phase refuses."""
    with pytest.raises(AclnnError) as caught:
        first_phase(call, arguments, **options)
    return caught.value.status, caught.value.check.partition(" ")[0]


def test_the_workspace_is_what_the_kernels_declare():
    # Deterministic sums of grad_weight are kept apart on 910_95: every part of the split reduction is there.
    call = conv((4, 16, 40, 40), (16, 16, 3, 3), groups=1, dtype="float16")
    given = arguments_of(call)
    size, _ = first_phase(call, given, product="910_95")
    held = {name: tensor.array for name, tensor in given.items() if isinstance(tensor, AclTensor)}
    result = convolution_backward(
        *(held[name] for name in ("grad_output", "input", "weight")),
        *(call.bias_sizes, call.stride, call.padding, call.dilation, False, call.output_padding, 1),
        *(call.output_mask, 0),
        product="910_95",
    )
    declared = [
        tensor
        for kernel in result.kernels
        for tensor in kernel.kernel.tensors.values()
        if tensor.role == "workspace"
    ]
    assert declared
    assert size == SYSTEM + sum(tensor.size_bytes for tensor in declared)


def test_without_sums_to_keep_it_is_the_systems_share():
    call = changed(SMALL, {"output_mask": (True, False, False)})
    assert first_phase(call)[0] == SYSTEM


@pytest.mark.parametrize("call", [SMALL, tbc(), conv()], ids=["2d", "tbc", "3d"])
def test_shapes_alone_are_enough_for_the_first_phase(call):
    assert first_phase(call, arguments_of(call, arrays=False))[0] == first_phase(call)[0]


def test_checks_come_before_everything_else():
    assert refusal(changed(SMALL, {"stride": (0, 1)})) == (161002, "11")
    assert refusal(changed(SMALL, {"input": None})) == (161001, "1")
    assert refusal(changed(tbc(), {"pad": -1})) == (161002, "5")


@pytest.mark.parametrize("product", ["310B", "310", "Ascend310B1"])
def test_products_without_a_profile_are_answered_by_the_rules(product):
    assert refusal(SMALL, product=product) == (161002, "3a")
    assert refusal(tbc(), product=product) == (161002, "1a")


@pytest.mark.parametrize("product", ["no such", None, 7, "missing.toml", b"910B"])
def test_an_unknown_product_is_an_answer_too(product):
    assert refusal(SMALL, product=product) == (161002, "0")


@pytest.mark.parametrize("rules", ["no such", None, 7, "missing.toml", [1]])
def test_an_unknown_rule_set_is_an_answer_too(rules):
    assert refusal(SMALL, rules=rules) == (161002, "0")


def test_an_array_of_another_dtype():
    given = arguments_of(SMALL)
    given["weight"] = AclTensor(given["weight"].array.astype(np.float64), "float32", "NCHW")
    assert refusal(SMALL, given) == (161002, "0")
    given["weight"] = AclTensor(given["weight"].array, "float64", "NCHW")
    assert refusal(SMALL, given) == (161002, "4")  # it is what it says, and that is not supported


@pytest.mark.parametrize(
    ("strides", "fine"), [((90, 30, 6, 1), True), ((1, 1, 1, 1), False), ((90, 30, 6, 2), False)]
)
def test_strides_beside_an_array_must_be_its_own(strides, fine):
    given = arguments_of(SMALL)
    given["input"] = AclTensor(given["input"].array, "float32", "NCHW", strides)
    if fine:
        first_phase(SMALL, given)
    else:
        assert refusal(SMALL, given) == (161002, "0")


@pytest.mark.parametrize("strides", [(1,), "ab", 5, (None,) * 4])
def test_strides_that_are_none(strides):
    given = arguments_of(SMALL)
    given["input"] = AclTensor(given["input"].array, "float32", "NCHW", strides)
    assert refusal(SMALL, given) == (161002, "0")


def test_strides_of_one_element_axes_do_not_matter():
    call = conv((1, 3, 5, 6), (4, 3, 3, 3), groups=1)
    given = arguments_of(call)
    given["input"] = AclTensor(given["input"].array, "float32", "NCHW", (5, 30, 6, 1))
    first_phase(call, given)


@pytest.mark.parametrize("value", [np.ones((2, 3, 5, 6), np.float32), [1, 2], 5, "tensor"])
def test_an_input_that_is_no_acltensor(value):
    given = arguments_of(SMALL)
    given["input"] = value
    assert refusal(SMALL, given) == (161002, "0")


TOO_LARGE = [
    conv((1, 1, 2**31 - 2), (1, 1, 3), groups=1, dtype="float16"),  # one endless row
    conv((1, 1, 5 * 10**6, 1, 1), (1, 1, 1, 1, 1), groups=1, padding=0, dtype="float16"),  # slices
    conv((1, 1, 10**6, 1, 1), (1, 1, 10**5, 1, 1), groups=1, padding=0, dtype="float16"),  # depth pairs
]
LARGE = [
    conv((2**32, 64, 7, 7), (64, 64, 3, 3), groups=1, dtype="float16"),  # bytes
    conv((2**31 - 2, 1, 1), (1, 1, 1), groups=1, padding=0, dtype="float16"),  # images
    conv((1, 2**27, 1, 1), (1, 2**27, 1, 1), groups=1, padding=0, dtype="float16"),  # channels
    conv((1, 16, 2000, 2000), (16, 16, 900, 900), groups=1, padding=0, dtype="float16"),  # taps
    conv((1, 2**21, 1), (2**21, 1, 1), groups=2**21, padding=0, dtype="float16"),  # groups
    conv((10**6, 1, 5, 5, 5), (1, 1, 5, 5, 5), groups=1, padding=0, dtype="float16"),  # images in depth
]


@pytest.mark.parametrize("call", LARGE, ids=lambda call: "x".join(map(str, call.input.shape)))
def test_a_large_call_of_small_images_is_planned_at_once(call):
    started = time.process_time()
    size, _ = first_phase(call, arguments_of(call, arrays=False), rules="hardware")
    assert size >= 16 * 2**20
    assert time.process_time() - started < 1


def test_the_first_phase_takes_no_longer_for_more_images():
    seconds = {}
    for batch in (10, 10**6):
        call = conv((batch, 16, 4, 4), (16, 16, 3, 3), groups=1, dtype="float16")
        first_phase(call, arguments_of(call, arrays=False))  # loads what it needs
        started = time.process_time()
        first_phase(call, arguments_of(call, arrays=False))
        seconds[batch] = time.process_time() - started
    assert seconds[10**6] < seconds[10] + 0.5  # to deal out a million images takes ten


AT_THE_LIMIT = {
    "a volume of 250,000 slices": conv(
        (1, 16, 250_000, 3, 3), (16, 16, 1, 3, 3), groups=1, padding=(0, 1, 1), dtype="float16"
    ),
    "a series of 2^24 steps": tbc(time=2**24, batch=1, channels=16, taps=3, made=16, dtype="float16"),
    "an image of 2^25 pixels": conv((1, 16, 2**13, 2**12), (16, 16, 3, 3), groups=1, dtype="float16"),
}


@pytest.mark.parametrize("call", AT_THE_LIMIT.values(), ids=AT_THE_LIMIT)
def test_the_largest_calls_that_are_planned_take_little(call):
    peak, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    first_phase(call, arguments_of(call, arrays=False))
    assert time.process_time() - started < 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 2**20  # KiB


@pytest.mark.parametrize("call", TOO_LARGE, ids=lambda call: "x".join(map(str, call.input.shape)))
def test_a_call_too_large_to_plan_is_refused_at_once(call):
    started = time.monotonic()
    with pytest.raises(AclnnError, match="limit of the simulator") as caught:
        first_phase(call, arguments_of(call, arrays=False), rules="hardware")
    assert caught.value.status == 561103
    assert time.monotonic() - started < 1


@pytest.mark.parametrize(
    "problem",
    [
        # ResNet-50's first layer at a batch of 2048, the widest depthwise layer of MobileNet at 256, a large
        # kernel over many channels, a long video
        ConvProblem((2048, 3, 224, 224), (64, 3, 7, 7), 2, 3),
        ConvProblem((256, 96, 112, 112), (96, 1, 3, 3), 1, 1, groups=96),
        ConvProblem((64, 384, 56, 56), (384, 1, 31, 31), 1, 15, groups=384),
        ConvProblem((1, 256, 120, 130, 130), (256, 256, 4, 4, 4)),
    ],
    ids=lambda problem: "x".join(map(str, problem.input)),
)
def test_real_layers_are_within_the_limits_of_planning(problem):
    for (what, most), value in zip(LARGEST.items(), planned_sizes(problem), strict=True):
        assert value <= most, what


def test_what_no_kernel_can_be_made_for_is_an_inner_failure():
    # 30 000 rows of stride 100 in one tap do not fit into L1 in any tile.
    call = conv((1, 16, 4, 4), (16, 16, 2, 2), groups=1, transposed=True, stride=10_000, padding=0)
    assert refusal(call, arguments_of(call, arrays=False), rules="hardware") == (561103, "31")


def test_a_tensor_shows_what_it_is():
    assert repr(AclTensor((1, 2), "FLOAT", "ND")) == "AclTensor((1, 2), 'FLOAT', 'ND', strides=None)"
    assert repr(AclTensor(None, None)) == "AclTensor(None, None, None, strides=None)"


@pytest.mark.parametrize(
    ("raised", "says"),
    [(MemoryError(), "its kernels do not fit into memory"), (CapacityError("no tile fits"), "no tile fits")],
)
@pytest.mark.parametrize(("call", "check"), [(SMALL, "31 (inner operators)"), (tbc(), "8 (inner operators)")])
def test_a_call_that_cannot_be_lowered_is_an_inner_failure(monkeypatch, call, check, raised, says):
    def fail(*_):
        raise raised

    monkeypatch.setattr("ascendsim.ops.lowering.lower.lower", fail)
    with pytest.raises(AclnnError) as caught:
        first_phase(call, arguments_of(call, arrays=False))
    assert (caught.value.status, caught.value.check) == (561103, check)
    assert says in str(caught.value)
