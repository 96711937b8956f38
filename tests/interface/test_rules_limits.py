"""Is every limit tight, and which empty tensors pass?"""

import pytest

from ascendsim.rules import TensorDescription as T
from ascendsim.rules import load_rules, resolve, rule_set_names
from tests.helpers.calls import answer, changed, conv, tbc

# --- Is every limit tight: the value itself passes, one more does not? ---------------------------------

ROWS = [
    (rules, i, limit)
    for rules in rule_set_names()
    for i, limit in enumerate(load_rules(rules).convolution.limits)
]
NAMES = {"D": 0, "H": 1, "W": 2}


def call_with(limit, value, axis, rank, gradient):
    """Describe a call with `value` where the limit looks, along one axis, that fits otherwise; or None."""
    axes, place = rank - 2, NAMES[axis] - (5 - rank)
    if place < 0:
        return None
    transposed, groups = bool(limit.transposed), 1
    options = {"stride": [1] * axes, "padding": [0] * axes, "dilation": [1] * axes}
    input, kernel = [1] * axes, [1] * axes
    huge = value > 10**6  # then stride and padding keep the extents below limits of their own
    if limit.of == "stride":
        options["stride"][place] = value
        if limit.at_most:
            kernel[place] = input[place] = 4
        elif limit.only and axis == "D":
            kernel[place] = input[place] = value  # "at most the kernel" holds as well
    elif limit.of == "padding":
        options["padding"][place] = value
        options["stride"][place] = value if huge and not transposed else 1
        # Transposed, the big side is (input - 1) - 2 padding + 1, and must be positive.
        input[place] = 2 * value + 1 if transposed else 1
    elif limit.of == "dilation":
        options["dilation"][place] = value
        kernel[place] = 2
        options["padding"][place] = (value + 1) // 2 if huge and not transposed else 0
        input[place] = 1 if transposed or huge else value + 1
    elif limit.of == "kernel":
        kernel[place] = value
        if not transposed:  # half of the kernel as padding, so that the derived padding is small too
            options["padding"][place] = min(255, (value - 1) // 2)
            input[place] = value - 2 * options["padding"][place]
    elif limit.of == "backward padding":
        kernel[place] = input[place] = value + 1  # (kernel - 1) - padding
    elif limit.of == "groups":
        groups = value
    dtype = "float32" if limit.only else "float16"
    mask = tuple(name == gradient for name in ("grad_input", "grad_weight", "grad_bias"))
    return conv(
        (1, groups, *input),
        (groups, 1, *kernel),
        groups=groups,
        transposed=transposed,
        dtype=dtype,
        mask=mask,
        **options,
    )


def tight_calls(limit):
    """Yield (product, call at the limit, call above it) for all that a limit says it binds."""
    most = 4 if limit.at_most else limit.max
    everywhere = ("D", "H", "W") if limit.of in ("stride", "padding", "dilation") else ("W",)
    for gradient in (limit.gradient,) if limit.gradient else ("grad_input", "grad_weight"):
        for axis in limit.axes or everywhere:
            for rank in limit.ranks or (3, 4, 5):
                calls = [call_with(limit, most + more, axis, rank, gradient) for more in (0, 1)]
                if calls[0] is not None:
                    yield from ((product, rank, *calls) for product in limit.products or ("910B",))


TIGHT = [row for row in ROWS if row[2].of not in ("grad_output", "input", "weight", "grad_input area")]


@pytest.mark.parametrize(("rules", "i", "limit"), TIGHT, ids=lambda v: getattr(v, "of", v))
def test_a_limit_of_an_attribute_is_tight(rules, i, limit):  # noqa: ARG001 (i makes the name of the test)
    tried = 0
    for product, rank, at, above in tight_calls(limit):
        got = answer(at, product, rules)
        if got != (0, "") and rank == 5 and len(limit.ranks) == 0:
            continue  # 3-D has a narrower limit of its own, tried in its own row
        assert got == (0, ""), (product, at)
        expected = (limit.status, "24b" if limit.status == 161002 else "31")
        assert answer(above, product, rules) == expected, (product, above)
        tried += 1
    assert tried


@pytest.mark.parametrize(("rules", "i", "limit"), TIGHT, ids=lambda v: getattr(v, "of", v))
def test_a_limit_binds_only_whom_it_names(rules, i, limit):  # noqa: ARG001
    for product, _, _, above in tight_calls(limit):
        if limit.gradient:
            only_bias = changed(above, {"output_mask": (False, False, True)})
            assert answer(only_bias, product, rules) == (0, "")
        if limit.only:  # the older kernel is tried, of which nothing is known
            other = changed(above, {f"{name}.dtype": "float16" for name in above.tensors})
            assert answer(other, product, rules) == (0, "")


@pytest.mark.parametrize(("rest", "expected"), [(55, (0, "")), (56, (561103, "31"))])
def test_the_padding_behind_grad_output_has_a_limit_too(rest, expected):
    # 201 taps without padding: 200 before, and behind as many and the columns that no window reaches. Two
    # windows 63 apart reach 264.
    call = conv(
        (1, 3, 1, 1, 264 + rest),
        (5, 3, 1, 1, 201),
        groups=1,
        stride=(1, 1, 63),
        padding=0,
        dtype="float16",
        mask=(True, False, False),
    )
    assert answer(call, "910B", "shipped") == expected


HUGE = 2**31  # one above the largest extent that an inner operator takes


@pytest.mark.parametrize(
    ("gradient", "most"), [("grad_input", 2147483647), ("grad_weight", 2147483646), ("grad_bias", None)]
)
def test_extents_of_the_operator(gradient, most):
    mask = tuple(name == gradient for name in ("grad_input", "grad_weight", "grad_bias"))
    for batch in (2147483646, 2147483647, 2147483648):
        call = conv((batch, 1, 1), (1, 1, 1), groups=1, padding=0, dtype="float16", mask=mask)
        fits = most is None or batch <= most
        assert answer(call, "910B", "shipped")[0] == (0 if fits else 561103)


def test_the_area_of_grad_input():
    for width, status in ((65536, 561103), (65535, 0)):  # 65536 x 65536 = 2^32, one too many
        call = conv(
            (1, 1, 65536, width),
            (1, 1, 1, 1),
            groups=1,
            padding=0,
            dtype="float16",
            mask=(True, False, False),
        )
        assert answer(call, "910B", "shipped")[0] == status


@pytest.mark.parametrize(
    ("rules", "expected"), [("documented-004", (161002, "24b")), ("documented", (0, ""))]
)
def test_the_oldest_page_bounds_every_extent(rules, expected):
    call = conv((HUGE, 1, 1), (1, 1, 1), groups=1, padding=0, dtype="float16")
    assert answer(call, "910B", rules) == expected
    at = conv((2147483646, 1, 1), (1, 1, 1), groups=1, padding=0, dtype="float16")
    assert answer(at, "910B", rules) == (0, "")


def test_dilation_of_a_kernel_with_one_tap_is_nobodys_business_but_the_pages():
    call = conv((1, 1, 4), (1, 1, 1), groups=1, padding=0, dilation=300, dtype="float16")
    assert answer(call, "910B", "shipped") == (0, "")
    assert answer(call, "910B", "documented") == (561103, "31")


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ("documented", (161002, "27.9")),  # the page's ranges know no exception
        ("shipped", (0, "")),
        ("hardware", (0, "")),
        ("documented-001", (161002, "17")),
        ("documented-002", (161002, "17")),
    ],
)
def test_which_limits_concern_empty_calls(rules, expected):
    call = conv((0, 1, 300), (1, 1, 256), groups=1, padding=256, stride=100, dtype="float16")
    assert answer(call, "910B", rules) == expected


@pytest.mark.parametrize(
    ("rules", "changes", "most", "expected"),
    [
        ("documented", "pad", 255, (161002, "5a")),
        ("documented", "taps", 255, (161002, "5a")),
        ("documented", "batch", 2147483646, (161002, "5a")),
        ("shipped", "pad", 255, (561103, "8")),
    ],
)
def test_limits_of_conv_tbc(rules, changes, most, expected):
    sizes = {"time": 300}
    assert answer(tbc(**sizes, **{changes: most}), "910B", rules) == (0, "")
    assert answer(tbc(**sizes, **{changes: most + 1}), "910B", rules) == expected


@pytest.mark.parametrize("rules", ["documented", "shipped", "hardware"])
def test_pad_of_conv_tbc_is_zero_or_more(rules):
    # Three taps on seven steps: five places, or three with a pad of -1, which the outputs have room for.
    pads = {pad: answer(tbc(pad=pad, dtype="float16"), "910B", rules) for pad in (-1, 0, 1)}
    assert pads == {-1: (161002, "5"), 0: (0, ""), 1: (0, "")}


@pytest.mark.parametrize("product", ["910_95", "310P", "910"])
def test_pad_of_conv_tbc_is_free_elsewhere(product):
    assert answer(tbc(pad=1000, dtype="float16"), product, "shipped") == (0, "")


@pytest.mark.parametrize(
    ("dtype", "groups", "status"),
    [("float16", 1, 0), ("float16", 2, 561103), ("float32", 1, 561103), ("bfloat16", 2, 561103)],
)
def test_which_calls_must_take_the_newer_kernel(dtype, groups, status):
    # Stride 64 along W is beyond it; an older kernel is tried for 16-bit calls without groups.
    call = conv(
        (1, 4, 1, 1, 64),
        (4, 4 // groups, 1, 1, 1),
        groups=groups,
        padding=0,
        stride=(1, 1, 64),
        dtype=dtype,
        mask=(True, False, False),
    )
    assert answer(call, "910B", "shipped")[0] == status


# --- Which calls with empty tensors pass, and with what result? ----------------------------------------

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
    no_channels |= {"grad_weight.shape": (4, 0, 3, 3), "grad_bias.shape": (0,)}
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


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "empty"),
        ({"grad_input.shape": (5, 5, 5, 5)}, "27.10"),
        ({"grad_input.shape": (1, 4, 6, 7)}, "27.10"),
        ({"grad_weight.shape": (6, 4, 3, 1)}, "27.10"),
        ({"grad_bias.shape": (9,)}, "27.11"),
        ({"grad_bias.shape": (1, 6)}, "27.11"),
        # It follows weight, where grad_output has no channels.
        ({"grad_output.shape": (0, 0, 6, 7), "output_mask": (True, True, False)}, "empty"),
    ],
)
def test_gradients_of_an_empty_call_have_the_shapes_of_their_tensors_by_the_page(changes, expected):
    call = changed(plain((0, 4, 6, 7)), changes)
    assert outcome(call, "documented") == expected
    assert outcome(call, "shipped") == "empty"


def test_grad_bias_of_a_transposed_empty_call_has_the_channels_that_weight_makes():
    call = plain((0, 4, 6, 7), (4, 3, 3, 3), transposed=True, groups=2)
    assert outcome(call) == "empty"
    assert outcome(changed(call, {"grad_bias.shape": (3,)})) == "27.11"


@pytest.mark.parametrize("height", [0, 1, 6, 7, 99])
def test_of_a_kernel_without_taps_no_size_is_wrong(height):
    call = plain((0, 4, 6, 7), (6, 4, 0, 3), grad_output=(0, 6, height, 7))
    assert outcome(call, "documented") == "empty"
    # The width has its three taps, and makes 7 of 7.
    assert outcome(changed(call, {"grad_output.shape": (0, 6, height, 8)}), "documented") == "27.7"


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


@pytest.mark.parametrize("field", ["dtype", "format"])
def test_a_name_may_have_forty_letters(field):
    asked = [answer(changed(conv(), {f"input.{field}": "x" * size}), "910B", "shipped") for size in (40, 41)]
    # No such name is known, which a check of the interface says; a longer one is no name.
    assert asked[0][1] != asked[1][1] == "0"
