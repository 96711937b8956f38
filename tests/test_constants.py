"""Is every figure that was fitted on measurements listed, with the rows that it was fitted on?"""

import pytest

from ascendsim import load_profile
from ascendsim.validate.constants import CONSTANTS, NOT_FITTED, role_of

FITTED = sorted(CONSTANTS)
# What a figure of that name is where its mechanism takes no part: no time, one cycle, all of a rate.
NEUTRAL = {"head_cycles": 0, "efficiency": 1, "repeat_cycles": 1}


def neutral(path, value):
    """A measured figure that only confirms the plainest rule is no constant."""
    return any(part in NEUTRAL and value == NEUTRAL[part] for part in path.split(".")[-2:])


def listed(product):
    """The paths that have an entry for a product; the 910_93 takes what it does not say from the 910B."""
    own = {constant.path for constant in CONSTANTS[product]}
    return own | ({constant.path for constant in CONSTANTS["910B"]} if product == "910_93" else set())


@pytest.mark.parametrize("product", FITTED)
def test_every_measured_figure_is_listed_or_says_why_not(product):
    figures = load_profile(product).figures
    measured = {
        path
        for path, figure in figures.items()
        if figure.confidence == "measured" and not neutral(path, figure.value)
    }
    assert measured - listed(product) <= set(NOT_FITTED)


@pytest.mark.parametrize("product", FITTED)
def test_every_constant_is_a_figure_of_its_product_that_says_it_was_measured(product):
    figures = load_profile(product).figures
    for constant in CONSTANTS[product]:
        assert figures[constant.path].confidence == "measured", constant.path


@pytest.mark.parametrize("product", FITTED)
def test_without_a_constant_the_figure_is_another_one_that_can_be(product):
    figures = load_profile(product).figures
    for constant in CONSTANTS[product]:
        assert constant.without != figures[constant.path].value, constant.path
        load_profile(product, overrides={constant.path: constant.without})


def test_no_reason_is_given_in_vain():
    for path in NOT_FITTED:
        unlisted = [
            product
            for product in FITTED
            if path in (figures := load_profile(product).figures)
            and figures[path].confidence == "measured"
            and path not in listed(product)
        ]
        assert unlisted, path


def test_rows_that_a_constant_was_fitted_on_are_calibration():
    assert role_of("mskpp-L1_TO_FB-910b1-2") == "calibration"
    assert role_of("ad-mm8192-case2-a2") == "calibration"
    assert role_of("ad-mm8192-case4-a2") == "validation"
    assert role_of("mstt-b-04") == "validation"


@pytest.mark.parametrize("product", FITTED)
def test_a_figure_taken_from_another_one_is_that_one(product):
    # "as on the 910B" and "as UB_GM" name the same figure there; longer texts say what differs.
    figures = load_profile(product).figures
    others = load_profile("910B").figures
    for path, figure in figures.items():
        source = figure.source.removeprefix("as ")
        twin = f"paths.{source.removeprefix('paths.')}.{path.rsplit('.', 1)[-1]}"
        if figure.source == "as on the 910B":
            assert figure.value == others[path].value, path
        elif source != figure.source and twin in figures:
            assert figure.value == figures[twin].value, path
