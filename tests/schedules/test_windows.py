"""Do stride and padding that no profile tells come out of the sizes as layers have them?"""

import pytest

from ascendsim.errors import ShapeError
from ascendsim.validate.kinds.primitives import infer_window


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
