"""`ascendsim profiles`: the products, and every figure of one with its source."""

from __future__ import annotations

import json
from typing import Any


def profiles(arguments: Any) -> int:
    """List products and variants, or the figures of one."""
    from ascendsim.profile import list_products, load_profile
    from ascendsim.report.document import profile_entry, variant_entry

    if arguments.name is not None:
        profile = load_profile(arguments.name)
        if arguments.json:
            print(json.dumps(profile_entry(profile), indent=1))
        else:
            from ascendsim.report.terminal import print_profile

            print_profile(profile)
        return 0
    rows = [
        variant_entry(product, load_profile(variant))
        for product in list_products()
        for variant in product.variants or (product.name,)
    ]
    if arguments.json:
        print(json.dumps(rows, indent=1))
    else:
        from ascendsim.report.terminal import print_products

        print_products(rows)
    return 0
