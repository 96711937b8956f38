"""Does the error for a model that cannot be read name the one that was meant, and are its limits tight?"""

import pytest

from ascendsim.errors import ConfigError
from ascendsim.numerics.accumulation.models import AccumulationModel

ROUNDINGS = ("RNE", "RNA", "RZ")
SIZES = (4, 8, 16, 32, "cube_k")
# Texts with a letter too much or a part too few, and what they should have been.
MISTAKEN = [
    *(
        (f"block:{size}:{rounding}x", f"block:{size}:{rounding}")
        for size in (1, *SIZES)
        for rounding in ("RNE", "RZ")
    ),
    *(
        (f"block-add:{size}:{rounding}", f"block-add:{size}:{rounding}:{rounding}")
        for size in SIZES
        for rounding in ROUNDINGS
    ),
    *(
        (f"tree:{size}:{pairing}:{r}x", f"tree:{size}:{pairing}:{r}")
        for size in SIZES
        for pairing in ("adjacent", "halves")
        for r in ROUNDINGS
    ),
    *(
        (f"align:{size}:F{bits}:RZ{acc}x", f"align:{size}:F{bits}:RZ{acc}")
        for size in (8, 16, "cube_k")
        for bits in (23, 24, 25)
        for acc in ("", ":acc")
    ),
    *(
        (f"{kind}:{rounding}x", f"{kind}:{rounding}")
        for kind in ("seq", "seq-muladd")
        for rounding in ROUNDINGS
    ),
]


@pytest.mark.parametrize(("text", "meant"), MISTAKEN)
def test_the_nearest_model_is_named(text, meant):
    with pytest.raises(ConfigError) as error:
        AccumulationModel.parse(text)
    assert f"Did you mean {meant}?" in str(error.value)


def test_a_text_that_is_half_like_a_model_names_none():
    # seq:RZ has three letters of the six in common, and three of the five.
    with pytest.raises(ConfigError, match="Did you mean seq:RZ"):
        AccumulationModel.parse("seqxx")
    with pytest.raises(ConfigError) as error:
        AccumulationModel.parse("seqxxx")
    assert "Did you mean" not in str(error.value)


@pytest.mark.parametrize(
    ("largest", "beyond"),
    [
        ("block:65536:RNE", "block:65537:RNE"),
        ("block:1:RNE", "block:0:RNE"),
        ("align:4:F32:RZ", "align:4:F33:RZ"),
        ("align:4:F1:RZ", "align:4:F0:RZ"),
        ("seq:RNE+ftz-in:-126", "seq:RNE+ftz-in:-127"),
        ("seq:RNE+ftz-in:0", "seq:RNE+ftz-in:1"),
        ("tree:65536:adjacent:RNE", "tree:65535:adjacent:RNE"),
    ],
)
def test_a_limit_is_inside_and_the_next_number_is_not(largest, beyond):
    assert AccumulationModel.parse(largest)
    with pytest.raises(ConfigError):
        AccumulationModel.parse(beyond)
