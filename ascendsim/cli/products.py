"""The products that words name, each once however it is called."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def each_once(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of different products, in their order, and say which are the same chip.

    A product's plain name is that of one of its variants, and a file may hold what another does: to answer
    both would print one answer twice, and count one chip as two.

    Raises   ConfigError for a name of no product
    """
    from ascendsim.profile import load_profile

    found: dict[tuple[str, bytes], str] = {}
    for name in dict.fromkeys(names):
        profile = load_profile(name)
        first = found.setdefault((profile.variant, profile.content), name)
        if first != name:
            print(f"--product {name}: is {profile.variant}, as {first} is; answered once", file=sys.stderr)
    return tuple(found.values())
