"""Products as sourced figures: find, read, check and hold them. The only reader of the product files."""

from typing import TYPE_CHECKING, Any

from ascendsim.profile.files import (
    ShippedProduct,
    configs_directory,
    is_file_name,
    list_products,
    load_profile,
    profile_from_tree,
)
from ascendsim.profile.records import Figure, Generation, Profile

if TYPE_CHECKING:
    from ascendsim.profile.changes import Change, contradiction, parse_changes, read_changes
    from ascendsim.profile.records import CostFormula

__all__ = [
    "Change",
    "CostFormula",
    "Figure",
    "Generation",
    "Profile",
    "ShippedProduct",
    "configs_directory",
    "contradiction",
    "is_file_name",
    "list_products",
    "load_profile",
    "parse_changes",
    "profile_from_tree",
    "read_changes",
]

_CHANGES = ("Change", "contradiction", "parse_changes", "read_changes")


def __getattr__(name: str) -> Any:
    """Import what changes and prices products when it is asked for: every call comes by here."""
    if name in _CHANGES:
        from ascendsim.profile import changes

        return getattr(changes, name)
    if name == "CostFormula":
        from ascendsim.profile.records import CostFormula

        return CostFormula
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
