"""Do the schedules keep the rules of the machine, also at sizes that no profile tells?"""

from dataclasses import replace
from fractions import Fraction
from functools import cache
from math import ceil

import numpy as np
import pytest

from ascendsim import Tiling, estimate
from ascendsim.errors import ProgramError, ShapeError
from ascendsim.functional import run_kernel
from ascendsim.instructions.cube import spacing_needed
from ascendsim.ops.lowering.kernels import lower
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.profile import load_profile
from ascendsim.program.waits import HAZARDS
from ascendsim.timing.kernel import time_kernel
from ascendsim.validate.primitives import infer_window
from tests.helpers.conv_cases import (
    SPLIT,
    UNIFIED,
    Case,
    call_of,
    filter_schedule,
    grid_2d,
    image_schedule,
    is_atomic,
    kernels_with_inputs,
    other_ranks,
    tensors_of,
)
from tests.helpers.oracles_timing import check_gm, gm_places
from tests.helpers.toy_machines import toy_split

# --- Do the schedules keep the rules of the machine: waits, disjoint writes, honest costs, folding? ----

ALL = (True, True, True)
TWO_CORES = toy_split()
# Many tiles on few cores, with tails on every side, and with the reduction split.
MANY_TILES = [
    Case(ConvProblem((2, 20, 13, 12), (37, 20, 3, 3), 1, 1)),
    Case(ConvProblem((2, 20, 13, 12), (37, 20, 3, 3), 2, 1), "float32", profile=UNIFIED),
    Case(ConvProblem((6, 8, 9, 10), (8, 8, 3, 3), 1, 1), deterministic=True, splits=(0, 5)),
    Case(ConvProblem((6, 24, 9, 10), (24, 24, 3, 3), 1, 1), "float32", 1, splits=(2, 5)),
    Case(ConvProblem((6, 24, 9, 10), (24, 24, 3, 3), 1, 1), splits=(2, 4), profile=UNIFIED),
    # plans whose last blocks of rows and columns are shorter, on one core with the others
    Case(
        ConvProblem((2, 40, 7, 8), (40, 40, 3, 3), 1, 1),
        tilings=(
            ("grad_input", Tiling(24, 32, 16, 3, 3, bl1_buffers=1, used_cores=2)),
            ("grad_weight", Tiling(32, 32, 16, 1, 1, 1, 1, k_split=2, used_cores=2)),
        ),
    ),
    # in depth: single tiles for each depth, so that neighbouring tasks share their operands; each of two
    # cores begins at another phase of the stride
    Case(ConvProblem((1, 4, 6, 3, 3), (4, 4, 2, 1, 1), (2, 1, 1)), profile=TWO_CORES),
    Case(ConvProblem((2, 4, 9, 2, 3), (4, 4, 3, 1, 1), (1, 1, 1), (1, 0, 0)), "float32"),
    Case(ConvProblem((1, 4, 5, 3, 3), (4, 4, 2, 1, 1), (2, 1, 1), transposed=True)),
]
CASES = [*grid_2d(seed=1)[::6], *other_ranks(seed=1), *MANY_TILES]


@cache
def kernels_of(case):
    return lower(case.call(), ALL).kernels


# --- synchronisation


def only(call, tensors, name, schedule):
    """Return the kernel of one gradient with the programs of another schedule, and its inputs."""
    [(kernel, gm)] = [(k, gm) for k, gm in kernels_with_inputs(call, tensors) if k.name == name]
    return replace(kernel, phases=schedule.phases()), gm


def outcomes(kernel, inputs, seeds):
    """Return the different results of random orders; what makes a run fail counts as one."""
    [output] = [name for name, tensor in kernel.tensors.items() if tensor.role == "output"]
    found = set()
    for seed in seeds:
        gm = dict(inputs)
        try:
            run_kernel(kernel, gm, order=seed)
            found.add(gm[output].tobytes())
        except ProgramError as error:
            found.add(str(error))
        except ValueError as error:
            if "broadcast" not in str(error) and "reshape" not in str(error):  # a tile of another shape
                raise
            found.add(str(error))
    return found


SCHEDULES = {"grad_input": image_schedule, "grad_weight": filter_schedule}
BUSY = ConvProblem((1, 20, 9, 9), (20, 20, 3, 3), 1, 1)


def busy(name, profile, hazards):
    """Return outcomes of the many-tiled problem with some classes of waits."""
    call = call_of(BUSY, profile=profile, deterministic=True)
    schedule = replace(SCHEDULES[name](call), hazards=hazards)
    return outcomes(*only(call, tensors_of(BUSY, data="integers"), name, schedule), range(6))


@pytest.mark.parametrize("profile", [SPLIT, UNIFIED], ids=lambda p: p.variant)
@pytest.mark.parametrize("name", list(SCHEDULES))
def test_all_waits_make_every_order_give_one_result(name, profile):
    assert len(busy(name, profile, HAZARDS)) == 1


@pytest.mark.parametrize("missing", ["RAW", "WAR"])
@pytest.mark.parametrize("profile", [SPLIT, UNIFIED], ids=lambda p: p.variant)
@pytest.mark.parametrize("name", list(SCHEDULES))
def test_without_one_class_of_waits_some_order_goes_wrong(name, profile, missing):
    assert busy(name, profile, HAZARDS - {missing}) - busy(name, profile, HAZARDS)


# --- memory


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_instruction_touches_what_it_declares_and_fits_in_its_slot(case):
    call, tensors = case.call(), tensors_of(case.problem, case.dtype, "normal", 3)
    for kernel, gm in kernels_with_inputs(call, tensors):
        strict_gm = dict(gm)
        run_kernel(kernel, gm)
        run_kernel(kernel, strict_gm, order=5)
        if kernel.name == "grad_weight" and is_atomic(call):
            continue  # the two orders add the parts in their own orders
        for name, tensor in kernel.tensors.items():
            if tensor.role == "output":
                assert np.array_equal(gm[name], strict_gm[name], equal_nan=True), name


@pytest.mark.parametrize("case", CASES, ids=str)
def test_cores_write_disjoint_pieces_and_together_all_of_the_output(case):
    kernels = {kernel.name: kernel for kernel in kernels_of(case)}
    for kernel in kernels.values():
        counts = check_gm(kernel)
        # A MemSet writes the zeros to which its kernel adds, or which it leaves.
        memset = kernels.get(f"memset_{kernel.name}")
        for name, written in check_gm(memset).items() if memset else ():
            counts[name] = counts[name] + written.reshape(counts[name].shape)
        for name, tensor in kernel.tensors.items():
            if tensor.role != "input":
                assert counts[name].min() >= 1, f"{kernel.name} leaves elements of {name} unwritten"


def test_the_check_of_gm_notices_a_missing_zero_fill():
    # Parts of grad_weight are added to what the first phase clears; without it atomic adds meet poison.
    case = Case(ConvProblem((6, 8, 9, 10), (8, 8, 3, 3), 1, 1), splits=(0, 5))
    [kernel] = [kernel for kernel in kernels_of(case) if kernel.name == "grad_weight"]
    assert [phase.name for phase in kernel.phases] == ["zero fill", "compute"]
    kinds = [
        {place.kind for work in phase.work for i in work.build().instructions for place in gm_places(i)}
        for phase in kernel.phases
    ]
    assert kinds == [{"write"}, {"read", "atomic"}]


# --- folding


def commands(program):
    """Return all that timing depends on."""
    kinds = [(type(i), i.pipe, i.shape, i.drains) for i in program.instructions]
    return kinds, program.after_done, program.after_end


@pytest.mark.parametrize("case", CASES, ids=str)
def test_equal_signatures_mean_equal_programs(case):
    for kernel in kernels_of(case):
        for phase in kernel.phases:
            seen = {}
            for work in phase.work:
                found = commands(work.build())
                assert seen.setdefault((work.core.kind, work.signature), found) == found, kernel.name


@pytest.mark.parametrize("l2_start", ["warm", "cold"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_folded_and_unfolded_timing_agree_exactly(case, l2_start):
    for kernel in kernels_of(case):
        folded, unfolded = (
            time_kernel(kernel, case.profile, folded=folded, l2_start=l2_start) for folded in (True, False)
        )
        assert folded.cycles == unfolded.cycles
        assert folded.bytes == unfolded.bytes
        for one, other in zip(folded.phases, unfolded.phases, strict=True):
            spans = {core: work for work in one.cores for core in work.cores}
            for work in other.cores:
                [core] = work.cores
                for moments in ("issue", "start", "end", "done"):
                    assert getattr(spans[core], moments) == getattr(work, moments)


def test_some_cores_are_folded():
    phases = [phase for case in MANY_TILES for kernel in kernels_of(case) for phase in kernel.phases]
    computing = [phase for phase in phases if phase.name == "compute"]
    assert any(len(cores) > 1 for phase in computing for _, cores in phase.folded())


# --- bounds


@pytest.mark.parametrize("case", CASES, ids=str)
def test_no_kernel_is_faster_than_its_arithmetic_or_its_bytes(case):
    call = case.call()
    for kernel in kernels_of(case):
        timeline = time_kernel(kernel, case.profile)
        assert timeline.cycles >= byte_bound(timeline, case.profile)
        if kernel.macs:
            rate = case.profile.cube.rates[call.compute_dtype].macs_per_cycle
            assert timeline.cycles >= ceil(Fraction(multiplied(kernel)) / rate / case.profile.cores.cube)


def byte_bound(timeline, profile):
    """Return the cycles that the busiest link needs for its bytes at full rate."""
    needs = []
    for link, figures in profile.links.items():
        moved = sum(size for source, size in timeline.bytes.items() if source.startswith(link))
        needs.append(ceil(Fraction(moved) / figures.total_bytes_per_cycle))
    return max(needs)


# ResNet-50's first layer, a 3x3, a 1x1 with stride, a depthwise and a 3-D one
REAL = [
    ConvProblem((4, 3, 224, 224), (64, 3, 7, 7), 2, 3),
    ConvProblem((4, 128, 28, 28), (128, 128, 3, 3), 1, 1),
    ConvProblem((4, 256, 56, 56), (512, 256, 1, 1), 2),
    ConvProblem((2, 96, 28, 28), (96, 1, 3, 3), 1, 1, groups=96),
    ConvProblem((2, 32, 8, 28, 28), (32, 32, 3, 3, 3), 1, 1),
]


@pytest.mark.parametrize("product", ["910B", "910_95", "310P"])
@pytest.mark.parametrize("problem", REAL, ids=lambda p: "x".join(map(str, p.weight)))
def test_real_layers_are_no_faster_than_their_dense_arithmetic_or_their_bytes(problem, product):
    profile = load_profile(product)
    for kernel in lower(call_of(problem, profile=profile), ALL).kernels:
        timeline = time_kernel(kernel, profile)
        if kernel.macs:
            # Of the dense formula's products, those with padded depths are left out.
            reached = Fraction(multiplied(kernel))
            assert problem.rank == 3 or reached >= kernel.macs
            rate = profile.cube.rates["float16"].macs_per_cycle * profile.cores.cube
            assert timeline.cycles >= reached / rate
        assert timeline.cycles >= byte_bound(timeline, profile)


@pytest.mark.slow
@pytest.mark.parametrize("product", ["910B", "910_95", "310P"])
@pytest.mark.parametrize("problem", REAL, ids=lambda p: "x".join(map(str, p.weight)))
def test_equal_signatures_of_real_layers_mean_equal_programs(problem, product):
    profile = load_profile(product)
    for kernel in lower(call_of(problem, profile=profile), ALL).kernels:
        for phase in kernel.phases:
            seen = {}
            for work in phase.work:
                found = commands(work.build())
                assert seen.setdefault((work.core.kind, work.signature), found) == found


def multiplied(kernel):
    """Return the multiply-adds of all Mmads of a kernel, without filling up fractals."""
    return sum(
        i.m * i.k * i.n
        for phase in kernel.phases
        for work in phase.work
        for i in work.build().instructions
        if type(i).__name__ == "Mmad"
    )


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_cube_multiplies_at_least_what_is_asked_for(case):
    p = case.problem
    reached = [kernel for kernel in kernels_of(case) if kernel.macs]
    assert [kernel.name for kernel in reached] == ["grad_input", "grad_weight"]
    if p.kernel[0] == 1 and p.strides[0] == 1 and p.pads[0] == (0, 0):  # no depth is left out
        assert all(multiplied(kernel) >= kernel.macs for kernel in reached if kernel.name == "grad_weight")


def test_a_core_runs_its_mmads_no_faster_than_its_peak():
    for kernel in kernels_of(MANY_TILES[0]):
        for phase in time_kernel(kernel, SPLIT).phases:
            for work in phase.cores:
                for i, start, end in zip(work.program.instructions, work.start, work.end, strict=True):
                    if type(i).__name__ == "Mmad":
                        assert (end - start) * 16**3 >= i.m * i.k * i.n


@pytest.mark.parametrize(
    ("m", "n", "spaced"),
    # Fractals of 16 x 16, begun ones counted whole: 3 x 3, 3 x 4, 2 x 5, 2 x 4 and 1 x 10 beside the ten that
    # the Mmad page asks for.
    [(48, 48, True), (48, 49, False), (33, 64, False), (17, 65, False), (17, 64, True), (16, 160, False)],
)
def test_accumulators_of_fewer_than_ten_fractals_are_small(m, n, spaced):
    assert spacing_needed(load_profile("910B"), m, n) == spaced


def test_small_accumulators_wait_for_the_product_before_them() -> None:
    # 16 x 16 is one fractal, fewer than the spacing asks for: a barrier stands between a tile's products,
    # and none before the first. 160 x 64 makes 40 fractals and needs none.
    profile = load_profile("910B")
    assert spacing_needed(profile, 16, 16)
    assert not spacing_needed(profile, 160, 64)
    problem = ConvProblem(input=(1, 64, 4, 4), weight=(16, 64, 3, 3), padding=1)
    small = Tiling(base_m=16, base_n=16, base_k=16, used_cores=1)
    result = estimate(problem, product="910B", output_mask=(True, False, False), tiling=small)
    [made] = (kernel for kernel in result.kernels if kernel.plan)
    assert made.busy["M"] > 0
    for work in made.kernel.phases[-1].work:
        names = [type(i).__name__ for i in work.build().instructions if i.pipe == "M"]
        products = names.count("Mmad")
        tiles = sum(type(i).__name__ == "Fixpipe" for i in work.build().instructions)
        assert names.count("PipeBarrier") == products - tiles


# --- Do stride and padding that no profile tells come out of the sizes as layers have them? ------------


@pytest.mark.parametrize(
    ("sizes", "stride", "pads"),
    [
        ((28, 28, 1), 1, (0, 0)),
        ((56, 28, 1), 2, (0, 0)),
        ((4, 2, 1), 2, (0, 0)),  # so does stride 3, which divides nothing
        ((28, 28, 3), 1, (1, 1)),
        ((28, 26, 3), 1, (0, 0)),
        ((28, 24, 5), 1, (0, 0)),
        ((27, 27, 5), 1, (2, 2)),
        ((56, 28, 3), 2, (1, 1)),
        ((299, 149, 3), 2, (0, 0)),
        ((147, 73, 3), 2, (0, 0)),
        ((7, 4, 3), 2, (1, 1)),
        ((224, 112, 7), 2, (3, 3)),
        ((7, 4, 7), 2, (3, 3)),  # stride 1 with padding 1 and 2 fits, too, but nobody pads so
        ((224, 55, 11), 4, (2, 2)),
        ((227, 55, 11), 4, (0, 0)),
        ((224, 56, 4), 4, (0, 0)),
        ((224, 14, 16), 16, (0, 0)),  # patches; so do strides 15 and 17
        ((9, 3, 3), 3, (0, 0)),
        ((56, 28, 2), 2, (0, 0)),
        ((8, 4, 4), 2, (1, 1)),
        ((28, 28, 2), 1, (0, 1)),  # an odd padding, the smaller half in front
        ((7, 1, 7), 1, (0, 0)),
        ((2, 1, 3), 2, (1, 1)),
        ((1, 1, 1), 1, (0, 0)),
    ],
)
def test_layers_are_recognised_by_their_sizes(sizes, stride, pads):
    found = infer_window(*sizes)
    assert (found.stride, found.pads) == (stride, pads)


@pytest.mark.parametrize(
    ("sizes", "reason"),
    [
        ((28, 40, 3), "no stride and padding lead from 28 to 40"),  # 28 + 4 - 3 + 1 = 30 at most
        ((200, 2, 1), "no stride"),  # stride 100 at least, beyond 63
        ((4, 2, 3), "stride 1 with padding 0, stride 2 with padding 2"),
        ((7, 3, 3), "stride 2 with padding 0, stride 3 with padding 2"),
    ],
)
def test_sizes_that_fit_no_layer_or_several_are_refused(sizes, reason):
    with pytest.raises(ShapeError, match=reason):
        infer_window(*sizes)


@pytest.mark.parametrize("kernel", [1, 2, 3, 4, 5, 7, 11])
@pytest.mark.parametrize("stride", [1, 2, 3, 4])
def test_what_is_inferred_leads_to_the_sizes_with_less_padding_than_kernel(kernel, stride):
    for big in range(kernel, 120):
        small = (big - kernel) // stride + 1
        try:
            found = infer_window(big, small, kernel)
        except ShapeError:
            continue
        assert (big + found.padding - kernel) // found.stride + 1 == small
        assert max(found.pads) <= kernel - 1


def test_few_layers_are_refused_and_hardly_any_is_taken_for_another():
    """All layers with stride up to the kernel, none or half of it as padding, from 7 to 256."""
    right = refused = wrong = 0
    for kernel in (1, 2, 3, 4, 5, 7, 11):
        for stride in range(1, min(max(kernel, 2), 4) + 1):
            for pad in {0, (kernel - 1) // 2}:
                for big in range(max(7, kernel - 2 * pad), 257):
                    small = (big + 2 * pad - kernel) // stride + 1
                    try:
                        same = small == 1 or infer_window(big, small, kernel).stride == stride
                    except ShapeError:
                        refused += 1
                    else:
                        right, wrong = right + same, wrong + (not same)
    assert wrong < 0.001 * right
    assert refused < 0.04 * right
