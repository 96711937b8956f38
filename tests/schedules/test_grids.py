"""Does a grid of cores make every gradient once, with the bits that its order asks for, and at equal cost?"""

from dataclasses import replace

import pytest

from ascendsim.errors import ConfigError
from ascendsim.ops.lowering.known import lower
from ascendsim.ops.plan import Plan, Tiling, chunks
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.reference.call import reference_gradients
from tests.helpers.both_engines import time_kernel
from tests.helpers.conv_cases import SPLIT, UNIFIED, assert_same_bits, call_of, run, tensors_of

PLAIN = ConvProblem((5, 40, 9, 10), (24, 40, 3, 3), 1, 1)
GROUPED = ConvProblem((3, 40, 7, 6), (64, 20, 2, 2), 2, groups=2)
DEEP = ConvProblem((2, 18, 4, 5, 5), (18, 18, 2, 1, 2))
DGRAD, WGRAD = Tiling(16, 16, 16, used_cores=3), Tiling(16, 32, 16, used_cores=3)
ONLY = {"grad_input": (True, False, False), "grad_weight": (False, True, False)}


def kernel_of(call, gradient):
    return next(kernel for kernel in lower(call, ONLY[gradient]).kernels if kernel.name == gradient)


def names_of(call):
    names = [kernel.name for kernel in lower(call, ONLY["grad_weight"]).kernels]
    return [name for name in names if not name.startswith("cast")]


def on_grid(problem, gradient, tiling, profile=SPLIT, **options):
    return call_of(problem, profile=profile, tilings={gradient: tiling}, **options)


@pytest.mark.parametrize(
    ("total", "parts", "lengths"),
    [(32, 30, [2] * 16), (32, 8, [4] * 8), (7, 3, [3, 3, 1]), (2, 5, [1, 1]), (5, 0, [5]), (0, 3, [])],
)
def test_parts_are_equal_but_for_the_last(total, parts, lengths):
    made = chunks(total, parts)
    assert [len(part) for part in made] == lengths
    assert [at for part in made for at in part] == list(range(total))


@pytest.mark.parametrize("problem", [PLAIN, GROUPED, DEEP], ids=["plain", "grouped", "deep"])
@pytest.mark.parametrize(
    ("gradient", "tiling"),
    [
        ("grad_input", replace(DGRAD, batch_dim=2, m_dim=3, n_dim=2)),
        ("grad_input", replace(DGRAD, batch_dim=3, n_dim=9, k_split=2)),
        ("grad_weight", replace(WGRAD, batch_dim=2, m_dim=2, n_dim=2)),
        ("grad_weight", replace(WGRAD, batch_dim=2, k_dim=2)),
        ("grad_weight", replace(WGRAD, k_dim=3)),
        ("grad_weight", replace(WGRAD, m_dim=2, n_dim=2)),
    ],
)
def test_a_grid_deals_every_base_block_once_and_gives_the_ordered_bits(problem, gradient, tiling):
    call = on_grid(problem, gradient, tiling)
    schedule = call.schedule(gradient)
    dealt = [task for tasks in schedule.dealt() for task in tasks]
    assert len(dealt) == len(set(dealt)) == len(schedule.tasks.tasks)
    tensors = tensors_of(problem)
    made, arrivals = run(call, tensors, mask=ONLY[gradient])
    want = reference_gradients(call, **tensors, arrivals=arrivals, mask=ONLY[gradient])[gradient]
    assert_same_bits(made[gradient], want)


@pytest.mark.parametrize("problem", [PLAIN, DEEP], ids=["plain", "deep"])
def test_parts_of_a_grid_that_are_kept_apart_are_added_in_order(problem):
    tiling = replace(WGRAD, batch_dim=2, k_dim=2, n_dim=2)
    call = on_grid(problem, "grad_weight", tiling, deterministic=True)
    assert call.schedule("grad_weight").target.shape[0] == 4  # 2 parts of the images, each of 2 of the rows
    tensors = tensors_of(problem)
    made, arrivals = run(call, tensors, mask=ONLY["grad_weight"])
    want = reference_gradients(call, **tensors, mask=ONLY["grad_weight"])["grad_weight"]
    assert arrivals is None
    assert_same_bits(made["grad_weight"], want)


@pytest.mark.parametrize("profile", [SPLIT, UNIFIED], ids=["split", "unified"])
@pytest.mark.parametrize(
    ("gradient", "tiling"),
    [
        ("grad_input", replace(DGRAD, batch_dim=5, n_dim=3, used_cores=2)),
        ("grad_weight", replace(WGRAD, batch_dim=5, n_dim=3, used_cores=2)),
    ],
)
def test_more_cells_than_cores_go_round_in_the_same_cycles_on_both_engines(profile, gradient, tiling):
    call = on_grid(PLAIN, gradient, tiling, profile)
    kernel, whole = kernel_of(call, gradient), call.schedule(gradient).dealt()
    assert len(whole) == 2
    timeline = time_kernel(kernel, call.profile)
    assert timeline.cycles == time_kernel(kernel, call.profile, folded=False).cycles


def test_whole_images_leave_cores_idle():
    # 5 images in 4 parts are 2, 2 and 1: three cells of 3 column blocks each, however many cores there are.
    call = on_grid(PLAIN, "grad_input", replace(DGRAD, batch_dim=4, used_cores=5))
    assert [len({task.image for task in tasks}) for tasks in call.schedule("grad_input").dealt()] == [2, 2, 1]


def test_parts_of_the_rows_end_where_rows_do():
    # 9 rows of 10 pixels in 2 parts: 5 rows and 4; runs of 32 pixels end with either.
    call = on_grid(PLAIN, "grad_weight", Tiling(16, 32, 16, 2, 2, k_dim=2))
    cut = call.schedule("grad_weight").tasks
    assert cut.ranges_of_image == [(0, 32), (32, 18), (50, 32), (82, 8)]
    assert cut.grid_parts == [(range(5), range(2)), (range(5), range(2, 4))]


def test_parts_that_are_added_atomically_find_zeros_of_another_kernel():
    tiling = replace(WGRAD, batch_dim=2)
    assert names_of(on_grid(PLAIN, "grad_weight", tiling)) == ["memset_grad_weight", "grad_weight"]
    # Kept apart nothing is added to what is there; and one part is no sum.
    apart = on_grid(PLAIN, "grad_weight", tiling, deterministic=True)
    alone = on_grid(PLAIN, "grad_weight", replace(WGRAD, n_dim=2))
    assert names_of(apart) == names_of(alone) == ["grad_weight"]


def test_a_loop_nest_that_goes_another_way_takes_no_grid():
    plan = Plan("dgrad_columns_outer", replace(DGRAD, batch_dim=2))
    with pytest.raises(ConfigError, match="batch_dim is 2, but schedule dgrad_columns_outer does not"):
        lower(on_grid(PLAIN, "grad_input", plan), ONLY["grad_input"])
