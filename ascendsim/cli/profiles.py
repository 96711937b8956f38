"""`ascendsim profiles`: the products, and every figure of one with its source."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ascendsim.report.record import Record, figure_record

if TYPE_CHECKING:
    from ascendsim.profile import Profile


def profiles(arguments: Any) -> int:
    """List products and variants, or the figures of one."""
    from ascendsim.profile import load_profile

    if arguments.name is None:
        rows = _products()
        if arguments.json:
            print(json.dumps(rows, indent=1))
        else:
            from ascendsim.report.terminal import print_products

            print_products(rows)
        return 0
    profile = load_profile(arguments.name)
    if arguments.json:
        print(json.dumps(_record(profile), indent=1))
    else:
        from ascendsim.report.terminal import print_profile

        print_profile(profile)
    return 0


def _products() -> list[Record]:
    from ascendsim.profile import list_products, load_profile

    rows = []
    for product in list_products():
        for variant in product.variants or (product.name,):
            profile = load_profile(variant)
            rows.append(
                {
                    "product": product.name,
                    "variant": variant,
                    "default": variant == product.default_variant,
                    "core_structure": profile.core_structure,
                    "cube_cores": profile.cores.cube,
                    "vector_cores": profile.cores.vector,
                    "cube_mhz": profile.clock.cube_mhz,
                    "figures": len(profile.figures),
                    "assumed": len(profile.assumed()),
                    "evidence": profile.evidence,
                }
            )
    return rows


def _record(profile: Profile) -> Record:
    return {
        "product": profile.product,
        "variant": profile.variant,
        "evidence": profile.evidence,
        "sources": dict(profile.sources),
        "figures": {path: figure_record(figure) for path, figure in profile.figures.items()},
    }
