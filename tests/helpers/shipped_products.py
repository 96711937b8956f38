"""The products that are shipped, and files of one's own beside them; for tests of the profile."""

import pytest

from ascendsim.errors import ConfigError
from ascendsim.profile import list_products, load_profile

# What the plain name of a product means.
PLAIN = {"910B": "910B2", "910_93": "910_9382", "910_95": "950PR_9589", "310P": "310P3", "910": "910A"}
VARIANTS = [variant for product in list_products() for variant in product.variants]
EVERY = pytest.mark.parametrize("variant", VARIANTS)


def write(folder, text, name="mine.toml"):
    """Write a file of a product and return its path."""
    path = folder / name
    path.write_text(text)
    return path


def refusal(name, overrides=None):
    """The error of a product that is not loaded."""
    with pytest.raises(ConfigError) as caught:
        load_profile(name, overrides)
    return str(caught.value)
