"""Do gradients that are to lie in places of their own have the same bits, and a ViewCopy each at its cost?"""

import numpy as np
import pytest

from ascendsim import ConvProblem, conv_tbc_backward, convolution_backward, estimate
from ascendsim.aclnn import AclTensor
from ascendsim.errors import AclnnError, CapacityError, ConfigError, ShapeError
from ascendsim.functional import run_kernel
from ascendsim.instructions.relayout import Rearrange
from ascendsim.instructions.vector import CopyGmToUb, CopyUbToGm
from ascendsim.numerics.accumulation import AccumulationModel
from ascendsim.ops.lowering.graph import GraphBuilder, VectorKernels
from ascendsim.ops.problems.views import View
from ascendsim.ops.schedules.vector.dilation import gather, scatter
from ascendsim.program.places import GmTensor, Slot
from ascendsim.timing.kernel import time_kernel
from tests.helpers.calls import OUTPUTS, arguments_of, conv, first_phase, names
from tests.helpers.toy_machines import toy_split, toy_unified

P = ConvProblem((2, 4, 6, 5), (6, 4, 3, 3), 1, 1)
SHAPES = {"grad_input": P.input, "grad_weight": P.weight, "grad_bias": (6,)}
# Every second column; channels innermost; every third element.
APART = {"grad_input": (240, 60, 10, 2), "grad_weight": (36, 1, 12, 4), "grad_bias": (3,)}
COPIES = [f"viewcopy_{name}" for name in SHAPES]


# What is written


@pytest.mark.parametrize(
    ("shape", "strides", "itemsize", "expected"),
    [
        # two rows of 16 halves with a gap: 32 bytes each
        ((2, 16), (40, 1), 2, 64),
        # every second of 16 halves: a block for each, where a read takes the line of 62 bytes as a whole
        ((2, 16), (64, 2), 2, 2 * 16 * 32),
        # NHWC seen as NCHW (1, 3, 4, 5): all 60 floats are one dense line of 240 bytes, eight blocks
        ((1, 3, 4, 5), (60, 1, 15, 3), 4, 256),
        # rows of 5 floats with a gap: 20 bytes, a block each
        ((3, 5), (8, 1), 4, 96),
        # backwards: the same bytes as forwards
        ((16,), (-1,), 2, 32),
        ((1, 1), (1, 1), 4, 32),
    ],
)
def test_bytes_written_leave_alone_what_lies_between(shape, strides, itemsize, expected):
    assert View(shape, strides).bytes_written(itemsize) == expected


@pytest.mark.parametrize(
    ("shape", "strides", "shared"),
    [
        ((4, 4), (4, 1), False),
        ((4, 4), (1, -4), False),
        ((4, 4), (2, 1), True),
        ((2, 3), (3, 2), False),  # 0, 2, 4 and 3, 5, 7: between each other, none twice
        ((3, 4), (3, 2), True),  # 2 x 3 = 3 x 2
        ((5,), (0,), True),
        ((0, 5), (0, 0), False),
    ],
)
def test_places_that_two_elements_share(shape, strides, shared):
    assert View(shape, strides).shares_places is shared


# The kernel


def view_copy(view, dtype="float32", profile=None):
    graph = GraphBuilder({"grad_input": GmTensor.of("grad_input", view.shape, dtype)})
    VectorKernels(graph, profile or toy_split(), AccumulationModel("exact")).view_copy("grad_input", view)
    made = graph.build(("grad_input",))
    # What the call gives back is what the copy wrote.
    assert made.outputs["grad_input"].name == "grad_input in its places"
    return made.kernels[0]


def kinds(kernel):
    return {type(i).__name__ for work in kernel.phases[0].work for i in work.build().instructions}


@pytest.mark.parametrize("profile", [toy_split(), toy_unified()], ids=["split", "unified"])
@pytest.mark.parametrize("strides", [(2000, 50, 2), (1, 7, 35), (-60, 12, 1)])
def test_every_element_is_written_as_it_was(profile, strides):
    values = np.arange(7 * 5 * 11, dtype=np.float32).reshape(7, 5, 11)
    kernel = view_copy(View(values.shape, strides), profile=profile)
    gm = {"grad_input": values}
    # Its transfers say the bytes of the sectors that they cross, not those of the slice.
    run_kernel(kernel, gm, checked=False)
    assert gm["grad_input in its places"].tobytes() == values.tobytes()
    assert kernel.op_type == "ViewCopy"
    assert kernel.facts["strides"] == strides


def test_scattered_elements_take_a_pass_over_ub_and_a_block_each():
    # 64 x 64 halves: rows of 128 bytes, or 4096 blocks of 32.
    rows, scattered = (view_copy(View((64, 64), s), "float16") for s in [(128, 1), (8192, 2)])
    assert kinds(rows) == {"CopyGmToUb", "CopyUbToGm"}
    assert kinds(scattered) == {"CopyGmToUb", "Rearrange", "CopyUbToGm"}
    fast, slow = (time_kernel(kernel, toy_split()) for kernel in (rows, scattered))
    assert fast.bytes["l2_read"] == 64 * 128
    assert [one.bytes["l2_write"] for one in (fast, slow)] == [64 * 128, 64 * 64 * 32]
    assert slow.cycles > fast.cycles


# One vector core, whose UB holds 4 KiB in four pieces (two are read while two are written) of 1 KiB each.
ALONE = {"cores.vector": 1, "cores.cube": 1}
# Every third half: one of 16 takes ((16 - 1) * 3 + 1) * 2 = 92 bytes, so 96, in one line; 6 bytes for each.
THIRDS = View((32, 16), (64, 3))


def copied(phase, move):
    """The elements and bytes of each copy of a kind on the only core of a phase."""
    [work] = phase.work
    return [
        (np.prod(one.tile_shape), one.bytes) for one in work.build().instructions if isinstance(one, move)
    ]


@pytest.mark.parametrize(
    ("changed", "each"),
    # Of 1024 bytes 170 elements with 6 bytes each; of 2048 bytes 341.
    [({}, 170), ({"buffers.UB.capacity_bytes": 8192}, 341)],
)
def test_pieces_of_what_is_gathered_are_as_long_as_a_quarter_of_ub_holds(changed, each):
    source, target = (GmTensor.of(name, (THIRDS.size,), "float16") for name in ("from", "to"))
    phase = gather(toy_split(**ALONE, **changed), source, THIRDS, target)
    counts = [each] * (512 // each) + ([512 % each] if 512 % each else [])
    assert copied(phase, CopyGmToUb) == [(count, 6 * count) for count in counts]
    [work] = phase.work
    passes = [one.bytes for one in work.build().instructions if isinstance(one, Rearrange)]
    assert passes == [6 * count for count in counts]
    stores = [one for one in work.build().instructions if isinstance(one, CopyUbToGm)]
    assert [one.bytes for one in stores] == [2 * count for count in counts]


def test_no_piece_is_longer_than_16_kib():
    # However large UB is: 16384 / 6 elements of a line of 4096.
    view = View((256, 16), (64, 3))
    source, target = (GmTensor.of(name, (view.size,), "float16") for name in ("from", "to"))
    phase = gather(toy_split(**ALONE, **{"buffers.UB.capacity_bytes": 196608}), source, view, target)
    assert [count for count, _ in copied(phase, CopyGmToUb)] == [2730, 1366]


def test_pieces_of_what_is_scattered_have_a_block_for_each_element():
    # 1024 bytes are 32 blocks of 32 bytes; each is read in two bytes and written in 32.
    source, target = (GmTensor.of(name, (THIRDS.size,), "float16") for name in ("from", "to"))
    phase = scatter(toy_split(**ALONE), source, THIRDS, target)
    assert copied(phase, CopyGmToUb) == [(32, 64)] * 16
    [work] = phase.work
    moved = [one.bytes for one in work.build().instructions if isinstance(one, Rearrange | CopyUbToGm)]
    assert moved == [1024] * 32


@pytest.mark.parametrize(
    ("view", "loaded", "passes"),
    # 32 rows that are one and the same 32 bytes: 1 byte is read for each element, which takes 2 in UB, where
    # blocks already lie in order. A single element 512 times: one block for all of them.
    [(View((32, 16), (0, 1)), [(512, 512)], []), (View((512,), (0,)), [(512, 32)], [32])],
)
def test_pieces_of_a_broadcast_are_as_long_as_what_comes_of_them(view, loaded, passes):
    source, target = (GmTensor.of(name, (view.size,), "float16") for name in ("from", "to"))
    phase = gather(toy_split(**ALONE), source, view, target)
    assert copied(phase, CopyGmToUb) == loaded
    [work] = phase.work
    assert [one.bytes for one in work.build().instructions if isinstance(one, Rearrange)] == passes


@pytest.mark.parametrize(
    ("move", "view", "sizes"),
    # In whole blocks of 32 bytes.
    [
        # 170 elements, which lie in 6 bytes each when they come and in 2 when they leave.
        (gather, THIRDS, {"read": 170 * 6 + 4, "written": 170 * 2 + 12}),
        # 32 elements of 2 bytes, each of which leaves in a block.
        (scatter, THIRDS, {"read": 32 * 2, "written": 32 * 32}),
        # 512 elements of 2 bytes, of which 1 byte each is read: they take 2 bytes all the same.
        (gather, View((32, 16), (0, 1)), {"read": 512 * 2}),
        # 5 elements: no more room than they need.
        (gather, View((5,), (3,)), {"read": 32, "written": 32}),
    ],
)
def test_slots_hold_what_comes_and_what_leaves(move, view, sizes):
    source, target = (GmTensor.of(name, (view.size,), "float16") for name in ("from", "to"))
    [work] = move(toy_split(**ALONE), source, view, target).work
    slots = {slot for one in work.build().instructions for slot in one.writes if isinstance(slot, Slot)}
    assert {slot.name.partition("[")[0]: slot.size_bytes for slot in slots} == sizes


@pytest.mark.parametrize("capacity_bytes", [128, 96])
def test_ub_holds_one_element_at_least_or_is_named(capacity_bytes):
    # One element in a block of its own: 2 x 32 bytes before and 2 x 32 behind the pass.
    profile = toy_split(**ALONE, **{"buffers.UB.capacity_bytes": capacity_bytes})
    source, target = (GmTensor.of(name, (THIRDS.size,), "float16") for name in ("from", "to"))
    phase = scatter(profile, source, THIRDS, target)
    if capacity_bytes == 128:
        assert copied(phase, CopyGmToUb) == [(1, 2)] * 512
        return
    [work] = phase.work
    with pytest.raises(CapacityError, match="UB of toy_split holds 96 bytes"):
        work.build()


# In a call


def run(strides=None, **options):
    rng = np.random.default_rng(5)
    tensors = [rng.integers(-4, 5, shape).astype(np.float16) for shape in (P.grad_output, P.input, P.weight)]
    rest = [6], 1, 1, 1, False, 0, 1, (True, True, True), 0
    options = {"rules": "shipped", **options}
    return convolution_backward(*tensors, *rest, output_strides=strides, **options)


@pytest.mark.parametrize("product", ["910B", "910_95", "310P"])
def test_a_view_copy_stands_at_the_end_for_each_gradient_with_gaps(product):
    plain, apart = run(product=product), run(APART, product=product)
    assert names(apart) == [*names(plain), *COPIES]
    assert [kernel.kernel.op_type for kernel in apart.kernels[-3:]] == ["ViewCopy"] * 3
    assert apart.cycles == plain.cycles + sum(kernel.cycles for kernel in apart.kernels[-3:])
    for name in OUTPUTS:
        assert getattr(apart, name).tobytes() == getattr(plain, name).tobytes()
        assert getattr(apart, name).flags.c_contiguous
    assert any("ViewCopy" in note for note in apart.notes)
    assert not any("ViewCopy" in note for note in plain.notes)


@pytest.mark.parametrize("l2_start", ["warm", "cold", "handed", "chained"])
@pytest.mark.parametrize("engine", ["compiled", "simpy"])
def test_an_estimate_counts_them_alike_in_both_engines(l2_start, engine):
    options = {"rules": "shipped", "l2_start": l2_start}
    found = estimate(P, output_strides=APART, engine=engine, **options)
    made = run(APART, **options)
    assert names(found) == names(made)
    assert [kernel.cycles for kernel in found.kernels] == [kernel.cycles for kernel in made.kernels]


def test_without_timing_the_bits_are_the_same():
    assert run(APART, timing=False).grad_weight.tobytes() == run().grad_weight.tobytes()


def test_gradients_in_order_and_masked_ones_cost_none():
    whole = {name: View.row_major(shape).strides for name, shape in SHAPES.items()}
    assert names(estimate(P, output_strides=whole)) == names(estimate(P))
    masked = estimate(P, output_strides=APART, output_mask=(True, False, False), rules="shipped")
    assert names(masked)[-1] == "viewcopy_grad_input"
    assert not {"viewcopy_grad_weight", "viewcopy_grad_bias"} & set(names(masked))


def test_the_documented_rules_refuse_gaps():
    with pytest.raises(AclnnError, match=r"161002.*grad_input of shape .* outputs must be contiguous"):
        run(APART, rules="documented")


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ("grad_input", ConfigError, r"output_strides is 'grad_input'; it must be strides by name"),
        ({"grad_input": 3}, ConfigError, r"it must be strides by name"),
        ({"weight": (1,)}, ConfigError, r"has 'weight'; it takes grad_input, grad_weight, grad_bias"),
        ({"grad_input": (1, 1)}, AclnnError, r"161002.*grad_input.strides"),
        ({"grad_input": (0, 30, 5, 1)}, ShapeError, r"grad_input of shape .* elements in the same place"),
    ],
)
def test_what_are_no_strides_is_refused(given, error, words):
    with pytest.raises(error, match=words):
        estimate(P, output_strides=given, rules="shipped")


def test_a_transposed_copy_of_conv_tbc_is_followed_by_one():
    # (T, B, C) with channels outermost in memory.
    rng = np.random.default_rng(1)
    shapes = (7, 2, 5), (7, 2, 3), (3, 3, 5), (5,)
    given = [rng.integers(-4, 5, shape).astype(np.float16) for shape in shapes]
    plain, apart = (
        conv_tbc_backward(*given, 1, 0, rules="shipped", output_strides=strides)
        for strides in (None, {"grad_input": (1, 7, 14)})
    )
    assert names(apart) == [*names(plain), "viewcopy_grad_input"]
    assert apart.grad_input.tobytes() == plain.grad_input.tobytes()


def test_zeros_of_an_empty_call_are_copied_too():
    tensors = [np.zeros(shape, np.float16) for shape in ((0, 6, 6, 5), (0, 4, 6, 5), P.weight)]
    rest = [6], 1, 1, 1, False, 0, 1, (True, True, True), 0
    apart = {"grad_weight": APART["grad_weight"]}
    made = convolution_backward(*tensors, *rest, rules="shipped", output_strides=apart)
    assert names(made) == ["fill_grad_weight", "fill_grad_bias", "viewcopy_grad_weight"]
    assert not made.grad_weight.any()


# Through the interface


def test_an_output_with_gaps_is_written_and_costs_its_copy():
    call = conv(P.input, P.weight, groups=1, dtype="float16")
    given = arguments_of(call)
    size, executor = first_phase(call, given, rules="shipped")
    plain = executor.run(size)
    wide = np.ones((*P.input[:-1], 2 * P.input[-1]), np.float16)
    apart = {**given, "grad_input": AclTensor(wide[..., ::2], "float16", "NCHW")}
    larger, executor = first_phase(call, apart, rules="shipped")
    made = executor.run(larger)
    assert names(made) == [*names(plain), "viewcopy_grad_input"]
    assert wide[..., ::2].tobytes() == plain.grad_input.tobytes()
    assert np.all(wide[..., 1::2] == 1)
    # grad_input row after row lies between two kernels now: 2 x 4 x 6 x 5 elements of 2 bytes.
    assert larger - size == 480
