"""Products as sourced figures: find, read, check and hold them. The only reader of the product files."""

from ascendsim.profile.changes import Change, contradiction, parse_changes, read_changes
from ascendsim.profile.costs import Cost
from ascendsim.profile.files import (
    Product,
    configs_directory,
    is_file_name,
    list_products,
    load_profile,
    profile_from_tree,
)
from ascendsim.profile.generation import Generation
from ascendsim.profile.records import Figure, Profile

__all__ = [
    "Change",
    "Cost",
    "Figure",
    "Generation",
    "Product",
    "Profile",
    "configs_directory",
    "contradiction",
    "is_file_name",
    "list_products",
    "load_profile",
    "parse_changes",
    "profile_from_tree",
    "read_changes",
]
