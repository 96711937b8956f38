"""Is every threshold of 910B's and 910_93's plans where the operators have it: the value, and one further?"""

import pytest

from ascendsim.ops.tiling.vendor.arch22.wgrad_block import takes_basic_blocks
from tests.vendor_layers import layer, square

# --- grad_weight


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        # One tap, whatever the sides; 4, 9 and 16 taps with 128 of either side at least, in whole fractals.
        (square(16, 16, 16, 1), True),
        (square(128, 113, 16, 3), True),
        (square(128, 112, 16, 3), False),
        # Columns: 16 channels under 9 taps, and 32 under 4 taps where 16 are but 64.
        (square(15, 128, 16, 3), True),
        (square(17, 128, 16, 2), True),
        (square(16, 128, 16, 2), False),
        (square(128, 128, 16, 2), True),
        (square(128, 128, 16, 4), True),
        (square(128, 128, 16, 5), False),
        (layer((1, 128, 16, 16), (128, 128, 1, 9)), True),
        (layer((1, 128, 16, 16), (128, 128, 1, 8)), False),
        (square(128, 128, 16, 3, dtype="float32"), False),
        (layer((1, 128, 16, 16), (128, 64, 3, 3), groups=2), False),
        # Gaps in depth, where there is more than one kernel depth.
        (layer((1, 16, 4, 8, 8), (16, 16, 2, 1, 1), 1, 0, (2, 1, 1)), False),
        (layer((1, 16, 4, 8, 8), (16, 16, 1, 1, 1), 1, 0, (2, 1, 1)), True),
    ],
)
def test_layers_of_basic_blocks(given, taken):
    assert takes_basic_blocks(given) == taken
