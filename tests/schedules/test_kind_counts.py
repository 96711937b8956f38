"""Does every kind of a product's plan run as many products and base blocks as its sizes say?

Of each kind one small layer, where it is chosen (`KINDS`). Three things are counted over all cores: Mmads,
Fixpipes, and the multiplications of all Mmads together, which no plan may make more or less of.
"""

from math import prod

import pytest

from tests.plans.test_product_tiling import KINDS, counts, kernel_of, planned

# (Mmads, Fixpipes) of a kind.
COUNTS = {
    # Two images are a block each, whose 160 channels are slices of 112 and 48.
    "arch22 weights resident": (4, 2),
    # Three depths are a block each, and meet 1, 2 and 1 kernel depths: 4 x 9 x 32 in slices of 144.
    "arch22 both streamed": (8, 3),
    # One block; 144 with its zeros in slices of 48.
    "arch22 zeros inserted": (3, 1),
    # Two images in two parts; 9 x 16 in slices of 24.
    "arch22 grid of cores": (24, 4),
    # 100 pixels are blocks of 60 and 40; 9 x 48 in slices of 240, five rows of taps.
    "arch35 small shape": (4, 2),
    "arch35 weights resident": (12, 12),  # twelve images; 9 x 16 are one slice
    # Two images, in segments of 2048 and 32 channels: in slices of 256 these are 8 and one.
    "arch35 segments": (18, 4),
    # Four phases with 1, 2, 2 and 4 taps of 272 channels: in slices of 64 these are 5, 9, 9 and 17.
    "arch35 split along both axes": (40, 4),
    # Two images of four phases; 4 taps x 32 channels are slices of 96 and 32.
    "arch35 split with whole operands": (16, 8),
    # Phases with one and two rows of two taps: 32 and 64, in slices of 32 on which both end.
    "arch35 split along H": (3, 2),
    "arch35 blocks that fill L0C": (12, 12),  # twelve images; one slice
    # Two images are a block each. Of three rows of taps one reads pixels: 3 taps x 32 channels are a slice.
    "arch35 a row of taps at a time": (2, 2),
    # Four rows are tiles of 256, 256 and 88 pixels; six taps of 32 channels, a slice each.
    "arch35 a tap at a time": (72, 12),
    # Two images of 144 pixels, one slice each, added atomically.
    "arch22 rows and pixels": (2, 2),
    "arch22 columns and pixels": (2, 2),
    # Two images of 9 pixels; 256 columns are two blocks.
    "arch22 rows and columns": (4, 4),
    # Two depths at two kernel depths; 81 pixels in slices of 48.
    "arch22 library in depth": (8, 4),
    # Two images of 144 pixels are slices of 48 each; 144 columns are one block.
    "arch22 library": (6, 2),
    # One task in four parts of six rows; 144 pixels in slices of 112.
    "arch22 deterministic": (8, 4),
    # 288 columns are two tasks in two parts of two images; 100 pixels are a slice.
    "arch35 stream-K": (8, 4),
    "arch35 strips of a line": (5, 1),  # four strips of 128 columns and one of 88
    # Three parts of a row each: four strips of 128 columns are slices of 112 and 16, one of 88 is one.
    "arch35 strips of several rows": (27, 3),
    # Two tasks of rows in two parts of an image each: six taps, each 27 pixels behind zeros.
    "arch35 taps too far apart": (48, 24),
    # Of five kernel depths one meets the image: a whole task, four images of 81 pixels.
    "arch35 last round of padding alone": (4, 1),
    # One whole task of four images, and one in two parts of two.
    "arch35 last round with padding among its tasks": (8, 3),
    # Five images in four parts of four rows: 64 pixels are a slice, 288 columns blocks of 256 and 32.
    "arch22 grid of 20 cores": (40, 40),
}


def whole(channels, unit):
    """Return channels in whole groups."""
    return -(-channels // unit) * unit


def multiplications(name):
    """Multiplications of all Mmads: whole groups of channels, every tap that the plan takes."""
    gradient, _, dtype, p, *_ = KINDS[name]
    c0 = 8 if dtype == "float32" else 16
    # Rows of grad_input of 4 bytes come out in pairs of groups.
    small, big = (whole(channels, max(c0, 16)) for channels in (p.small_channels, p.big_channels))
    pairs, taps = len(p.depths_met), prod(p.kernel[1:])
    if gradient == "grad_weight":
        # Tap by tap a block begins with a product of C0 zeros; of two parts of a whole each does.
        zeros = 2 * c0 if name == "arch35 taps too far apart" else 0
        return (p.batch * pairs * prod(p.small_size[1:]) + zeros) * small * big * taps
    split = planned(name)[1].kernel_split
    # Pixels x taps along H and W: a split one meets a tap where pixel + padding - tap is a whole stride.
    steps = [step if axis in split else 1 for axis, step in zip("hw", p.strides[1:], strict=True)]
    met = [
        sum((pixel + before - tap) % step == 0 for pixel in range(size) for tap in range(extent))
        for size, extent, step, (before, _) in zip(
            p.big_size[1:], p.kernel[1:], steps, p.pads[1:], strict=True
        )
    ]
    if planned(name)[1].taps == "kh":
        # A row of taps is left out if no pixel of an image, which is one tile here, reads any under it.
        reach, before, gap = range(p.small_size[1]), p.pads[1][0], p.dilations[1]
        read = [{row + before - tap * gap for row in range(p.big_size[1])} for tap in range(p.kernel[1])]
        met[0] = p.big_size[1] * sum(not rows.isdisjoint(reach) for rows in read)
    return p.batch * pairs * prod(met) * small * big


def test_every_kind_is_counted():
    assert COUNTS.keys() == KINDS.keys()


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_has_the_products_and_blocks_of_its_sizes(name):
    found, _ = counts(name)
    assert (found["Mmad"], found["Fixpipe"]) == COUNTS[name]


@pytest.mark.parametrize("name", KINDS)
def test_nothing_is_multiplied_twice_or_left_out(name):
    [compute] = [phase for phase in kernel_of(name).phases if phase.name == "compute"]
    made = [
        instruction.m * instruction.k * instruction.n
        for work in compute.work
        for instruction in work.build().instructions
        if type(instruction).__name__ == "Mmad"
    ]
    assert sum(made) == multiplications(name)


@pytest.mark.parametrize("name", KINDS)
def test_no_product_is_longer_than_base_k(name):
    told = planned(name)[1]
    [compute] = [phase for phase in kernel_of(name).phases if phase.name == "compute"]
    sizes = {
        (instruction.m, instruction.k, instruction.n)
        for work in compute.work
        for instruction in work.build().instructions
        if type(instruction).__name__ == "Mmad"
    }
    assert all(m <= told.base_m and k <= told.base_k and n <= told.base_n for m, k, n in sizes)
