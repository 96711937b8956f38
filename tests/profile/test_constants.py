"""Is every figure that was fitted on measurements marked, with the rows that it was fitted on?"""

import pytest

from ascendsim import load_profile
from ascendsim.errors import ConfigError
from ascendsim.profile import list_products
from ascendsim.validate.ablation import fitted

PRODUCTS = tuple(product.name for product in list_products())
# Measured figures that were fitted on no row of the table, by path, and why.
NOT_FITTED = {
    "paths.L1_GM.bytes_per_cycle": "a published peak; no row goes that way",
    "paths.UB_GM.bytes_per_cycle": "a published peak of the 910B; the other products are fitted",
    "paths.UB_GM.drain_bytes_per_cycle": "of the 910_93, as its rate: nothing slows down there",
    "paths.GM_UB.bytes_per_cycle": "of the 950DT, as what a core can take of the link, which binds it",
    "links.l2_read.efficiency": "a published rate of all cores; the rows at hand read memory, too",
    "links.l2_read.vector_tb_per_s": "the same; the 950DT has rows, and is fitted",
    "links.l2_read.per_core_bytes_per_cycle": "the rate of paths.GM_L1",
    "links.l2_read.per_vector_core_bytes_per_cycle": "the rate of paths.GM_UB",
    "links.l2_write.efficiency": "of the 910: kernels of other networks that add large results, no rows here",
    "links.memory.efficiency": "of the 310P: images a second of two networks; the other products are fitted",
    "links.l2_write.per_vector_core_bytes_per_cycle": "the rate of paths.UB_GM",
    "links.memory.per_vector_core_bytes_per_cycle": "a published plateau of one core of the 910_93",
    "l2.most_fetches": "fitted on half of the products of a table of its own, not of this one",
    "scalar.start_us": "read from a document about the 910B; the 910 has rows, and is fitted",
}
# What a figure of that name is where its mechanism takes no part: no time, one cycle, all of a rate.
NEUTRAL = {"head_cycles": 0, "efficiency": 1, "repeat_cycles": 1}


def neutral(path, value):
    """A measured figure that only confirms the plainest rule is no constant."""
    return any(part in NEUTRAL and value == NEUTRAL[part] for part in path.split(".")[-2:])


def unmarked(product):
    """The paths of the figures that were measured, say more than the plainest rule, and are not marked."""
    return {
        path
        for path, figure in load_profile(product).figures.items()
        if figure.confidence == "measured" and not figure.fitted_on and not neutral(path, figure.value)
    }


@pytest.mark.parametrize("product", PRODUCTS)
def test_every_measured_figure_is_marked_or_says_why_not(product):
    assert unmarked(product) <= set(NOT_FITTED)


def test_no_reason_is_given_in_vain():
    assert set(NOT_FITTED) <= set().union(*map(unmarked, PRODUCTS))


@pytest.mark.parametrize("product", PRODUCTS)
def test_without_a_fitted_figure_the_product_can_still_be_built(product):
    for path, figure in fitted(product).items():
        assert figure.confidence == "measured", path
        assert figure.source, path
        other = load_profile(product, overrides={path: figure.without}).figures[path]
        # A value that the caller gives was fitted on nothing.
        assert (other.value, other.fitted_on) == (figure.without, ()), path


@pytest.mark.parametrize(
    "marks",
    [
        'fitted_on = ["row"]',
        "without = 0.5",
        'fitted_on = ["row"], without = 0.9',  # the value itself
        'fitted_on = ["row"], without = 0.5, range = [0.8, 1.0]',
    ],
)
def test_a_mark_names_rows_and_another_value_of_a_measured_figure(tmp_path, marks):
    confidence = "assumed" if "range" in marks else "measured"
    path = tmp_path / "mine.toml"
    figure = f'{{ value = 0.9, source = "x", confidence = "{confidence}", {marks} }}'
    path.write_text(f'base = "910B"\n[links.memory]\nefficiency = {figure}\n')
    with pytest.raises(ConfigError, match=r"links\.memory\.efficiency: a fitted figure must be measured and"):
        load_profile(path)


def test_rows_are_a_list_of_texts_and_the_other_value_is_one_of_the_figure(tmp_path):
    path = tmp_path / "mine.toml"
    figure = '{ value = 0.9, source = "x", confidence = "measured", fitted_on = "row", without = "none" }'
    path.write_text(f'base = "910B"\n[links.memory]\nefficiency = {figure}\n')
    with pytest.raises(ConfigError) as caught:
        load_profile(path)
    assert "efficiency.fitted_on: got 'row', expected a list of texts" in str(caught.value)
    assert "efficiency.without: got 'none', expected a number from 0.01 to 1" in str(caught.value)


@pytest.mark.parametrize("product", PRODUCTS)
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
