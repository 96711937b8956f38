"""Are matrix products planned as their operator plans them, and what of these plans can be run?"""

import json
from dataclasses import asdict

import numpy as np
import pytest

from ascendsim import MatmulProblem, estimate_matmul, matmul
from ascendsim.ops.problems.matmul import MatmulGemm
from ascendsim.ops.tiling.vendor import matmul_950
from ascendsim.ops.tiling.vendor.matmul import operator_tiling
from ascendsim.ops.tiling.vendor.matmul_910b import plan_910b
from ascendsim.ops.tiling.vendor.matmul_templates import Matmul910Sizes
from ascendsim.profile import load_profile
from ascendsim.validate.kernels import active_cycles
from tests.operators.test_matmul import expected, operands, turned

MIB = 2**20
B4 = load_profile("910B4")  # 20 cores


def planned(m, k, n, turns="nn", size=2, cores=24, l2=192, **more):
    """Plan a product on a 910B; `turns` says of a and of b whether it lies the other way round."""
    flags = {"hf32": False, "bias": False, "nz": False} | more
    turned = [turn == "t" for turn in turns]
    return plan_910b(Matmul910Sizes(m, k, n, *turned, size, size, cores=cores, l2=l2 * MIB, **flags))


def on_950(m, k, n, turns="nn", size=2, **more):
    flags = {"hf32": False, "bias": False} | more
    turned = [turn == "t" for turn in turns]
    return matmul_950.plan_950(
        matmul_950.Matmul950Sizes(m, k, n, *turned, size, size, cores=32, ghz=1.65, l2=128 * MIB, **flags)
    )


# --- held against the rules' own numbers


def vectors(data_dir):
    found = json.loads((data_dir / "matmul_vectors.json").read_text())
    assert len(found) == 150
    return found


def told(record):
    """Return what a record says of its product, as arguments of `planned`."""
    turns = "".join("nt"[record[f"transpose_{each}"]] for each in "ab")
    size = 4 if record["dtype"] == "float32" else 2
    return (record["m"], record["k"], record["n"], turns, size), {
        "hf32": record["hf32"],
        "bias": record["bias"],
    }


def test_products_of_the_910b_are_planned_as_the_rules_say_in_every_field(data_dir):
    # All fields but the pieces in which vector cores convert operands, which nothing here reads.
    wrong = []
    for number, record in enumerate(vectors(data_dir)):
        if record["chip"] == "950":
            continue
        sides, flags = told(record)
        made = asdict(planned(*sides, cores=record["cores"], l2=record["l2_bytes"] // MIB, **flags))
        plan = dict(record["plan"])
        template = plan.pop("template")
        wanted = {key: value for key, value in plan.items() if not key.startswith("convert_block")} | template
        if any(
            (list(made[key]) if isinstance(made[key], tuple) else made[key]) != value
            for key, value in wanted.items()
        ):
            wrong.append(number)
    # How vector cores write a narrow c of a reduction that all cores share is not told.
    assert wrong == [65]


def test_products_of_the_950_are_planned_as_the_rules_say_but_for_plain_float32(data_dir):
    wrong = []
    for number, record in enumerate(vectors(data_dir)):
        if record["chip"] != "950":
            continue
        sides, flags = told(record)
        made, plan = on_950(*sides, **flags), record["plan"]
        wanted = [tuple(plan["base"]), tuple(plan["tail"])]
        wanted += [plan[key] for key in ("used_cores", "single_core_k", "k_parts", "l0c_copies")]
        got = [made.base, made.tail, made.used_cores, made.single_core_k, made.k_parts, made.l0c_copies]
        names = {"stream-k": matmul_950.STREAM_K}
        if got != wanted or made.rule != names.get(plan["model"], matmul_950.WINDOWS):
            wrong.append((number, record["dtype"] == "float32" and not record["hf32"]))
    assert [number for number, plain in wrong if not plain] == [137]


# --- reckoned by hand


def test_a_large_product_takes_basic_blocks_and_fills_l1():
    # 2 MiB blocks of 128 x 256 x 64: A of 524288 / 2 / 128 / 64 / 2 = 16 blocks, B 8; steps are half of it.
    plan = planned(4096, 7680, 8192, "nn", cores=20)
    assert (plan.base, plan.depth, plan.step_ka, plan.step_kb) == ((128, 256, 64), (16, 8), 8, 4)
    assert plan.used_cores == 20


def test_blocks_are_lowered_until_all_rounds_are_even():
    # 2048 x 512, b as (n, k): n is less than 256 * 12 and m greater than n, so 256 x 128: 8 x 4 = 32 blocks,
    # which makes 48 of two rounds: 48 / 4 = 12 rows of ceil(2048 / 12) = 171, up to 176.
    plan = planned(2048, 1024, 512, "nt")
    assert (plan.base, plan.rule) == ((176, 128, 64), "even rounds")
    # Of 20 cores the block stays.
    assert planned(2048, 1024, 512, "nt", cores=20).base == (256, 128, 64)


@pytest.mark.parametrize(("k", "step"), [(3072, 4), (4096, 8)])
def test_a_reduction_that_is_no_power_of_two_takes_shorter_steps(k, step):
    # All sides multiples of 256, m n > 32768 * 24.
    plan = planned(4096, k, 4096)
    assert (plan.step_ka, plan.depth[0]) == (step, 2 * step)


def test_operands_and_result_above_100_mib_are_walked_in_tiles_of_l2():
    # 8192 cubed in 2 bytes: three times 128 MiB. Whatever is chosen, one tile's three pieces fit.
    plan = planned(8192, 8192, 8192)
    rows, columns = (blocks * base for blocks, base in zip(plan.l2_tile_blocks, plan.base, strict=False))
    assert 2 * (rows * 8192 + 8192 * columns + rows * columns) <= 100 * MIB
    assert plan.l2_tiles == (-(-8192 // rows), -(-8192 // columns))
    # Three pieces of 32 MiB fit in whole.
    assert planned(4096, 4096, 4096).l2_tiles == (1, 1)


def test_rows_that_are_no_whole_pieces_of_256_bytes_are_converted_before():
    # k = 1000 in 2 bytes are 2000 bytes a row; 32 ... 256 and 384 bytes are read as they lie.
    assert (planned(512, 1000, 4096).convert_a, planned(512, 1000, 4096).convert_b) == (True, False)
    assert not planned(512, 192, 4096).convert_a
    # float32 that is not rounded is converted only where a row is longer than a copy can say.
    assert not planned(512, 1000, 4096, size=4).convert_a
    assert planned(512, 70_001, 4096, size=4).convert_a


def test_long_reductions_are_cut():
    # k of 27392 and more: every core walks slices of k over its part of c.
    assert planned(4096, 27_392, 8192, "nt").split == "sc"
    # One block of 128 x 128, k >= 384 * 24: all cores share the slices.
    assert planned(128, 16_384, 128, "tn").split == "mk"


@pytest.mark.parametrize(
    ("sides", "turns", "cores", "size", "converted"),
    [
        # b as (k, n) in rows of whole 32 KiB: k of 6656 and more, m of 4096 and more, above on 20 cores.
        ((4096, 6656, 16_384), "nn", 24, 2, True),
        ((4096, 6655, 16_384), "nn", 24, 2, False),
        ((4095, 6656, 16_384), "nn", 24, 2, False),
        ((4096, 6656, 16_512), "nn", 24, 2, False),
        ((4096, 6656, 32_768), "nn", 24, 2, True),
        ((4096, 6656, 16_384), "nn", 20, 2, False),
        ((4097, 6656, 16_384), "nn", 20, 2, True),
        ((4096, 6656, 16_384), "nn", 24, 4, False),
        ((4096, 6656, 16_384), "tn", 24, 2, False),
        # b as (n, k): rows of 32 KiB alone, m of 4096 to 4480 and n of 7168 and more.
        ((4096, 16_384, 7168), "nt", 24, 2, True),
        ((4480, 16_384, 7168), "nt", 24, 2, True),
        ((4095, 16_384, 7168), "nt", 24, 2, False),
        ((4481, 16_384, 7168), "nt", 24, 2, False),
        ((4096, 16_384, 7167), "nt", 24, 2, False),
        ((4096, 16_512, 7168), "nt", 24, 2, False),
        ((4096, 16_384, 7168), "nt", 24, 4, False),
        ((4096, 16_384, 7168), "tt", 24, 2, False),
    ],
)
def test_rows_that_fall_on_few_banks_of_l2_are_converted_before(sides, turns, cores, size, converted):
    assert planned(*sides, turns, size, cores).convert_b == converted


@pytest.mark.parametrize(
    ("m", "k", "hf32", "converted"),
    [
        # More than 8192 rows of two elements and more: to 192 bytes, even numbers up to 384, fours up to 512.
        (8193, 47, False, True),
        (8192, 47, False, False),
        (8193, 1, False, False),
        (8193, 2, False, True),
        (8193, 49, False, False),
        (8193, 50, False, True),
        (8193, 94, False, True),
        (8193, 98, False, False),
        (8193, 100, False, True),
        (8193, 124, False, True),
        (8193, 132, False, False),
        # 32 and 384 bytes, and 256, are read as they lie.
        (8193, 8, False, False),
        (8193, 96, False, False),
        (8193, 64, False, False),
        # Where the cube rounds: any rows of 512 bytes and more.
        (512, 129, True, True),
        (512, 129, False, False),
        (512, 127, True, False),
    ],
)
def test_rows_of_float32_are_converted_where_they_are_short_and_many_or_too_long(m, k, hf32, converted):
    assert planned(m, k, 512, size=4, hf32=hf32).convert_a == converted
    # The most that a copy can say of a row.
    assert [planned(512, 512, n, size=4).convert_b for n in (65_535, 65_536)] == [False, True]


@pytest.mark.parametrize(
    ("sides", "turns", "size", "through"),
    [
        # 512 rows for each of 24 cores, and 32 bytes of k or n.
        ((12_288, 8, 7), "nn", 4, True),
        ((12_287, 8, 7), "nn", 4, False),
        ((12_288, 7, 7), "nn", 4, False),
        ((12_288, 1, 9), "nn", 4, True),
        ((12_288, 16, 7), "nn", 2, True),
        ((12_288, 15, 7), "nn", 2, False),
        # Up to 256 of k and less of n; 256 bytes of c are no multiple of a row, nor a row of them.
        ((12_288, 256, 7), "nn", 4, True),
        ((12_288, 257, 7), "nn", 4, False),
        ((12_288, 64, 255), "nn", 4, True),
        ((12_288, 64, 257), "nn", 4, False),
        ((12_288, 64, 32), "nn", 4, False),
        ((12_288, 64, 128), "nn", 4, False),
        # Rows of 16-bit operands are shorter than 256 bytes or whole pieces of it, and a lies as it is.
        ((12_288, 127, 7), "nn", 2, True),
        ((12_288, 128, 7), "nn", 2, True),
        ((12_288, 129, 7), "nn", 2, False),
        ((12_288, 127, 7), "tn", 2, False),
        ((12_288, 127, 7), "tn", 4, True),
    ],
)
def test_a_high_and_narrow_c_leaves_through_ub(sides, turns, size, through):
    assert (planned(*sides, turns, size).rule == "narrow c through UB") == through


@pytest.mark.parametrize(
    ("sides", "turns", "size", "block", "steps", "depth", "laid"),
    [
        # A 256th of UB is 191 floats, so 128 rows; half of L0 is 8192: 64 of k beside 128 of a side and
        # 32 beside 192 and more. Steps are those of all of k, where L1 has room for as many of a, twice.
        ((12_288, 256, 7), "nn", 4, (128, 16, 64), (4, 4), (8, 4), True),
        ((12_289, 224, 191), "nn", 4, (128, 192, 32), (7, 7), (14, 7), True),
        # From eight steps on a has four.
        ((12_288, 256, 191), "nn", 4, (128, 192, 32), (4, 8), (8, 8), True),
        # More than 192 columns, k that is no whole 32 bytes, or a turned one leave in another way.
        ((12_288, 224, 193), "nn", 4, (128, 208, 32), (7, 7), (14, 7), False),
        ((12_288, 223, 191), "nn", 4, (128, 192, 32), (7, 7), (14, 7), False),
        ((12_288, 224, 191), "tn", 4, (128, 192, 32), (7, 7), (14, 7), False),
        # 383 halves: 256 rows, but 128 where L0C has 227 beside 144. Half of L0 is 16,384 of them.
        ((12_288, 127, 7), "nn", 2, (256, 16, 64), (2, 2), (4, 2), False),
        ((12_288, 256, 143), "nn", 2, (128, 144, 112), (3, 3), (6, 3), False),
    ],
)
def test_blocks_of_a_narrow_c(sides, turns, size, block, steps, depth, laid):
    plan = planned(*sides, turns, size)
    assert (plan.base, (plan.step_ka, plan.step_kb), plan.depth) == (block, steps, depth)
    assert plan.write_out == ("vec-nz2nd" if laid else "nz2nd")
    assert (plan.single_core, plan.used_cores) == ((block[0], sides[2], sides[1]), 24)
    assert (plan.l2_tiles, plan.l2_tile_blocks) == ((1, 1), (-(-sides[0] // block[0]), 1))


def test_few_rows_have_a_plan_that_is_not_public():
    assert planned(128, 4096, 4096, "nt") is None
    assert planned(144, 4096, 4096, "nt") is not None


def test_a_product_of_few_blocks_and_long_k_is_cut_along_k_on_the_950():
    # 2 blocks of 256 x 256, k of 8192 * 2 bytes: all 32 cores, 16 parts of 512.
    plan = on_950(256, 8192, 512)
    assert (plan.rule, plan.used_cores, plan.k_parts, plan.single_core_k) == ("stream-K", 32, 16, 512)


@pytest.mark.parametrize(
    ("m", "k", "n", "leaves"),
    [
        # 136 columns of 2 bytes are 272, no whole pieces of 128 and more than 256; k and m up to their edges.
        (20_000, 256, 136, "1:1"),
        (20_000, 257, 136, "fly"),
        (256, 64, 16_392, "1:1"),
        (255, 64, 16_392, "fly"),
        # 258, 256 and 3 x 128 bytes.
        (20_000, 256, 129, "1:1"),
        (20_000, 256, 128, "fly"),
        (20_000, 256, 192, "fly"),
        # 32 blocks of 256 x 144, one for each core.
        (8192, 256, 136, "fly"),
    ],
)
def test_vector_cores_write_rows_that_are_no_whole_pieces_on_the_950(m, k, n, leaves):
    plan = on_950(m, k, n)
    assert (plan.rule, plan.write_out) == (matmul_950.WINDOWS, leaves)


# --- what runs


@pytest.mark.parametrize(
    ("problem", "product", "words"),
    [
        (MatmulProblem(64, 64, 64, batch=2), "910B2", "a batch of products"),
        (MatmulProblem(64, 64, 64, layout="NZ"), "910B2", "not for fractals"),
        (MatmulProblem(16, 4096, 4096, transpose_b=True), "910B2", "few rows"),
        (MatmulProblem(4096, 27_392, 8192, transpose_b=True), "910B2", "slices of k by one core: no nest"),
        (MatmulProblem(256, 8192, 512), "950PR_9599", "stream-K: no nest"),
        (MatmulProblem(64, 64, 64), "310P3", "only the matrix products of 910B"),
    ],
)
def test_a_plan_that_cannot_be_run_is_searched_and_the_reason_is_said(problem, product, words):
    tiling, reason = operator_tiling(MatmulGemm.of(problem, "float16"), load_profile(product))
    assert tiling is None
    assert words in reason
    made = estimate_matmul(problem, product=product)
    assert made.kernels[-1].plan.chosen_by == "search"
    assert any(words in note for note in made.notes)


@pytest.mark.parametrize(
    ("sides", "needs"),
    [
        # Blocks of 128 x 256 x 64 in 2 bytes: two copies in L0, one of the sums. Tiles of 8 and of 4 slices,
        # two of each, or of all 96 of k.
        ((4096, 7680, 8192), {"L1": 2 * (128 * 8 * 64 + 256 * 4 * 64) * 2}),
        ((4096, 96, 8192), {"L1": 2 * (128 * 96 + 256 * 96) * 2}),
        ((4096, 7680, 8192), {"L0A": 2 * 128 * 64 * 2}),
        ((4096, 7680, 8192), {"L0B": 2 * 256 * 64 * 2}),
        ((4096, 7680, 8192), {"L0C": 128 * 256 * 4}),
    ],
)
def test_a_plan_is_taken_where_buffers_hold_it_to_the_last_byte(sides, needs):
    gemm = MatmulGemm.of(MatmulProblem(*sides), "float16")
    [(buffer, need)] = needs.items()
    held, less = (
        operator_tiling(gemm, load_profile("910B4", {f"buffers.{buffer}.capacity_bytes": size}))
        for size in (need, need - 1)
    )
    assert (held.tiling.base_m, held.tiling.base_n, held.tiling.base_k) == (128, 256, 64)
    assert less == (None, "its blocks do not fit into the buffers of 910B4")


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("product", ["910B2", "910_9391"])
def test_a_call_takes_the_operators_plan_and_names_its_rule(product, dtype):
    made = estimate_matmul(MatmulProblem(512, 512, 1000), dtype, product=product)
    plan = made.kernels[-1].plan
    assert plan.chosen_by == "product"
    assert plan.rule in made.notes[0]
    # One accumulator, and the unit flag, so that M does not wait for it to leave.
    assert (plan.tiling.cl0_buffers, plan.tiling.unit_flag) == (1, True)


def test_a_plan_brings_operands_into_fractals_whose_rows_are_no_whole_pieces_of_256_bytes():
    profile = load_profile("910B2")

    def first(m, k, n):
        gemm = MatmulGemm.of(MatmulProblem(m, k, n), "float16")
        return operator_tiling(gemm, profile).tiling.fractals_first

    # 2,000 bytes of a; 2,048 of a and 8,192 of b; 2,000 and 2,064.
    assert (first(512, 1000, 4096), first(512, 1024, 4096), first(512, 1000, 1032)) == ("a", "", "ab")


@pytest.mark.parametrize("product", ["910B2", "950PR_9599"])
@pytest.mark.parametrize(
    ("m", "k", "n", "turn_a", "turn_b"),
    [
        (140, 96, 40, False, False),
        (40, 160, 70, True, True),
        (520, 32, 32, False, False),
        # On the 910B vector cores bring both into fractals before.
        (40, 300, 72, False, False),
        (72, 300, 40, True, True),
    ],
)
def test_an_operators_plan_makes_the_ordered_sum_in_any_order_of_execution(m, k, n, turn_a, turn_b, product):
    a, b = operands("float16", m, k, n)
    made = [
        matmul(
            *(turned(a, turn_a), turned(b, turn_b)),
            transpose_a=turn_a,
            transpose_b=turn_b,
            out_dtype="float32",
            product=product,
            order=order,
        )
        for order in ("program", "arrival", 3)
    ]
    assert made[0].kernels[-1].plan.chosen_by == "product"
    want = expected(a, b, ("float16", product, 0), made[0])
    for each in made:
        np.testing.assert_array_equal(each.output.view(np.uint32), want.view(np.uint32))


def test_basic_blocks_keep_the_pipes_as_busy_as_was_counted():
    # 4096 x 1024 x 3072 in bfloat16 on 910B4: M 97.1, MTE1 82.6 us, means over the cores.
    kernel = estimate_matmul(MatmulProblem(4096, 1024, 3072), "bfloat16", product=B4).kernels[-1]
    busy = active_cycles(kernel.timeline)
    assert busy["M"] / 1650 == pytest.approx(97.1, rel=0.02)
    assert busy["MTE1"] / 1650 == pytest.approx(82.6, rel=0.03)
