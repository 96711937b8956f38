"""Do the cores of a change of layout count as equal if, and only if, their boxes cost the same?"""

from functools import partial

import pytest

from ascendsim.ops.matmul import change_of
from ascendsim.ops.plan import shares
from ascendsim.ops.schedules.vector.boxes import Cut, extents
from ascendsim.ops.schedules.vector.relayout import Box, PixelRelayout
from ascendsim.ops.schedules.vector.taps import DiagonalGradient, DiagonalWeight
from ascendsim.program.places import GmTensor

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
    cut = Cut(made, cores, fits)
    # Any run of tasks, beside those that cores get: a share may begin anywhere in a plane.
    runs = [*shares(cut.tasks, cores), *(range(at, min(cut.tasks, at + 9)) for at in range(cut.tasks))]
    by_boxes, by_signature = {}, {}
    for run in runs:
        boxes = tuple(extents(made, box) for box in one_by_one(cut, run))
        signature = cut.signature(run)
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
    cut = Cut(change_of("NCHW->NC1HWC0", (1, 37, 9, 9), "float16", 16), 48, 16)
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
    cut = Cut(change, 30, fits)
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
    cut = Cut(change_of(way, shape, "float32", 8), 48, 4096)
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
    cut = Cut(change, cores, fits)
    runs = [*shares(cut.tasks, cores), *(range(at, min(cut.tasks, at + 9)) for at in range(cut.tasks))]
    for run in runs:
        boxes = [cut.moved(cut.kinds[kind], place) for kind, place in cut.rows(run)]
        assert boxes == one_by_one(cut, run)
        # And it costs what the first one of its kind does.
        kinds = [extents(change, cut.kinds[kind]) for kind, _ in cut.rows(run)]
        assert kinds == [extents(change, box) for box in boxes]
        assert all(0 <= place < cut.places for _, place in cut.rows(run))


def test_planes_are_taken_together_up_to_a_group_with_fewer_channels():
    # 3 groups of 2 images each; the last group has half of its channels: planes 4 and 5
    cut = Cut(merged(), 1, 30)
    assert [(box.plane, planes) for box, planes in cut.boxes(range(cut.tasks))] == [(0, 4), (4, 2)]
