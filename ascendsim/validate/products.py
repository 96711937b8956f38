"""Which product a case was measured on, told from what its source calls the chip."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from ascendsim.profile import Profile, list_products, load_profile

# What sources write instead of a variant's name, first match wins. The frequency of the A3 runs is told by
# their own counters: at 1800 MHz the cube would have been busy for less than its products take.
_SPELLINGS = (
    (r"first-generation 910", "910B_old_1001"),
    (r"A3 \(910_93, 24 cores", "910_9391"),
    (r"950PR|950 \(dav-3510|A5/950|^950\b", "950PR_9589"),
    (r"910_95 / Ascend 950 table", "950PR_9589"),
    (r"A2/A3 \(24 AIC", "910B1"),
    (r"910B4-class", "910B4"),
    (r"910B3-class", "910B3"),
)


@lru_cache(maxsize=64)
def variant_of(chip_variant: str) -> str | None:
    """Return the variant that a case ran on, None if the text names none of ours."""
    for pattern, variant in _SPELLINGS:
        if re.search(pattern, chip_variant):
            return variant
    known = [variant for product in list_products() for variant in product.variants]
    # The longest first: 910B4-1 is not a 910B4.
    for variant in sorted(known, key=len, reverse=True):
        bare = re.sub(r"^950(PR|DT)", "950(PR|DT)?", variant)
        if re.search(rf"(?<![0-9A-Za-z]){bare}(?![0-9A-Za-z])", chip_variant.replace("Ascend", "")):
            return variant
    return None


Overrides = tuple[tuple[str, Any], ...]


@lru_cache(maxsize=64)
def profile_of(variant: str, overrides: Overrides = ()) -> Profile:
    """Load a variant once, with figures of it replaced."""
    return load_profile(variant, overrides=dict(overrides))
