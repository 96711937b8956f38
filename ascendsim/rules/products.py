"""Find the product of the rules that a name or a profile means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ascendsim.arguments import shown
from ascendsim.errors import ConfigError, did_you_mean
from ascendsim.rules.loader import product_names

if TYPE_CHECKING:
    from ascendsim.profile import Profile


def rule_product(product: str | Profile) -> str:
    """Return the family that a product, variant or soc belongs to for the rules.

    The architecture decides for a profile of one's own whose name the rules do not know.
    Raises   ConfigError with near misses
    """
    if isinstance(product, str):
        found = _by_name(product)
    else:
        # A file of one's own usually keeps the product of its base; with a new name its architecture tells.
        found = _by_name(product.product) or _by_arch(product.npu_arch)
    if found:
        return found
    name = product if isinstance(product, str) else product.product
    known = [entry.name for entry in product_names()]
    hint = did_you_mean(str(name), known)
    raise ConfigError(f"rules: unknown product {shown(name)}; {hint}")


def known_product(product: str | Profile) -> str | Profile:
    """Return a name that only a product file knows as the profile of that file; anything else as it is."""
    if not isinstance(product, str) or _by_name(product):
        return product
    # Here, since a name that the rules know needs no product file.
    from ascendsim.profile import load_profile

    try:
        return load_profile(product)
    except ConfigError:
        return product  # `rule_product` says what the rules know


def _by_name(text: str) -> str:
    # Tools write Ascend910B3, ascend910b3 or 910B3 for the same chip.
    plain = text.strip().lower().removeprefix("ascend")
    for entry in product_names():
        # Exact names first: 910B_old_1001 begins like a 910B, and is a 910.
        if plain in (entry.name.lower(), *entry.names):
            return entry.name
    for entry in product_names():
        if entry.prefixes and plain.startswith(entry.prefixes):
            return entry.name
    return ""


def _by_arch(arch: str) -> str:
    return next((entry.name for entry in product_names() if entry.arch and entry.arch == arch), "")
