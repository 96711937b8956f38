"""Do the cores of a change of layout count as equal if, and only if, their boxes cost the same?"""

import pytest

from ascendsim.ops.plan import shares
from ascendsim.ops.schedules.vector.boxes import Cut, extents
from ascendsim.ops.transdata import change_of

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


@pytest.mark.parametrize("group_fits", [True, False], ids=["group in UB", "no group in UB"])
@pytest.mark.parametrize("cores", [1, 3, 7, 9, 48])
@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_cores_are_alike_if_their_boxes_are(change, cores, group_fits):
    way, shape, c0 = change
    made = change_of(way, shape, "float16", c0)
    cut = Cut(made, cores, group_fits=group_fits)
    # Any run of tasks, beside those that cores get: a share may begin anywhere in a plane.
    runs = [*shares(cut.tasks, cores), *(range(at, min(cut.tasks, at + 9)) for at in range(cut.tasks))]
    by_boxes, by_signature = {}, {}
    for run in runs:
        boxes = tuple(extents(made, box) for box in cut.boxes(run))
        signature = cut.signature(run)
        assert by_boxes.setdefault(boxes, signature) == signature
        assert by_signature.setdefault(signature, boxes) == boxes


def test_a_signature_has_a_number_for_each_box():
    # 3 groups of 16 channels, the last with 5, in 6 parts of 16 pixels, the last with 1: 18 boxes of 4 kinds
    cut = Cut(change_of("NCHW->NC1HWC0", (1, 37, 9, 9), "float16", 16), 48, group_fits=True)
    assert cut.tasks == 18
    one, last = 5 * [0] + [1], 5 * [2] + [3]
    numbers = cut.signature(range(18))
    kinds = {number: place for place, number in enumerate(dict.fromkeys(numbers))}
    assert [kinds[number] for number in numbers] == one + one + last


@pytest.mark.parametrize(
    ("way", "images", "group_fits", "tasks"),
    [
        # 16 images on 30 cores use 16 / 30 of a round, more than half: an image each, if a group is packed at
        # once.
        ("NCHW->NC1HWC0", 16, True, 16),
        # Else there are 3 groups to an image, of 2 fractals of pixels: 48 groups, each cut in 2 for the 240
        # tasks that 30 cores want.
        ("NCHW->NC1HWC0", 16, False, 96),
        ("NC1HWC0->NCHW", 16, True, 96),
        # 15 images leave half of the cores idle, 33 of two rounds nearly half: 33 / 60 is more than half.
        ("NCHW->NC1HWC0", 15, True, 90),
        ("NCHW->NC1HWC0", 33, True, 33),
        # 18 of 30 are 0.6, enough for every change.
        ("NC1HWC0->NCHW", 18, False, 18),
    ],
)
def test_cores_get_whole_images_beyond_half_of_their_rounds_where_a_group_is_packed_at_once(
    way, images, group_fits, tasks
):
    change = change_of(way, (images, 37, 5, 5), "float16", 16)
    assert Cut(change, 30, group_fits=group_fits).tasks == tasks
