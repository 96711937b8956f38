"""Do images that are laid out for one product hold every pixel that the other one reads?"""

import numpy as np
import pytest

from ascendsim import ConvProblem
from ascendsim.ops.gradients.images import image_gradient
from ascendsim.ops.gradients.planes import Pixels, Planes
from ascendsim.ops.problems.sliding import Sliding
from tests.helpers.conv_cases import call_of, tensors_of

IMAGES = np.random.default_rng(0).standard_normal((2, 5, 3, 4, 6)).astype(np.float32)  # N, C, D, H, W


def sliding(out, pad, insert=(1, 1), stride=(1, 1)):
    return Sliding(out, (4, 6), (3, 3), stride, (1, 1), pad, insert, 16, 2)


def read(pixels, channels):
    """Return what lies at the places, as images (N, C, D, H, W)."""
    begins = [[pixels.image(image, depth) for depth in range(3)] for image in range(2)]
    places = np.array(begins)[:, :, None, None] + pixels.pixels[:, None] + np.arange(channels)
    return pixels.values.singles[places].reshape(2, 3, 4, 6, channels).transpose(0, 4, 1, 2, 3)


def test_pixels_alone_are_all_there():
    assert np.array_equal(read(Pixels.of(IMAGES), 5), IMAGES)


@pytest.mark.parametrize(
    "kernel",
    [
        sliding((4, 6), (1, 1)),  # as far out as padding one goes
        sliding((2, 4), (0, 0)),  # without padding
        sliding((9, 13), (2, 2), insert=(2, 2)),  # zeros between the pixels
        sliding((6, 6), (2, 1)),  # other padding on each axis
    ],
)
def test_and_so_they_are_where_a_kernel_reads_all_of_them(kernel):
    # Eight channels of which the images have five: the others are zeros beside them.
    found = Planes.of(IMAGES, kernel, 8).inner()
    assert np.array_equal(read(found, 5), IMAGES)
    assert not read(found, 8)[:, 5:].any()


@pytest.mark.parametrize(
    "kernel",
    [
        sliding((2, 3), (0, 0)),  # the last column is out of reach: three outputs read five of six
        sliding((1, 4), (0, 0)),  # and the last row
        sliding((2, 4), (-1, 0)),  # a negative pad leaves the first row out
        sliding((4, 4), (1, -2)),
    ],
)
def test_where_a_kernel_skips_some_there_is_no_answer(kernel):
    assert Planes.of(IMAGES, kernel, 8).inner() is None


def laid_out(problem):
    call = call_of(problem, "float16")
    schedule = call.schedule("grad_input")
    grad, weight = (tensors_of(problem, "float16")[name] for name in ("grad_output", "weight"))
    return image_gradient(problem, schedule.gemm, schedule.order(), call.accumulation, grad, weight)[1]


def test_groups_that_are_mostly_padding_are_not_kept():
    # 16 channels of a group fill their places; one channel leaves 15 of 16 empty.
    full = ConvProblem(input=(1, 32, 8, 8), weight=(32, 16, 3, 3), padding=1, groups=2)
    depthwise = ConvProblem(input=(1, 32, 8, 8), weight=(32, 1, 3, 3), padding=1, groups=32)
    assert set(laid_out(full)) == {0, 1}
    assert laid_out(depthwise) == {}
