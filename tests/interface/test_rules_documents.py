"""What do the rule sets disagree about, and do they answer the outside records as expected?"""

from collections import Counter

import pytest

from ascendsim.rules import TensorDescription, resolve, rule_set_names
from ascendsim.rules import TensorDescription as T
from tests.helpers.calls import answer, changed, conv, tbc
from tests.helpers.outside_records import FILES, case_records

# --- What do the rule sets disagree about? -------------------------------------------------------------

OK = 0
DOCUMENTS = ("documented", "documented-001", "documented-002", "documented-004")
ALL = (*DOCUMENTS, "shipped", "hardware")
PLAIN = conv((2, 4, 6, 7), (6, 4, 3, 3), groups=1, dtype="float16")


def answers(call, product="910B"):
    """Return the status of a call under every rule set, in the order of ALL."""
    return tuple(answer(call, product, rules)[0] for rules in ALL)


def test_the_rule_sets_are_these():
    assert rule_set_names()[0] == "documented"
    assert set(rule_set_names()) == set(ALL)


@pytest.mark.parametrize("product", ["910B", "910B3", "Ascend910B", "A2"])
def test_a_plain_call_passes_everywhere(product):
    assert answers(PLAIN, product) == (OK,) * 6


@pytest.mark.parametrize(
    ("product", "expected"),
    [
        # 000, 001, 002, 004, shipped, hardware
        ("910_95", (OK, 161002, 161002, 161002, OK, OK)),
        ("910_93", (OK, 161002, OK, 161002, OK, OK)),
        ("910B", (OK,) * 6),
        ("310P", (OK, OK, 161002, OK, OK, OK)),
        ("910", (OK, OK, 161002, OK, OK, OK)),
        ("310B", (161002,) * 6),
        ("310", (161002,) * 6),
    ],
)
def test_products(product, expected):
    assert answers(PLAIN, product) == expected


@pytest.mark.parametrize("product", ["310B", "310"])
def test_an_unsupported_product_is_found_after_null_pointers(product):
    assert answer(PLAIN, product) == (161002, "3a")
    assert answer(changed(PLAIN, {"stride": None}), product) == (161001, "1")
    assert answer(changed(PLAIN, {"input.dtype": "int8"}), product) == (161002, "3a")


@pytest.mark.parametrize(
    ("product", "expected"),
    [
        # page 003 is the only one on conv_tbc, so that the older pages follow it
        ("910_95", (161002, 161002, 161002, 161002, OK, OK)),
        ("910_93", (OK,) * 6),
        ("910B", (OK,) * 6),
        ("310P", (161002, 161002, 161002, 161002, OK, OK)),
        ("910", (161002, 161002, 161002, 161002, OK, OK)),
        ("310B", (161002,) * 6),
    ],
)
def test_products_of_conv_tbc(product, expected):
    assert answers(tbc(dtype="float16"), product) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"bias_sizes": None}, (161001, 161001, 161001, 161001, OK, OK)),
        ({"bias_sizes": (1,)}, (161002, 161002, 161002, 161002, OK, OK)),
        (
            {"output_mask": (False, True, True), "grad_input": None},
            (161001, 161001, 161001, 161001, OK, OK),
        ),
        (
            {"output_mask": (True, False, True), "grad_weight": None},
            (161001, 161001, 161001, 161001, OK, OK),
        ),
        ({"output_mask": (True, True, False), "grad_bias": None}, (OK, OK, OK, 161001, OK, OK)),
        ({"grad_bias.format": "NCL"}, (161002, 161002, 161002, 161002, 161002, OK)),
        # output dtypes on 910B: 000 ties grad_input and grad_bias, 001 and 002 grad_weight too
        ({"grad_weight.dtype": "float32"}, (OK, 161002, 161002, 161002, OK, OK)),
        ({"grad_input.dtype": "float32"}, (161002, 161002, 161002, 161002, OK, OK)),
        ({"grad_bias.dtype": "float32"}, (161002, 161002, 161002, 161002, OK, OK)),
        # 004 wants the more precise of grad_output and input (weight)
        (
            {"grad_output.dtype": "float32", "grad_bias.dtype": "float32"},
            (OK, OK, OK, 161002, OK, OK),
        ),
        (
            {
                "grad_output.dtype": "float32",
                "grad_bias.dtype": "float32",
                "grad_input.dtype": "float32",
                "grad_weight.dtype": "float32",
            },
            (161002, 161002, 161002, OK, OK, OK),
        ),
        ({"output_padding": (1, 0)}, (161002, 161002, 161002, OK, 161002, 161002)),
        ({"output_padding": (0, 0, 0, 0)}, (161002, 161002, 161002, 161002, OK, OK)),
        # what is no convolution: the pages' relation of shapes, the operator's inner failure
        ({"grad_output.shape": (2, 6, 6, 8)}, (161002, 161002, 161002, 161002, 561103, 161002)),
        ({"grad_output.shape": (3, 6, 6, 7)}, (161002, 161002, 161002, 161002, 561103, 161002)),
    ],
)
def test_differences_on_910b(changes, expected):
    assert answers(changed(PLAIN, changes)) == expected


def test_strict_outputs_of_the_operator_are_those_of_910_95():
    for name in ("grad_input", "grad_weight", "grad_bias"):
        call = changed(PLAIN, {f"{name}.dtype": "float32"})
        assert answer(call, "910_95", "shipped")[0] == 161002
        assert answer(call, "910_93", "shipped")[0] == OK


@pytest.mark.parametrize("rules", ALL)
def test_nd_stands_for_ncl_in_the_operator_only(rules):
    call = conv((2, 4, 7), (6, 4, 3), groups=1, dtype="float16")
    mixed = changed(call, {"input.format": "ND", "grad_weight.format": "ND"})
    assert answer(call, "910B", rules)[0] == OK
    assert answer(mixed, "910B", rules)[0] == (OK if rules in ("shipped", "hardware") else 161002)


@pytest.mark.parametrize("rules", ["shipped", "hardware"])
def test_a_tensor_of_rank_4_is_never_nd(rules):
    assert answer(changed(PLAIN, {"input.format": "ND"}), "910B", rules) == (161002, "9")


@pytest.mark.parametrize("rank", [0, 1, 2, 6, 64])
@pytest.mark.parametrize("rules", ALL)
def test_other_ranks_have_no_format(rules, rank):
    call = changed(PLAIN, {"grad_output": T((1,) * rank, "float16", "ND")})
    assert answer(call, "910B", rules) == (161002, "9")


@pytest.mark.parametrize("rules", ALL)
@pytest.mark.parametrize("mask", [(a, b, c) for a in (0, 1) for b in (0, 1) for c in (0, 1)])
def test_every_mask_is_legal(rules, mask):
    call = changed(PLAIN, {"output_mask": mask})
    assert resolve(call, "910B", rules).wanted == tuple(map(bool, mask))


@pytest.mark.parametrize(
    ("rank", "rules", "status"),
    [
        # the operator looks at output_padding < stride in 3-D only, the pages (but 004) everywhere
        *((3, rules, OK) for rules in ("shipped", "documented-004", "hardware")),
        *((3, rules, 161002) for rules in ("documented", "documented-001", "documented-002")),
        *((4, rules, OK) for rules in ("shipped", "documented-004", "hardware")),
        (4, "documented", 161002),
        (5, "shipped", 161002),
        (5, "documented", 161002),
        (5, "documented-004", OK),
    ],
)
def test_output_padding_as_large_as_the_stride(rank, rules, status):
    axes = (5, 6, 7)[5 - rank :]
    call = conv(
        (2, 4, *axes), (4, 6, *(3,) * (rank - 2)), groups=1, transposed=True, stride=2, dtype="float16"
    )
    call = changed(call, {"output_padding": (2,) * (rank - 2)})
    assert answer(call, "910B", rules)[0] == status


@pytest.mark.parametrize("axis", range(3))
def test_each_axis_of_output_padding_is_held_to_its_own_stride(axis):
    # In 3-D everybody looks: each value is below its stride, one is as large, one below 0.
    call = conv((1, 2, 4, 6, 7), (2, 3, 3, 3, 3), groups=1, transposed=True, stride=(2, 3, 4))
    for value, status in (((2, 3, 4)[axis], 161002), (-1, 161002)):
        padding = tuple(value if at == axis else 0 for at in range(3))
        assert answer(changed(call, {"output_padding": padding})) == (status, "12")
    below = changed(
        call, {"output_padding": tuple((2, 3, 4)[at] - 1 if at == axis else 0 for at in range(3))}
    )
    assert answer(below) != (161002, "12")


@pytest.mark.parametrize("axis", range(2))
@pytest.mark.parametrize(("name", "least"), [("stride", 1), ("padding", 0), ("dilation", 1)])
def test_each_axis_of_an_attribute_has_its_least(name, least, axis):
    values = [tuple(value if at == axis else 1 for at in range(2)) for value in (least - 1, least)]
    assert [answer(changed(conv(), {name: value})) == (161002, "11") for value in values] == [True, False]


def test_the_shapes_of_a_transposed_call_rule_over_output_padding():
    # (6 - 1) 2 - 2 + 3 + 1 = 12 and (7 - 1) 2 - 2 + 3 + 0 = 13
    call = conv((2, 4, 6, 7), (4, 6, 3, 3), groups=1, transposed=True, stride=2, output_padding=(1, 0))
    assert call.grad_output.shape == (2, 6, 12, 13)
    assert resolve(call).output_padding == (1, 0)
    assert resolve(changed(call, {"output_padding": (0, 1)})).output_padding == (1, 0)


def test_four_pads_are_top_bottom_left_right():
    # (6 + 0 + 1 - 3) + 1 = 5 and (7 + 2 + 3 - 3) + 1 = 10
    call = conv((2, 4, 6, 7), (6, 4, 3, 3), groups=1, padding=(0, 1, 2, 3), dtype="float16")
    assert call.grad_output.shape == (2, 6, 5, 10)
    assert answers(call) == (OK,) * 6
    assert answer(changed(call, {"grad_output.shape": (2, 6, 10, 5)}))[1] == "24"


@pytest.mark.parametrize("rules", ALL)
def test_grouped_float32_grad_weight_of_16_bit_inputs(rules):
    # 3-D: the operator refuses what it would squeeze through float16. In 2-D it squeezes without a word.
    three = changed(conv(dtype="float16"), {"grad_weight.dtype": "float32"})
    two = changed(conv((2, 4, 6, 7), (6, 2, 3, 3), dtype="float16"), {"grad_weight.dtype": "float32"})
    ties = rules in ("documented-001", "documented-002", "documented-004")  # grad_weight as weight
    assert answer(three, "910B", rules)[0] == (161002 if ties or rules == "shipped" else OK)
    assert answer(two, "910B", rules)[0] == (161002 if ties else OK)


@pytest.mark.parametrize("product", ["910_93", "910B", "310P", "910", "910_95"])
def test_depthwise_filters_that_groups_do_not_divide(product):
    # 4 groups, 6 filters: check 23 of the operator everywhere but on 910_95, where an inner one fails.
    call = conv((2, 4, 6, 7), (6, 1, 3, 3), groups=4, dtype="float16")
    assert answer(call, product, "shipped") == ((561103, "31") if product == "910_95" else (161002, "23"))
    assert answer(call, product, "documented") == (161002, "23")


def test_filters_that_groups_do_not_divide_without_depth():
    call = conv((2, 4, 6, 7), (5, 2, 3, 3), groups=2, dtype="float16")
    assert answer(call, "910B", "shipped") == (561103, "31")
    assert answer(call, "910B", "documented") == (161002, "23")


def test_3d_on_310p_is_for_studies():
    call = conv(dtype="float16")
    assert answers(call, "310P") == (161002, 161002, 161002, 161002, 161002, OK)
    assert answer(call, "310P", "shipped")[1] == "28"
    assert answer(call, "310P", "documented-002")[1] == "3a"


@pytest.mark.parametrize(
    ("name", "expected"),
    [("bias", (161002, 161002)), ("input", (161002, 161002)), ("grad_output", (161002, 161002))],
)
def test_conv_tbc_wants_equal_dtypes_by_its_page_only(name, expected):
    mixed = changed(tbc(), {f"{name}.dtype": "float16"})
    assert (answer(mixed, "910B", "documented")[0], answer(mixed, "910_93", "documented")[0]) == expected
    assert answer(mixed, "910B", "shipped")[0] == OK


def test_the_bias_of_conv_tbc_may_be_bfloat16_on_310p():
    call = changed(tbc(dtype="float16"), {"bias.dtype": "bfloat16"})
    assert answer(call, "310P", "shipped") == (OK, "")
    assert answer(changed(call, {"grad_bias.dtype": "bfloat16"}), "310P", "shipped") == (161002, "2")


def test_formats_of_conv_tbc_may_mix():
    call = changed(tbc(layout="ND"), {"input.format": "NCL", "grad_weight.format": "NCL"})
    assert answers(call) == (OK,) * 6
    # The page allows NCL for the bias, the operator does not.
    with_bias = changed(call, {"bias.format": "NCL", "grad_bias.format": "NCL"})
    assert answers(with_bias) == (OK, OK, OK, OK, 161002, OK)


# --- Does the shipped rule set answer the outside records as their authors expect? ---------------------


@pytest.fixture(scope="module")
def records(data_dir):
    return case_records(data_dir)


def test_every_active_call_gets_the_expected_status(records, capsys):
    counts, wrong = Counter(), []
    for record in records:
        if record.kernel:
            counts["kernel records, below the interface"] += 1
        elif not record.active:
            counts["switched off by their authors"] += 1
        elif record.status is None:
            counts["without an expected status"] += 1
        else:
            for product in record.products:
                got, check = answer(record.call, product, "shipped")
                counts[f"{record.file}: answered {got}"] += 1
                if got != record.status:
                    wrong.append((record.id, product, record.status, got, check))
    with capsys.disabled():
        print(f"\n{len(records)} outside records: " + "; ".join(f"{v} {k}" for k, v in counts.items()))
    assert not wrong
    assert sum(counts.values()) >= len(records)
    assert counts["gtest_conv: answered 0"] + counts["gtest_conv: answered 161002"] == 50


def test_calls_without_an_expectation_are_answered_too(records, capsys):
    # Shapes of real networks: nobody says that they pass, but a refusal of many would be suspicious.
    unspecified = [record for record in records if record.status is None]
    counts = Counter(answer(record.call, record.products[0], "shipped") for record in unspecified)
    with capsys.disabled():
        print(f"\n{len(unspecified)} records without an expected status: {dict(counts)}")
    consistent = [record for record in unspecified if record.consistent]
    assert all(answer(record.call, record.products[0], "shipped") == (0, "") for record in consistent)


def test_every_file_is_read(records):
    assert {record.file for record in records} == set(FILES)
    assert all(
        isinstance(tensor, TensorDescription) or tensor is None
        for record in records
        for tensor in (record.call.grad_output, record.call.input, record.call.weight)
    )


def test_records_say_how_their_values_are_made(records):
    assert all(low <= high for record in records for low, high in record.ranges.values())
    by_id = {record.id: record for record in records}
    assert by_id["gtest-tbc-case_normal"].ranges["bias"] == (-1.0, 1.0)  # none given
    assert by_id["example-1d"].ranges["input"] == (1.0, 1.0)
    assert by_id["atk-tbc-000"].ranges["bias"] == (-5, 5)


def test_which_gradients_are_to_be_computed(records, capsys):
    chosen = [record for record in records if record.expected_gradients()]
    with capsys.disabled():
        print(f"\n{len(chosen)} records whose gradients are small enough to compute")
    assert all(record.macs < 50_000_000 for record in chosen)
    assert len(chosen) > 100
