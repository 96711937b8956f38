"""Is the answer of a run told first, in a sentence and in tables that have all products? No call is run."""

import pytest

from ascendsim.report.markdown import page
from ascendsim.report.overview import (
    errors_table,
    headline,
    kernels_table,
    layers_table,
    network_table,
    plans_table,
)
from ascendsim.report.products import products_table
from ascendsim.report.tables import layer_table
from ascendsim.report.terminal import print_document
from ascendsim.report.words import closing_of_all
from tests.helpers.report_entries import CAST, GRADIENT, KERNEL, LAYERS, NETWORK, PLAN, PRODUCT, document
from tests.reports.test_report_terminal import printed

SLOW = PRODUCT | {"variant": "toy2", "time_us": 6.0, "cube_mhz": 500}
JUDGED = PRODUCT | {"gradients": [GRADIENT]}


# The sentence


def test_one_product_takes_so_long_and_is_busy_there():
    assert headline([PRODUCT]) == (
        "toy1 takes 3.00 us: launch 1.00, entry 0.50, cores 1.50. grad_input takes all of it; the busiest "
        "of its pipes is M, 50% of its cycles."
    )


def test_of_several_products_the_least_and_the_most_are_named():
    line = headline([SLOW, PRODUCT])
    assert line.startswith(
        "toy1 takes the least, 3.00 us; toy2 the most, 6.00 us, 2.00 times as long. On toy1 "
    )
    # Equal times have no most.
    assert headline([PRODUCT, PRODUCT]).startswith("toy1 takes the least, 3.00 us. On toy1 grad_input")


def test_of_a_network_the_layer_with_the_largest_share_is_named():
    # Layer a has 9 of 12 us; its two kernels take equally long, so that the first stands for it.
    assert "Layer a (3 of them) takes 75% of it, grad_input the longest of its kernels; " in headline(
        [NETWORK]
    )


def test_a_call_of_no_kernels_has_a_sentence_too():
    nothing = PRODUCT | {"kernels": [], "time_us": 0.0, "launch_us": 0.0, "entry_us": 0.0, "core_us": 0.0}
    assert headline([nothing]).endswith("cores 0.00. No kernel runs.")
    assert headline([nothing, nothing]) == "toy1 takes the least, 0.00 us. No kernel runs."


# The tables


def test_a_kernel_has_the_pipe_that_is_busy_longest():
    table = kernels_table([PRODUCT | {"kernels": [KERNEL, CAST]}])
    assert table.headings == (
        *("kernel", "cycles", "launch us", "entry us", "core us", "us", "share", "cores", "cube", "busiest"),
    )
    assert [row[-1] for row in table.rows] == ["M 50%", "V 100%", ""]
    assert table.total


def test_products_of_one_clock_are_set_below_each_other_with_their_cycles():
    two = [PRODUCT | {"kernels": [KERNEL, CAST]}, PRODUCT | {"variant": "toy3"}]
    table = kernels_table(two)
    assert table.headings[:3] == ("product", "kernel", "cycles")
    # Each product is named once, and what the products table says already, the sums, is left out.
    assert [row[:2] for row in table.rows] == [("toy1", "grad_input"), ("", "cast"), ("toy3", "grad_input")]
    assert not table.total
    assert table.left == {0, 1, 10}
    # One kernel alone has all of the time: it has the column for the sake of the others.
    assert {len(row) for row in table.rows} == {len(table.headings)}
    assert table.rows[2][table.headings.index("share")] == "100%"


def test_cycles_of_different_clocks_are_not_set_side_by_side():
    table = kernels_table([PRODUCT, SLOW])
    assert "cycles" not in table.headings
    assert "cycles" not in table.title
    assert table.rows[0][:3] == ("toy1", "grad_input", "1.00")
    assert table.left == {0, 1, 8}
    assert "cycles" not in products_table([PRODUCT, SLOW]).headings
    assert "cycles" in products_table([PRODUCT, PRODUCT]).headings


def test_a_plan_is_a_line():
    table = plans_table([PRODUCT | {"kernels": [KERNEL, CAST]}])
    assert table.headings == (
        *("kernel", "nest", "m x k x n", "steps", "L1", "L0", "L0C", "cores", "chosen by", "besides"),
    )
    assert table.rows == (("grad_input", "dgrad", "128x32x64", "2+4", "2+1", "2+2", "1", "2", "search", ""),)
    assert plans_table([PRODUCT | {"kernels": [CAST]}]).rows == ()


@pytest.mark.parametrize(
    ("more", "besides"),
    [
        ({"k_split": 3}, "k_split 3"),
        # Parts along the images, m and n; those that are not said are whole.
        ({"batch_dim": 4, "n_dim": 2}, "grid 4x1x2"),
        ({"batch_dim": 4, "k_dim": 7, "k_split": 2}, "grid 4x1x1x7, k_split 2"),
        ({"mapping": "interleaved", "task_order": "m n"}, "mapping interleaved, task_order m n"),
        # Rows, reduction and columns of a task; the reduction is not cut.
        ({"single_core_m": 96, "single_core_n": 64}, "single_core 96xallx64"),
    ],
)
def test_what_else_a_plan_sets_is_told_by_name(more, besides):
    kernel = KERNEL | {"plan": PLAN | more}
    assert plans_table([PRODUCT | {"kernels": [kernel]}]).rows[0][9] == besides


def test_the_plans_of_a_network_name_their_layers():
    table = plans_table([NETWORK])
    assert table.headings[:3] == ("layer", "kernel", "nest")
    assert [row[:2] for row in table.rows] == [("a", "grad_input"), ("b", "grad_input")]
    assert table.left == {0, 1, 2, 9, 10}
    assert "128x32x64" in page(document(NETWORK), [{}])


def test_products_of_equal_bits_share_their_errors():
    other = JUDGED | {"variant": "toy2"}
    assert [row[0] for row in errors_table([JUDGED, other]).rows] == ["all 2"]
    differing = JUDGED | {"variant": "toy3", "gradients": [GRADIENT | {"sha256": "f" * 16}]}
    assert [row[0] for row in errors_table([JUDGED, differing, other]).rows] == ["toy1, toy2", "toy3"]
    assert errors_table([JUDGED]).headings[0] == "gradient"


def test_layers_are_set_side_by_side():
    slow = NETWORK | {"variant": "toy2", "layers": [layer | {"time_us": 5.0} for layer in LAYERS]}
    table = layers_table([NETWORK, slow])
    assert table.headings == ("layer", "count", "toy1", "toy2")
    assert table.rows[0] == ("a", "3", "3.00", "5.00")
    assert table.rows[-1] == ("network", "4", "12.00", "12.00")


# What is printed


def test_the_answer_stands_before_the_tables_and_details_come_on_request():
    short = printed(print_document, document(PRODUCT, SLOW))
    order = [
        "toy1 takes the least",
        "Products side by side",
        "Time of each kernel",
        "Plans (",
        "Figures that",
    ]
    assert [short.index(words) for words in order] == sorted(short.index(words) for words in order)
    assert "with each pipe busy" not in short
    long = printed(
        lambda *given, **more: print_document(*given, details=True, **more), document(PRODUCT, SLOW)
    )
    assert long.count("with each pipe busy") == 2
    assert "More with --details" in short
    assert "More with --details" not in long


def test_five_products_with_gradients_fill_less_than_two_screens():
    kernels = [KERNEL, KERNEL | {"name": "grad_weight"}, CAST]
    product = JUDGED | {"kernels": kernels, "gradients": [GRADIENT, GRADIENT], "evidence": "word " * 20}
    five = [product | {"variant": f"toy{number}"} for number in range(5)]
    assert len(printed(print_document, document(*five)).splitlines()) < 100


def test_kernels_that_multiply_nothing_are_one_row_of_several_products():
    # Two casts: 2 x 1000 cycles, 2 x 3 us, and 6 of 9 us are 67 %. No cores and no pipe are those of both.
    three = PRODUCT | {"kernels": [CAST, KERNEL, CAST | {"name": "sum"}], "time_us": 9.0}
    table = kernels_table([three, PRODUCT], short=True)
    assert table.rows[1] == ("", "2 others", "2,000", "2.00", "1.00", "3.00", "6.00", "67%", "", "", "")
    assert [row[1] for row in table.rows] == ["grad_input", "2 others", "grad_input"]
    # One is not a sum, and goes by its own name.
    alone = kernels_table([PRODUCT | {"kernels": [KERNEL, CAST]}, PRODUCT], short=True)
    assert [row[1] for row in alone.rows] == ["grad_input", "cast", "grad_input"]


def test_kernels_that_multiply_nothing_are_one_column_of_a_network():
    # Two of 1000 cycles each in the first layer, none in the second; a column of its own for every one of a
    # dozen would fit no terminal. The sums stand last, though grad_input comes after them in the first layer.
    layers = [LAYERS[0] | {"kernels": [CAST, CAST | {"name": "sum"}, KERNEL]}, LAYERS[1]]
    network = NETWORK | {"layers": layers}
    table = network_table(network)
    assert table.headings == ("layer", "count", "grad_input", "others", "us", "x count us", "share")
    assert [row[2:4] for row in table.rows] == [("1,000 M   ", "2,000     "), ("1,000 M   ", "-"), ("", "")]
    # One kernel is not a sum, and has its own name.
    assert network_table(NETWORK) == layer_table(NETWORK)
    short = printed(print_document, document(network))
    assert "others: kernels of the call that multiply nothing" in short
    long = printed(lambda *given, **more: print_document(*given, details=True, **more), document(network))
    assert "others" not in long
    assert "others:" not in printed(print_document, document(NETWORK))


def test_details_have_every_kernel_and_what_moves_each_product():
    interval = {"shortest_us": 2.0, "longest_us": 4.0, "least_cycles": 1, "most_cycles": 2, "figures": 1}
    three = PRODUCT | {"kernels": [KERNEL, CAST, CAST | {"name": "sum"}]}
    both = [three | {"interval": interval | {"effects": []}}] * 2
    short = printed(print_document, document(*both))
    assert "others: kernels of the call that multiply nothing" in short
    assert "Interval:" not in short
    assert "2.00 .. 4.00" in short
    long = printed(lambda *given, **more: print_document(*given, details=True, **more), document(*both))
    assert "others" not in long
    assert long.count("Interval:") == 2
    # Of one product nothing is summed up.
    assert "others" not in printed(print_document, document(three))


def test_figures_of_several_products_are_a_line():
    lines = closing_of_all([PRODUCT, SLOW | {"evidence": "a guess"}])
    assert lines == [
        "toy2: Evidence: a guess.",
        "Figures that are assumed: toy1 1 of 4, toy2 1 of 4 (`ascendsim profiles NAME`).",
    ]
