"""Is every threshold of the library of 910B's and 910_93's grad_weight where the operator has it?"""

import pytest

from tests.helpers.vendor_layers import ARCH22, layer, plan, square


def wgrad(layer, dtype="float16", **more):
    return plan(layer, "grad_weight", ARCH22, dtype, **more)


@pytest.mark.parametrize(
    ("images", "cores"),
    # Images of one row and one fractal of either side: 64 are three a core for 22 of 24. 50 are three for 17,
    # and 25 two for 13: less than 80 %, but no divisor keeps as many at work.
    [(48, 24), (64, 22), (50, 17), (25, 13)],
)
def test_images_for_which_no_divisor_keeps_cores_busy(images, cores):
    found = wgrad(layer((images, 16, 1, 1, 64), (16, 16, 1, 1, 2)))
    assert (found.strategy, found.used_cores) == ("library", cores)
    assert dict(found.grid)["batch"] == cores


@pytest.mark.parametrize(
    ("dilation", "groups", "parts"),
    # Kernel depths of one group are columns, unless there are gaps between them. One image and depth of one
    # row leaves nothing else to cut; 24 depths of both groups and 12 of each take as long, and of these two
    # the fewer parts of depths come first.
    [(1, 1, (1, 1, 24)), (2, 1, (24, 1, 1)), (1, 2, (12, 2, 1))],
)
def test_kernel_depths_of_one_group_are_columns(dilation, groups, parts):
    depth = 23 * dilation + 1
    given = layer(
        (1, 16 * groups, depth, 1, 16),
        (16 * groups, 16, 24, 1, 1),
        1,
        0,
        (dilation, 1, 1),
        groups=groups,
        dtype="float32",
    )
    grid = dict(wgrad(given, "float32").grid)
    assert (grid["kd"], grid["group"], grid["n"]) == parts


def test_two_tiles_of_sums_where_l0c_holds_them():
    found = [
        wgrad(square(channels, out, size, dtype="float32"), "float32")
        for channels in (16, 48, 64, 256)
        for out in (16, 64, 128, 512)
        for size in (7, 14)
    ]
    assert {one.strategy for one in found} == {"library"}
    assert {one.cl0_buffers for one in found} == {1, 2}
    for one in found:
        assert one.cl0_buffers == (2 if 2 * one.base_m * one.base_n * 4 <= ARCH22.l0c else 1)
