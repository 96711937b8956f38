"""Does a kernel of the vector cores make at once the bits that its instructions make, and only when asked?"""

import numpy as np
import pytest

from ascendsim import ConvProblem
from ascendsim.functional import run_kernel
from ascendsim.numerics.accumulation.models import AccumulationModel, IntegerSum, MathSettings
from ascendsim.numerics.formats.casts import round_to
from ascendsim.ops.lowering.known import lower
from ascendsim.ops.schedules.vector.elementwise import cast, zero_fill
from ascendsim.profile import load_profile
from ascendsim.program.kernel import Kernel
from ascendsim.program.places import GmTensor
from tests.helpers.conv_cases import call_of, kernels_with_inputs, tensors_of
from tests.helpers.toy_profiles import toy_split

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
