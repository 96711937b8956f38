"""Do vector cores turn weights and change layouts with the bits of their instructions, at equal cost?"""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from ascendsim import ConvProblem, Tiling, check_schedule, estimate, load_profile
from ascendsim.errors import ConfigError, UnsupportedError
from ascendsim.functional import run_kernel
from ascendsim.numerics.accumulation import AccumulationModel, IntegerSum, MathSettings
from ascendsim.numerics.casts import round_to
from ascendsim.ops.lowering.kernels import lower
from ascendsim.ops.matmul import change_of
from ascendsim.ops.plan import Plan, shares
from ascendsim.ops.schedules.vector.boxes import BoxCut, extents
from ascendsim.ops.schedules.vector.elementwise import cast, zero_fill
from ascendsim.ops.schedules.vector.relayout import Box, PixelRelayout
from ascendsim.ops.schedules.vector.taps import DiagonalGradient, DiagonalWeight
from ascendsim.ops.tiling.vendor.names import from_vendor, to_vendor, unnamed
from ascendsim.program.kernel import Kernel
from ascendsim.program.places import GmTensor
from tests.helpers.calls import arguments_of, conv, first_phase
from tests.helpers.conv_cases import assert_same_bits, call_of, kernels_with_inputs, run, tensors_of
from tests.helpers.toy_machines import toy_split

# --- Do vector cores of 910_95 turn the weights of grad_input first where the operator has them do so? -
# When they do is a rule of plans (`tests/plans/test_thresholds_dgrad.py`); what they then run is held here.

ONLY = {"product": "950PR_9589", "output_mask": (True, False, False)}
SMALL = {
    "shares": ConvProblem((2, 40, 7, 6), (20, 40, 3, 3), padding=1),
    "depth": ConvProblem((1, 24, 3, 6, 5), (20, 24, 2, 3, 3), (1, 2, 1), (0, 1, 1)),
    "split": ConvProblem((2, 40, 8, 6), (20, 40, 3, 3), 2, 1),
}
TURNED = Tiling(
    *(16, 16, 16, 9, 9),
    used_cores=4,
    single_core_m=16,
    mapping="interleaved",
    task_order="batch group d m n",
    transpose_first=True,
)


def nest_of(name):
    return (
        ("dgrad_split", replace(TURNED, kernel_split="hw")) if name == "split" else ("dgrad_shares", TURNED)
    )


# --- the kernel


@pytest.mark.parametrize("name", SMALL)
def test_the_bits_are_those_of_the_ordered_sum(name):
    nest, tiling = nest_of(name)
    found = check_schedule(nest, SMALL[name], product="950PR_9589", tiling={"grad_input": tiling})
    assert found.orders[0] == "program"


@pytest.mark.parametrize("name", SMALL)
def test_not_a_number_and_infinite_stay_what_they_are(name):
    nest, tiling = nest_of(name)
    profile, made = toy_split(**{"cores.cube": 4, "cores.vector": 8, "buffers.L1.capacity_bytes": 65536}), {}
    tensors = tensors_of(SMALL[name], data="special", seed=4)
    for turned in (True, False):
        call = call_of(SMALL[name], profile=profile)
        plan = Plan(nest, replace(tiling, transpose_first=turned))
        call = replace(call, plans=call.plans | {"grad_input": plan})
        made[turned] = run(call, tensors, mask=ONLY["output_mask"])[0]["grad_input"]
    assert np.isnan(made[True]).any()
    assert_same_bits(made[True], made[False], "grad_input")


def test_a_phase_of_vector_cores_comes_first_and_copies_then_go_four_times_as_fast():
    on, off = (
        estimate(
            SMALL["shares"],
            tiling={"grad_input": Plan("dgrad_shares", replace(TURNED, transpose_first=on))},
            **ONLY,
        ).kernels[0]
        for on in (True, False)
    )
    assert [phase.name for phase in on.kernel.phases] == [
        "turned weights",
        *(p.name for p in off.kernel.phases),
    ]
    kinds = {type(step).__name__ for work in on.kernel.phases[0].work for step in work.build().instructions}
    assert kinds >= {"CopyGmToUb", "TurnTile", "CopyUbToGm"}
    # Every weight is turned once: 20 channels (32 kept) x 9 taps x 40 channels (48 kept) of 2 bytes.
    written = [
        step.bytes
        for work in on.kernel.phases[0].work
        for step in work.build().instructions
        if type(step).__name__ == "CopyUbToGm"
    ]
    assert sum(written) == 32 * 9 * 48 * 2


def weights_into_l1(kernel, profile):
    """Return the bytes a cycle of the first copy of weights into L1."""
    phase = next(phase for phase in kernel.phases if phase.name == "compute")
    for step in phase.work[0].build().instructions:
        if type(step).__name__ == "CopyGmToL1" and "weight" in step.src.tensor.name:
            return step.cost(profile).traffic.peak_bytes_per_cycle
    raise AssertionError("no copy of weights")


def test_copies_of_turned_weights_are_not_slowed():
    # 100 bytes a cycle into L1, and 25 where the copy turns (`transposing_bytes_per_cycle`).
    profile, rates = load_profile("950PR_9589"), {}
    for on in (True, False):
        plan = Plan("dgrad_shares", replace(TURNED, transpose_first=on))
        kernel = estimate(SMALL["shares"], tiling={"grad_input": plan}, **ONLY).kernels[0].kernel
        rates[on] = weights_into_l1(kernel, profile)
    assert rates[True] == 4 * rates[False]


def test_neither_are_those_of_weights_that_vector_cores_have_merged():
    depthwise = ConvProblem((1, 32, 9, 9), (32, 1, 3, 3), padding=1, groups=32)
    profile, rates = load_profile("950PR_9589"), {}
    for merge in (16, 1):
        tiling = {"grad_input": {"group_merge": merge}}
        result = estimate(depthwise, tiling=tiling, **ONLY)
        assert result.plans["grad_input"].tiling.group_merge == merge
        rates[merge] = weights_into_l1(result.kernels[0].kernel, profile)
    assert rates[16] == 4 * rates[1]


def test_one_engine_says_what_the_other_does():
    for name in ("shares", "split"):
        nest, tiling = nest_of(name)
        told = [
            estimate(SMALL[name], tiling={"grad_input": Plan(nest, tiling)}, engine=engine, **ONLY).cycles
            for engine in ("compiled", "simpy")
        ]
        assert told[0] == told[1]


def test_a_layer_that_the_rule_names_gets_it_by_default():
    layer = ConvProblem((2, 288, 40, 40), (288, 288, 3, 3), 2, 1)
    result = estimate(layer, **ONLY)
    assert result.plans["grad_input"].tiling.transpose_first
    # Weights that lie turned are read faster than they are turned, here.
    plan = result.plans["grad_input"]
    without = replace(plan, tiling=replace(plan.tiling, transpose_first=False))
    assert result.cycles < estimate(layer, tiling={"grad_input": without}, **ONLY).cycles


def test_the_operator_asks_for_room_for_all_weights():
    # 287 x 9 taps x 288 channels of 2 bytes. Besides the phases of a tile are interleaved there: on 32 cores
    # 4 of them, 16 rows of 32 pixels (512) and 96 channels.
    call = conv((2, 287, 64, 64), (287, 287, 3, 3), 2, groups=1, dtype="float16", mask=ONLY["output_mask"])
    asked = first_phase(call, arguments_of(call, arrays=False), product="910_95")[0] - 16 * 2**20
    assert asked == 287 * 9 * 288 * 2 + 32 * 4 * 512 * 96 * 2


# --- plans


def test_a_product_that_runs_transdata_refuses_it():
    plan = Plan("dgrad_shares", TURNED)
    with pytest.raises(ConfigError, match="TransData"):
        estimate(
            SMALL["shares"], product="910B2", output_mask=(True, False, False), tiling={"grad_input": plan}
        )


def test_the_vendors_name_is_read_and_written():
    entry = {"baseM": 16, "baseN": 16, "baseK": 16}
    assert from_vendor("grad_input", {**entry, "enableVecTrans": 1}).fields["transpose_first"] is True
    assert from_vendor("grad_input", {**entry, "enableVecTrans": 0}).fields["transpose_first"] is False
    assert "transpose_first" not in from_vendor("grad_input", entry).fields
    plan = Plan("dgrad_shares", TURNED)
    assert to_vendor("grad_input", plan)["enableVecTrans"] == 1
    assert "transpose_first" not in unnamed("grad_input", plan)


def test_the_flag_beside_the_number_says_the_same():
    entry = {"baseM": 16, "baseN": 16, "baseK": 16}
    for flag in (True, False):
        alone = from_vendor("grad_input", {**entry, "enableVecTransFlag": flag})
        assert alone.fields["transpose_first"] is flag
        both = from_vendor("grad_input", {**entry, "enableVecTrans": int(flag), "enableVecTransFlag": flag})
        assert both == alone
    assert (
        "transpose_first"
        not in from_vendor("grad_input", {**entry, "enableVecTransFlag": False, "enableC04Flag": True}).fields
    )


@pytest.mark.parametrize(
    ("said", "error", "message"),
    [
        (
            {"enableVecTrans": 0, "enableVecTransFlag": True},
            ConfigError,
            "enableVecTrans 0 but enableVecTransFlag 1",
        ),
        ({"enableVecTrans": 2}, ConfigError, "enableVecTrans is 2; it must be 0 or 1"),
        ({"enableVecTransFlag": "no"}, ConfigError, "enableVecTransFlag is 'no'; it must be 0 or 1"),
        # Four channels a tap lie otherwise than the layout into which weights are turned.
        (
            {"enableVecTrans": 1, "enableC04Flag": True},
            UnsupportedError,
            "enableC04Flag and enableVecTrans are both on",
        ),
    ],
)
def test_what_contradicts_itself_or_means_nothing_is_told(said, error, message):
    with pytest.raises(error, match=message):
        from_vendor("grad_input", {"baseM": 16, "baseN": 16, "baseK": 16, **said})


def test_it_is_a_switch():
    with pytest.raises(ConfigError, match="transpose_first is 1; it must be True or False"):
        Tiling(16, 16, 16, transpose_first=1)


# --- Do the cores of a change of layout count as equal if, and only if, their boxes cost the same? -----

# (way, shape, channels of a group): last groups that are not full, last parts of a line that are shorter,
# several planes whose tasks a core may begin in the middle of, and whole planes for each core.
CHANGES = [
    ("NCHW->NC1HWC0", (1, 37, 9, 9), 16),
    ("NC1HWC0->NCHW", (2, 33, 10, 7), 16),
    ("NCHW->NC1HWC0", (5, 20, 6, 7), 8),
    ("NCHW->NC1HWC0", (9, 37, 5, 5), 16),
    ("NCHW->FRACTAL_Z", (40, 37, 3, 3), 16),
    ("FRACTAL_Z->NCHW", (37, 40, 3, 3), 16),
    ("FRACTAL_Z->NCHW", (19, 5, 1, 1), 16),
]


@pytest.mark.parametrize("fits", [10**6, 16, 0], ids=["lines", "fractals", "less"])
@pytest.mark.parametrize("cores", [1, 3, 7, 9, 48])
@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_cores_are_alike_if_their_boxes_are(change, cores, fits):
    way, shape, c0 = change
    made = change_of(way, shape, "float16", c0)
    cut = BoxCut(made, cores, fits)
    # Any run of tasks, beside those that cores get: a share may begin anywhere in a plane.
    runs = [*shares(cut.tasks, cores), *(range(at, min(cut.tasks, at + 9)) for at in range(cut.tasks))]
    by_boxes, by_signature = {}, {}
    for each_run in runs:
        boxes = tuple(extents(made, box) for box in one_by_one(cut, each_run))
        signature = cut.signature(each_run)
        assert by_boxes.setdefault(boxes, signature) == signature
        assert by_signature.setdefault(signature, boxes) == boxes


def one_by_one(cut, run):
    """All boxes of some tasks, those of each plane by themselves."""
    return [
        box._replace(plane=plane)
        for box, planes in cut.boxes(run)
        for plane in range(box.plane, box.plane + planes)
    ]


def test_a_signature_has_a_number_for_each_box():
    # 3 groups of 16 channels, the last with 5, in 6 parts of 16 pixels, the last with 1: 18 boxes of 4 kinds;
    # half of UB holds 16 pixels of a group
    cut = BoxCut(change_of("NCHW->NC1HWC0", (1, 37, 9, 9), "float16", 16), 48, 16)
    assert cut.tasks == 18
    one, last = 5 * [0] + [1], 5 * [2] + [3]
    numbers, planes = zip(*cut.signature(range(18)), strict=True)
    assert set(planes) == {1}
    kinds = {number: place for place, number in enumerate(dict.fromkeys(numbers))}
    assert [kinds[number] for number in numbers] == one + one + last


@pytest.mark.parametrize(
    ("way", "images", "fits", "tasks", "each"),
    [
        # 16 images on 30 cores use 16 / 30 of a round, more than half: an image each, if a group is packed at
        # once.
        ("NCHW->NC1HWC0", 16, 25, 16, 1),
        # Else there are 3 groups to an image, of 2 fractals of pixels, of which half of UB holds one: 96
        # tasks, and 30 cores need 4 rounds.
        ("NCHW->NC1HWC0", 16, 16, 96, 4),
        # Not packed, groups are dealt: 48 of them in 2 rounds.
        ("NC1HWC0->NCHW", 16, 25, 48, 2),
        # 15 images leave half of the cores idle, 33 of two rounds nearly half: 33 / 60 is more than half.
        ("NCHW->NC1HWC0", 15, 25, 45, 2),
        ("NCHW->NC1HWC0", 33, 25, 33, 2),
        # 18 of 30 are 0.6, enough for every change.
        ("NC1HWC0->NCHW", 18, 0, 18, 1),
    ],
)
def test_cores_get_whole_images_beyond_half_of_their_rounds_where_a_group_is_packed_at_once(
    way, images, fits, tasks, each
):
    change = change_of(way, (images, 37, 5, 5), "float16", 16)
    cut = BoxCut(change, 30, fits)
    assert (cut.tasks, cut.each) == (tasks, each)


@pytest.mark.parametrize(
    ("way", "shape", "cores", "rows"),
    [
        # One row more than 48 cores have in the mean: 192 rows are 5 each on 39 cores, 256 are 6 on 43, and
        # 384 are 9 on 43. So many blocks the profiles of such kernels count.
        ("NCHW->FRACTAL_Z", (192, 64, 5, 5), 39, 5),
        ("FRACTAL_Z->NCHW", (192, 64, 5, 5), 39, 5),
        ("NCHW->FRACTAL_Z", (256, 256, 3, 3), 43, 6),
        ("NCHW->FRACTAL_Z", (384, 192, 3, 3), 43, 9),
        # Rows of 3 x 121 numbers of 4 bytes are 45 blocks and 12 bytes: 8 of them are whole blocks.
        ("FRACTAL_Z->NCHW", (64, 3, 11, 11), 8, 8),
        ("NCHW->FRACTAL_Z", (64, 3, 11, 11), 32, 2),
        # Of one tap groups of 8 channels are dealt.
        ("NCHW->FRACTAL_Z", (192, 192, 1, 1), 24, 192),
    ],
)
def test_weights_are_dealt_by_rows_unless_they_have_one_tap(way, shape, cores, rows):
    cut = BoxCut(change_of(way, shape, "float32", 8), 48, 4096)
    assert (-(-cut.tasks // cut.each), cut.each) == (cores, 1)
    assert len(next(cut.boxes(range(1)))[0].line) == rows


def diagonal(cls):
    """A change of 5 groups of 3 channels with 2 on the other side, 3 groups at a time: 9 and 6 in a block."""
    plain = GmTensor("plain", (1, 15, 2, 1, 9), "float16", 2)
    # Read, a group of C0 is one of the small side; made, each of 9 rows has the 6 others.
    shape = (2, 1, 1, 9, 16, 16) if cls is DiagonalWeight else (2, 1, 9, 1, 9, 16)
    packs = cls is DiagonalWeight
    return cls(plain, GmTensor("packed", shape, "float16", 2), 9 if packs else 6, packs, 3, 3)


def merged():
    """A change of 5 groups of 8 channels as 3 of 16: the last of these has half of its channels."""
    plain, packed = (2, 40, 1, 30), (3, 2, 1, 1, 30, 16)
    tensors = [GmTensor(name, shape, "float16", 2) for name, shape in (("a", plain), ("b", packed))]
    return PixelRelayout(*tensors, 16, True)


OTHERS = {
    "merged": merged,
    **{cls.__name__: partial(diagonal, cls) for cls in (DiagonalWeight, DiagonalGradient)},
}
ALL = {str(change): partial(change_of, change[0], change[1], "float16", change[2]) for change in CHANGES}


@pytest.mark.parametrize("make", (ALL | OTHERS).values(), ids=ALL | OTHERS)
def test_boxes_of_equal_extents_take_up_the_same_room(make):
    change = make()
    rooms = {}
    line = range(0, change.line, max(1, change.step // 2))
    boxes = [
        Box(plane, range(first, end), range(start, min(change.line, start + length)), range(begin, stop))
        for plane in range(change.planes)
        for first in range(change.c1)
        for end in range(first + 1, change.c1 + 1)
        for start in line
        for length in (change.step, 2 * change.step, change.line)
        for begin, stop in {(0, change.area), (0, 1), (change.area - 1, change.area)}
    ]
    for box in boxes:
        assert change.plain_shape(box) == change.plain_side(box).shape
        sides = change.sides(box)
        room = tuple((side.shape, side.rows, side.rows and side.row_bytes) for side in sides)
        assert rooms.setdefault(extents(change, box), room) == room
    # Some are alike, and not all are.
    assert 1 < len(rooms) < len(boxes)


@pytest.mark.parametrize("fits", [10**6, 16, 0], ids=["lines", "fractals", "less"])
@pytest.mark.parametrize("cores", [1, 3, 7, 48])
@pytest.mark.parametrize("make", (ALL | OTHERS).values(), ids=ALL | OTHERS)
def test_a_row_tells_where_its_box_lies(make, cores, fits):
    change = make()
    cut = BoxCut(change, cores, fits)
    runs = [*shares(cut.tasks, cores), *(range(at, min(cut.tasks, at + 9)) for at in range(cut.tasks))]
    for each_run in runs:
        boxes = [cut.moved(cut.kinds[kind], place) for kind, place in cut.rows(each_run)]
        assert boxes == one_by_one(cut, each_run)
        # And it costs what the first one of its kind does.
        kinds = [extents(change, cut.kinds[kind]) for kind, _ in cut.rows(each_run)]
        assert kinds == [extents(change, box) for box in boxes]
        assert all(0 <= place < cut.places for _, place in cut.rows(each_run))


def test_planes_are_taken_together_up_to_a_group_with_fewer_channels():
    # 3 groups of 2 images each; the last group has half of its channels: planes 4 and 5
    cut = BoxCut(merged(), 1, 30)
    assert [(box.plane, planes) for box, planes in cut.boxes(range(cut.tasks))] == [(0, 4), (4, 2)]


# -------------------------------------------------------------------------------------------------------
# Does a kernel of the vector cores make at once the bits that its instructions make, and only when asked?
# -------------------------------------------------------------------------------------------------------

# UB of 4 KiB takes 256 elements of a cast at a time.
PROFILE = toy_split(**{"cores.cube": 2, "cores.vector": 4, "buffers.UB.capacity_bytes": 4096})
MODEL = AccumulationModel("exact")
# Beyond float16 and the 8-bit formats, below their subnormals, ties, both zeros, NaN.
EDGES = [65504, 65519.996, 65520, 1e38, 448, 464, 465, 32768, 40960, 2.0**-24, 2.0**-25, 1e-45, 0.0, np.inf]


def same_bits(one, other):
    """Tell whether two arrays are equal bit for bit, any NaN equal to any."""
    nan = np.isnan(one)
    return np.array_equal(nan, np.isnan(other)) and np.array_equal(
        one.view(np.int32)[~nan], other.view(np.int32)[~nan]
    )


def edges(count):
    """Return so many values: the edges with both signs, a NaN, and normal values."""
    values = np.random.default_rng(0).standard_normal(count).astype(np.float32)
    given = np.array([*EDGES, *[-value for value in EDGES], np.nan], np.float32)
    values[: len(given)] = given
    return values


def both_ways(kernel, gm):
    """Return what a kernel makes of tensors instruction by instruction, and at once."""
    made = []
    for at_once in (False, True):
        memory = {name: values.copy() for name, values in gm.items()}
        run_kernel(kernel, memory, at_once=at_once)
        made.append(memory)
    return made


@pytest.mark.parametrize("overflow", ["ieee", "saturate"])
@pytest.mark.parametrize("size", [65, 3000])  # below and above what compiled conversions begin with
@pytest.mark.parametrize(
    "dtype", ["float16", "bfloat16", "hifloat8", "float8_e4m3fn", "float8_e5m2", "float32"]
)
def test_a_cast_rounds_a_whole_tensor_as_it_rounds_its_pieces(dtype, size, overflow):
    source, target = GmTensor.of("x", (size,), "float32"), GmTensor.of("y", (size,), dtype, "output")
    math = MathSettings(MODEL, overflow=overflow)
    kernel = Kernel("cast", (cast(PROFILE, source, target),), {"x": source, "y": target}, math)
    by_instructions, at_once = both_ways(kernel, {"x": edges(size)})
    assert same_bits(by_instructions["y"], at_once["y"])


@pytest.mark.parametrize("value", [0.0, 0.1, 1e6])  # 0.1 is on no grid, 1e6 overflows
def test_a_fill_sets_a_whole_tensor_as_it_sets_its_pieces(value):
    target = GmTensor.of("y", (3000,), "float16", "output")
    kernel = Kernel("fill", (zero_fill(PROFILE, target, value),), {"y": target}, MathSettings(MODEL))
    by_instructions, at_once = both_ways(kernel, {})
    assert same_bits(by_instructions["y"], at_once["y"])
    expected = round_to(np.full(3000, value, np.float32), "float16")
    assert np.array_equal(at_once["y"], expected)


def test_zeros_are_integers_where_a_kernel_multiplies_integers():
    target = GmTensor.of("y", (100,), "int32", "output")
    kernel = Kernel("fill", (zero_fill(PROFILE, target),), {"y": target}, MathSettings(IntegerSum()))
    for memory in both_ways(kernel, {}):
        assert memory["y"].dtype == np.int32
        assert not memory["y"].any()


@pytest.mark.parametrize(
    "problem",
    [
        ConvProblem((2, 20, 7, 6), (19, 20, 3, 3), padding=1),
        ConvProblem((2, 12, 5, 6), (20, 3, 2, 2), stride=2, groups=4),
        ConvProblem((1, 5, 4, 5, 6), (6, 5, 2, 3, 1)),
        ConvProblem((1, 6, 4, 5), (6, 2, 2, 3), transposed=True, groups=2),
        ConvProblem((1, 32, 5, 6), (32, 1, 3, 3), groups=32),
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_the_kernels_of_a_call_make_the_same_tensors_either_way(problem, dtype):
    call = call_of(problem, dtype, profile=load_profile("910B2"))
    several = 0
    for kernel, gm in kernels_with_inputs(call, tensors_of(problem, dtype, "special")):
        several += any(phase.at_once is not None for phase in kernel.phases)
        by_instructions, at_once = both_ways(kernel, gm)
        for name, tensor in kernel.tensors.items():
            if tensor.role == "output":
                assert same_bits(by_instructions[name], at_once[name]), (kernel.name, name)
    # For each gradient the layouts of two operands, and that of what it makes.
    assert several >= 6


def test_changes_of_layout_casts_and_zeros_can_be_done_at_once():
    problem = ConvProblem((2, 20, 7, 6), (19, 20, 3, 3), padding=1)
    graph = lower(call_of(problem, profile=load_profile("910B2")), (True, True, False))
    types = {kernel.op_type for kernel in graph.kernels}
    assert {"TransData", "MemSet"} < types
    for kernel in graph.kernels:
        moves = kernel.op_type in ("TransData", "Cast", "MemSet", "Fill")
        assert all((phase.at_once is not None) == moves for phase in kernel.phases), kernel.name


def sevens_at_once():
    """Return a kernel that sets zeros by its instructions, and at once, against the rule, sevens."""
    target = GmTensor.of("y", (100,), "float32", "output")
    phase = zero_fill(PROFILE, target)._replace(at_once=lambda memory: memory.gm["y"].fill(7))
    return Kernel("fill", (phase,), {"y": target}, MathSettings(MODEL))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"at_once": True}, 7),
        ({}, 0),
        ({"at_once": True, "order": 3}, 0),
        ({"at_once": True, "observe": lambda *_: None}, 0),
    ],
    ids=["asked for", "not asked for", "another order", "observed"],
)
def test_instructions_are_left_out_only_where_nobody_asks_for_them(options, expected):
    gm = {}
    run_kernel(sevens_at_once(), gm, **options)
    assert np.all(gm["y"] == expected)
