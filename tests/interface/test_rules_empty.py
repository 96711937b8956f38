"""Which calls with empty tensors pass, and with what result?"""

import pytest

from ascendsim.rules import TensorDescription as T
from ascendsim.rules import resolve
from tests.helpers.rules_calls import answer, changed, conv, tbc

NEW, OLD = ("910_95", "910_93", "910B"), ("310P", "910")


def plain(input, weight=(6, 4, 3, 3), grad_output=None, **options):
    options = {"groups": 1, "dtype": "float16", **options}
    return conv(input, weight, grad_output=grad_output, **options)


def outcome(call, rules="documented", product="910B"):
    """Return "empty" of an accepted empty call, else the number of the check that failed."""
    status, number = answer(call, product, rules)
    return number if status else "empty" if resolve(call, product, rules).empty else "full"


@pytest.mark.parametrize("product", NEW)
@pytest.mark.parametrize("rules", ["documented", "shipped", "hardware"])
def test_an_empty_batch_gives_zeros(rules, product):
    decision = resolve(plain((0, 4, 6, 7)), product, rules)
    assert (decision.empty, decision.empty_grad_bias) == (True, "zeros")


@pytest.mark.parametrize("product", OLD)
@pytest.mark.parametrize("rules", ["documented", "shipped"])
def test_the_old_products_take_no_empty_grad_output(rules, product):
    assert outcome(plain((0, 4, 6, 7)), rules, product) == "17"


@pytest.mark.parametrize("rules", ["documented-001", "documented-002", "documented-004"])
def test_the_old_pages_take_no_empty_grad_output(rules):
    assert outcome(plain((0, 4, 6, 7)), rules) == "17"


@pytest.mark.parametrize("rules", ["documented", "shipped"])
def test_grad_output_alone_may_not_be_empty(rules):
    assert outcome(plain((2, 4, 6, 7), grad_output=(0, 6, 6, 7)), rules) == "17"


@pytest.mark.parametrize("rules", ["documented", "shipped"])
def test_no_channels_on_both_sides(rules):
    assert outcome(plain((2, 0, 6, 7), (6, 0, 3, 3)), rules) == "empty"
    assert outcome(plain((2, 0, 6, 7), (6, 4, 3, 3)), rules) == "27.5"


@pytest.mark.parametrize(
    ("size", "padding", "expected"),
    [
        (0, 1, "27.6"),  # 0 + 2 < 3
        (0, 2, "empty"),  # 0 + 4 >= 3
        (1, 1, "empty"),  # 1 + 2 >= 3, the tight case
        (2, 0, "27.6"),
        (3, 0, "empty"),
    ],
)
def test_the_kernel_must_fit_into_the_padded_input(size, padding, expected):
    call = plain((0, 4, size, 7), padding=(padding, 1), grad_output=(0, 6, size + 2 * padding - 2, 7))
    assert outcome(call) == expected
    assert outcome(call, "shipped") == expected


@pytest.mark.parametrize(
    ("height", "made", "expected"),
    # Under three taps 6 rows make 8, or none; of no rows no number is right, and so none is wrong.
    [(6, 8, "empty"), (6, 7, "27.7"), (6, 0, "empty"), (0, 5, "empty"), (0, 9, "empty")],
)
def test_sizes_of_a_transposed_grad_output_beside_an_empty_batch(height, made, expected):
    call = plain((0, 4, height, 7), (4, 6, 3, 3), grad_output=(0, 6, made, 9), transposed=True, padding=0)
    assert outcome(call) == expected
    # The operator does not look.
    assert outcome(call, "shipped") == "empty"


def test_which_of_four_pads_the_width_is_tested_with():
    # Height 3 fits by itself; width 1 needs 2 of padding: left and right are 1 + 1, bottom is 0.
    call = plain((0, 4, 3, 1), padding=(0, 0, 1, 1), grad_output=(0, 6, 1, 1))
    assert outcome(call, "documented") == "empty"
    assert outcome(call, "shipped") == "27.6"
    # And the other way round: bottom 1 taken twice is enough, left and right 0 + 0 are not.
    call = plain((0, 4, 3, 1), padding=(0, 1, 0, 0), grad_output=(0, 6, 1, 1))
    assert outcome(call, "documented") == "27.6"
    assert outcome(call, "shipped") == "empty"


@pytest.mark.parametrize("rules", ["documented", "shipped", "hardware"])
def test_a_kernel_of_no_taps(rules):
    # (0 - 1) 2 + 1 = -1 fits into anything: 0 + 1 + 1 placements in a height of 0.
    call = plain((0, 4, 0, 7), (6, 4, 0, 3), dilation=(2, 1), padding=(0, 1), grad_output=(0, 6, 2, 7))
    assert outcome(call, rules) == "empty"


def test_sizes_of_zero_need_a_batch_or_channels_of_zero():
    call = plain((2, 4, 0, 7), padding=(2, 1), grad_output=(2, 6, 2, 7))
    assert outcome(call, "documented") == "27.2"
    assert outcome(call, "shipped") == "27.2"
    # The operator asks for that only where grad_input is asked for.
    masked = changed(call, {"output_mask": (False, True, True)})
    assert outcome(masked, "documented") == "27.2"
    assert outcome(masked, "shipped") == "empty"


def test_no_filters():
    call = plain((2, 4, 6, 7), (0, 4, 3, 3), grad_output=(2, 0, 6, 7))
    assert outcome(call, "documented") == "27.2"
    assert outcome(call, "shipped") == "27.2"
    masked = changed(call, {"output_mask": (False, True, False)})
    assert outcome(masked, "shipped") == "empty"
    empty_batch = plain((0, 4, 6, 7), (0, 4, 3, 3), grad_output=(0, 0, 6, 7))
    assert outcome(empty_batch, "shipped") == "empty"
    assert outcome(empty_batch, "documented") == "27.6"  # "weight: C, D, H, W may be 0", N not


@pytest.mark.parametrize("rules", ["documented", "shipped"])
def test_transposed(rules):
    call = plain((0, 4, 6, 7), (4, 6, 3, 3), transposed=True)
    assert outcome(call, rules) == "empty"
    no_channels = {"weight.shape": (4, 0, 3, 3), "bias_sizes": (0,), "grad_output.shape": (0, 0, 6, 7)}
    assert outcome(changed(call, no_channels), rules) == "empty"
    assert outcome(changed(call, {"weight.shape": (5, 6, 3, 3)}), rules) == "27.6"
    assert outcome(changed(call, {"weight.shape": (0, 6, 3, 3)}), rules) == "27.6"
    channels = plain((2, 0, 6, 7), (0, 6, 3, 3), transposed=True)
    assert outcome(channels, rules) == "27.6"


def test_a_transposed_empty_batch_is_not_asked_about_channels():
    # Item 27.5 is skipped: the operator neither compares grad_output's channels nor looks at its shape.
    call = conv((0, 1, 0, 1, 1), (1, 1, 0, 1, 1), groups=1, transposed=True, padding=0, dtype="float16")
    weird = changed(call, {"grad_output.shape": (100, 100, 0, 1, 1)})
    # -1 + (0 - 1) + 1 = -1 pixels are none; the page takes a size of 0 for whatever it would be.
    fits = changed(call, {"grad_output.shape": (0, 1, 0, 1, 1)})
    assert outcome(fits, "documented") == outcome(fits, "shipped") == "empty"
    assert outcome(weird, "shipped") == "empty"
    assert outcome(weird, "documented") == "27.7"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"grad_output.shape": (1, 6, 6, 7)}, "27.7"),  # another batch
        ({"grad_output.shape": (0, 5, 6, 7), "output_mask": (True, True, False)}, "27.7"),  # other channels
        ({"grad_output.shape": (0, 6, 5, 7)}, "27.7"),  # 6 + 1 + 1 - 3 + 1 = 6 rows
        ({"grad_output.shape": (0, 6, 6)}, "9a"),  # of another rank, and so of another format
        ({"grad_output.shape": (0, 0, 0, 0), "output_mask": (True, True, False)}, "empty"),  # "may be 0"
        ({"bias_sizes": (5,), "output_mask": (True, True, False)}, "27.8"),
        ({"padding": (1, 256), "grad_output.shape": (0, 6, 6, 517)}, "31"),  # at most 255
        ({"dilation": (1, 256), "padding": (1, 255), "grad_output.shape": (0, 6, 6, 5)}, "31"),
    ],
)
def test_the_page_names_relations_and_ranges_that_hold_for_empty_calls_too(changes, expected):
    call = changed(plain((0, 4, 6, 7)), {"grad_output.format": None, **changes})
    assert outcome(call, "documented") == expected
    # The operator looks at nothing of this.
    assert outcome(changed(call, {"bias_sizes": (call.grad_output.shape[1],)}), "shipped") == "empty"


def test_groups_of_an_empty_call_have_a_range():
    for groups, expected in ((65535, "empty"), (65536, "31")):
        call = plain((0, groups, 2, 2), (groups, 1, 1, 1), padding=0, groups=groups)
        assert outcome(call, "documented") == expected
        assert outcome(call, "shipped") == "empty"


@pytest.mark.parametrize(
    ("mask", "sizes", "expected"),
    [
        ((True, True, True), (6,), "empty"),
        ((True, True, True), (1,), "27.1"),
        ((True, True, True), (6, 1), "27.1"),
        ((True, True, True), None, "27.1"),
        ((True, True, False), None, "empty"),
        ((True, True, False), (1,), "empty"),
    ],
)
def test_bias_sizes_count_where_the_bias_gradient_is_asked_for(mask, sizes, expected):
    call = plain((0, 4, 6, 7), mask=mask)
    assert outcome(changed(call, {"bias_sizes": sizes}), "shipped") == expected


def test_bias_sizes_of_a_transposed_call_are_those_of_weight():
    call = plain((0, 4, 6, 7), (4, 3, 3, 3), transposed=True, groups=2)
    assert call.grad_output.shape[1] == 6
    assert outcome(call, "shipped") == "empty"
    assert outcome(changed(call, {"bias_sizes": (3,)}), "shipped") == "27.1"


@pytest.mark.parametrize("rules", ["documented", "shipped"])
def test_shapes_of_outputs_are_not_compared(rules):
    call = changed(plain((0, 4, 6, 7)), {"grad_input.shape": (1, 1, 1, 1), "grad_bias.shape": (9,)})
    assert outcome(call, rules) == "empty"


def test_a_weight_of_another_rank_is_refused_rather_than_read_past_its_end():
    flat = T((6, 4, 3), "float16")
    call = changed(plain((0, 4, 6, 7)), {"weight": flat, "grad_weight": flat})
    assert outcome(call, "shipped") == "27.3"
    assert outcome(call, "documented") == "27.3"


@pytest.mark.parametrize("product", OLD)
def test_input_alone_on_the_old_products(product):
    # Rank 4 sizes are not compared there, so that a height of 0 comes through to items 1 and 2.
    call = plain((2, 4, 0, 7), grad_output=(2, 6, 3, 7))
    assert outcome(call, "shipped", product) == "27.2"
    masked = changed(call, {"output_mask": (False, True, True), "bias_sizes": (6,)})
    assert outcome(masked, "shipped", product) == "empty"
    assert outcome(changed(masked, {"bias_sizes": None}), "shipped", product) == "27.1"


@pytest.mark.parametrize(
    ("changes", "rules", "expected"),
    [
        ({"time": 0, "taps": 1}, "shipped", (True, "count")),
        ({"time": 0, "taps": 1}, "hardware", (True, "sum")),
        ({"taps": 0}, "shipped", (True, "count")),
        ({"channels": 0}, "shipped", (True, "count")),
        ({"taps": 0}, "hardware", (True, "sum")),
        ({}, "shipped", (False, "sum")),
    ],
)
def test_conv_tbc_beside_a_grad_output_that_is_not_empty(changes, rules, expected):
    decision = resolve(tbc(**changes), "910B", rules)
    assert (decision.empty, decision.empty_grad_bias) == expected


def test_conv_tbc_with_an_empty_grad_output():
    call = tbc(batch=0)
    assert answer(call, "910B", "shipped") == (161002, "4")
    assert answer(call, "910B", "hardware") == (0, "")


@pytest.mark.parametrize("changes", [{"time": 0, "taps": 1}, {"taps": 0}, {"channels": 0}, {"batch": 0}])
def test_page_003_wants_every_size_from_1(changes):
    assert answer(tbc(**changes), "910B", "documented") == (161002, "4")
