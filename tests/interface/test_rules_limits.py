"""Is every limit tight: the value itself passes, one more does not?"""

import pytest

from ascendsim.rules import load_rules, rule_set_names
from tests.helpers.rules_calls import answer, changed, conv, tbc

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
