"""Do tables and sentences say what a document holds, at its edges too? No call is run."""

import pytest

from ascendsim.ops.lowering.notes import ROWS_NOTE
from ascendsim.report.overview import product_table, products_table
from ascendsim.report.tables import (
    CALL,
    ERRORS,
    LAYER,
    SHOWN_ERRORS,
    busy_table,
    bytes_table,
    critical_path_table,
    definitions,
    gradient_table,
    layer_table,
    like_terms,
    occupation_table,
    size,
    time_table,
    value,
)
from ascendsim.report.tables import GRADIENT as GRADIENT_COLUMNS
from ascendsim.report.tables import KERNEL as KERNEL_COLUMNS
from ascendsim.report.words import (
    ROWS,
    arithmetic_line,
    closing_lines,
    common_lines,
    figures_line,
    interval_line,
    order_words,
    problem_line,
    product_line,
    terms_line,
)
from ascendsim.studies.table import microseconds, percent
from tests.helpers.report_samples import CAST, GRADIENT, KERNEL, NETWORK, PRODUCT, VERDICTS

INTERVAL = {
    "figures": 3,
    "shortest_us": 2.5,
    "longest_us": 1234.5,
    "least_cycles": 900,
    "most_cycles": 12345,
    "low_us": 2.25,
    "high_us": 2345.5,
    "effects": [
        {"figure": name, "shortest_us": 2.5, "longest_us": 3.25} for name in ("one", "two", "three", "four")
    ],
}


def error_row(**measured):
    return gradient_table({"gradients": [GRADIENT | measured]}).rows[0]


def test_one_kernel_has_no_sum():
    table = time_table(PRODUCT)
    assert table.rows == (("grad_input", "1,000", "1.00", "0.50", "1.50", "3.00", "2", "50%"),)
    assert not table.total
    assert time_table(PRODUCT | {"kernels": [KERNEL, CAST]}).total


def test_vector_cores_beside_those_of_the_cube_are_told_apart():
    # A plan says 32 cores; that the kernel then works on 96 is no contradiction.
    several = PRODUCT | {"kernels": [KERNEL | {"blocks": 32, "cores_used": 96, "cubes_used": 32}, CAST]}
    table = time_table(several)
    place = table.headings.index("cores")
    assert [row[place] for row in table.rows] == ["32+64", "2", ""]


def test_blocks_are_told_where_other_cores_work_than_so_many():
    # Two blocks of 32 wait for a core; 14 of 30 find nothing to do; the same with vector cores beside.
    waiting = KERNEL | {"blocks": 32, "cores_used": 30, "cubes_used": 30}
    idle = KERNEL | {"blocks": 30, "cores_used": 16, "cubes_used": 16}
    mixed = KERNEL | {"blocks": 24, "cores_used": 48, "cubes_used": 16}
    table = time_table(PRODUCT | {"kernels": [waiting, idle, mixed]})
    place = table.headings.index("cores")
    assert [row[place] for row in table.rows] == ["30 of 32", "16 of 30", "16+32 of 24", ""]


def test_of_several_kernels_each_has_its_share_of_the_calls_time():
    # 3 us of 4 and 1 us of 4; alone a kernel has all, which nobody needs to be told.
    both = PRODUCT | {"kernels": [KERNEL, CAST | {"time_us": 1.0}], "time_us": 4.0}
    table = time_table(both)
    place = table.headings.index("share")
    assert [row[place] for row in table.rows] == ["75%", "25%", ""]
    assert "share" not in time_table(PRODUCT).headings


def test_a_vector_kernel_uses_no_cube_and_multiplies_nothing():
    both = PRODUCT | {"kernels": [KERNEL, CAST]}
    assert time_table(both).rows[1][-1] == ""
    assert bytes_table(both).rows[1][1] == ""
    assert bytes_table(both).rows[0] == ("grad_input", "4,096", "2.0 KiB", "100 B", "0 B")


def test_a_pipe_that_no_kernel_uses_has_no_column():
    assert busy_table(PRODUCT).headings == ("kernel", "entry", "M", "MTE2", "S", "busiest")
    both = busy_table(PRODUCT | {"kernels": [KERNEL, CAST]})
    assert both.headings == ("kernel", "entry", "M", "MTE2", "V", "S", "busiest")
    # A pipe that this kernel does not use is blank; one that it hardly uses is not 0%.
    assert both.rows[0] == ("grad_input", "25%", "50%", "25%", "", "<1%", "M")
    assert both.left == {0, 6}


def test_a_kernel_of_no_cycles_has_shares_of_nothing():
    empty = KERNEL | {"cycles": 0, "entry_cycles": 0, "busy": {}, "critical_path": {}, "bound_by": "S"}
    product = PRODUCT | {"kernels": [empty]}
    assert busy_table(product).rows == (("grad_input", "0%", "S"),)
    assert critical_path_table(product).headings == ("kernel",)


def test_pipes_and_causes_come_in_the_order_of_the_machine():
    path = critical_path_table(PRODUCT)
    # The largest comes first in the entry, the entry of the kernel first in the table; 0 cycles are blank.
    assert path.headings == ("kernel", "entry", "M", "MTE2", "flag")
    assert path.rows == (("grad_input", "25%", "50%", "25%", ""),)
    waits = occupation_table(KERNEL)
    assert waits.headings == ("pipe", "entry", "busy", "waits for MTE2", "idle")
    assert waits.rows == (("M", "25%", "50%", "25%", "0%"), ("MTE2", "25%", "25%", "", "50%"))


def test_each_measure_is_printed_by_its_unit():
    assert error_row() == (
        *("grad_weight", "float16", "1.50e-04", "2.50e-01", "12.50%", "2.00", "100.00%"),
        *("fails mixed", "01234567"),
    )


def test_a_measure_that_a_format_lacks_is_blank():
    assert error_row(mere=None)[2] == ""


def test_a_measure_that_is_no_number_stays_a_word():
    assert error_row(mere="nan", max_ulp="inf")[2:6:3] == ("nan", "inf")


def test_without_any_finite_element_no_standard_is_passed_or_failed():
    assert error_row(verdicts=[])[-2] == "nothing to compare"


@pytest.mark.parametrize(
    ("passed", "said"),
    [((True, True), "all passed"), ((False, True), "fails st"), ((False, False), "none passed")],
)
def test_the_standards_are_told_by_those_that_fail(passed, said):
    verdicts = [verdict | {"passed": p} for verdict, p in zip(VERDICTS, passed, strict=True)]
    assert error_row(verdicts=verdicts)[-2] == said


def test_a_layer_without_a_kernel_of_others_has_a_dash():
    table = layer_table(NETWORK)
    assert table.headings == ("layer", "count", "grad_input", "cast", "us", "x count us", "share")
    assert table.rows[0] == ("a", "3", "1,000 M   ", "1,000 V   ", "3.00", "9.00", "75%")
    assert table.rows[1][3] == "-"
    assert table.rows[2] == ("network", "4", "", "", "", "12.00", "100%")
    assert table.total


TRANSDATA = CAST | {"name": "transdata_input", "op_type": "TransData"}


def test_layout_changes_and_casts_stand_apart_from_what_multiplies():
    # Each kernel takes 3 us, of which the launch is 1 and the entry 0.5; three change layouts, one casts.
    many = PRODUCT | {"kernels": [KERNEL, *[TRANSDATA] * 3, CAST], "time_us": 15.0}
    terms = {"launch": 1.0, "entry": 0.5, "core": 1.5, "layout": 9.0, "others": 3.0}
    assert like_terms(many) == terms
    assert sum(terms.values()) == many["time_us"]
    # In a network each layer counts as often as it is there.
    assert like_terms(NETWORK)["core"] == 4 * 1.5
    assert like_terms(NETWORK)["others"] == 3 * 3.0
    # The same core under five times the time: unlike is not compared with like.
    table = products_table([PRODUCT, many])
    at = table.headings.index("core")
    assert [row[at : at + 2] for row in table.rows] == [("1.50", "0.00"), ("1.50", "9.00")]
    assert "speed" not in " ".join(table.headings)


def test_the_note_on_rows_is_left_out_where_the_line_below_the_products_says_it():
    rows = PRODUCT | {"notes": [ROWS_NOTE, "of one"]}
    many = PRODUCT | {"variant": "toy2", "kernels": [KERNEL, TRANSDATA]}
    assert [line for line in common_lines([rows, many]) if ROWS in line]
    short = common_lines([rows, many], details=False)
    assert short == [arithmetic_line(PRODUCT), "Note on toy1: of one"]
    # Of one product, and where all change layouts or none, a note is a note.
    assert [line for line in common_lines([rows], details=False) if ROWS in line]
    assert common_lines([rows, rows], details=False) == [arithmetic_line(PRODUCT)]


def test_who_changes_no_layouts_is_named_with_what_to_compare():
    many = PRODUCT | {"variant": "toy2", "kernels": [KERNEL, TRANSDATA]}
    line = terms_line([PRODUCT, many])
    assert line.startswith(
        "Compare core, or ask for --layout NC1HWC0: toy1 is assumed to read and write rows for nothing."
    )
    three = [PRODUCT, PRODUCT | {"variant": "toy3"}, many]
    assert "toy1 and toy3 are assumed to read" in terms_line(three)
    assert terms_line([PRODUCT, PRODUCT]) == terms_line([many, many]) == ""


def test_no_layout_is_advised_that_spares_no_kernel():
    # A Transpose that folds images runs under the layout that was advised, too.
    folds = PRODUCT | {"variant": "toy2", "kernels": [KERNEL, CAST | {"op_type": "Transpose"}]}
    line = terms_line([PRODUCT, folds])
    assert line == "Compare core: toy1 runs no kernel that changes layouts."
    # There the note on rows is left to itself.
    rows = PRODUCT | {"notes": [ROWS_NOTE]}
    assert any(ROWS in line for line in common_lines([rows, folds], details=False))


def test_variants_that_differ_in_nothing_shown_share_a_row():
    one = {
        "product": "toy",
        "variant": "toy1",
        "default": True,
        "core_structure": "split",
        "cube_cores": 2,
        "vector_cores": 4,
        "cube_mhz": 1000,
        "figures": 4,
        "assumed": 1,
    }
    rows = [one, one | {"variant": "toy2", "default": False}, one | {"variant": "toy3", "cube_mhz": 900}]
    table = product_table(rows)
    assert [row[-1] for row in table.rows] == ["toy1*, toy2", "toy3*"]
    assert table.rows[0][:4] == ("toy", "split", "2 + 4", "1000")
    # Of many names each row says all that is true of its own, and fits a wide terminal.
    many = [one | {"variant": f"950DT_95{at:02}x", "default": False} for at in range(16)]
    shown = product_table(many).rows
    assert [len(row[-1].split(", ")) for row in shown] == [7, 7, 2]
    assert len({row[:-1] for row in shown}) == 1
    assert max(len(row[-1]) for row in shown) <= 160 - 65


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        (percent(0.00499), "<1%"),
        (percent(0.005), "0%"),  # half to even, as Python rounds
        (percent(1.0), "100%"),
        (microseconds(999.994), "999.99"),
        (microseconds(1000.5), "1,000"),
        (size(0), "0 B"),
        (size(1024), "1.0 KiB"),
        (size((1 << 20) - 1), "1,024.0 KiB"),
        (size(1 << 20), "1.0 MiB"),
        (size(1 << 30), "1.0 GiB"),
        (value(True), "True"),
        (value(99_999), "99999"),
        (value(100_000), "100,000"),
        (value(-100_000), "-100,000"),
        (value("block:16:RNE"), "block:16:RNE"),
        (value(((1, 2), [0.5])), "1, 2, 0.5"),
    ],
)
def test_numbers_at_the_edges(printed, expected):
    assert printed == expected


# Sentences


def test_the_problem_is_named_as_it_was_asked():
    assert problem_line({"input": (2, 16, 14), "padding": [1, (2, 3)], "dtype": "float16"}) == (
        "input 2x16x14, padding 1x2x3, dtype float16"
    )


@pytest.mark.parametrize(
    ("structure", "vector", "cores"),
    [
        ("split", 4, "2 cube and 4 vector cores"),
        ("unified", 0, "2 AI cores"),
        ("unified", 1, "2 AI cores and 1 vector cores"),
    ],
)
def test_cores_are_named_as_the_product_does(structure, vector, cores):
    product = PRODUCT | {"core_structure": structure, "cores": {"cube": 2, "vector": vector}}
    assert product_line(product) == f"toy (variant toy1): {cores}, cube clock 1000 MHz"


def test_an_estimate_computes_no_gradients():
    assert arithmetic_line(PRODUCT).endswith("accumulation model block:16:RNE; no gradients computed.")
    assert arithmetic_line(PRODUCT | {"order": "seed 7"}).endswith("a random legal order (seed 7).")
    assert order_words("arrival") == "arrival order"


def test_the_figures_are_counted():
    assert figures_line(PRODUCT) == (
        "Figures: 4 of the product, 1 of them assumed (`ascendsim profiles toy1`)."
    )


def test_figures_of_a_design_are_counted_apart():
    product = PRODUCT | {"figures": {"design": 3, "assumed": 1}}
    told = "3 of them a design, which nobody has measured, and 1 assumed (`ascendsim profiles toy1`)."
    assert figures_line(product) == f"Figures: 4 of the product, {told}"


def test_an_interval_names_the_three_figures_that_move_most():
    line = interval_line(PRODUCT | {"interval": INTERVAL})
    assert line.startswith(
        "Interval: 2.50 to 1,234.50 us (900 to 12,345 cycles) if the 3 numbers with a range"
    )
    # The call takes 3 us: 2.5 and 3.25 are half less and a quarter more.
    assert "most is moved by one (-0.50 to +0.25), two (-0.50 to +0.25), three (-0.50 to +0.25)." in line
    assert "four (" not in line
    assert line.endswith(
        "With the plan and the model's own error 2.25 to 2,345.50 us, in four cases of five."
    )
    still = interval_line(PRODUCT | {"interval": INTERVAL | {"effects": []}})
    assert "none moves this call" in still


def test_what_closes_a_product_depends_on_what_there_is_to_say():
    assert closing_lines(PRODUCT) == [figures_line(PRODUCT)]
    full = PRODUCT | {"interval": INTERVAL, "evidence": "measured once"}
    assert closing_lines(full) == [figures_line(full), interval_line(full), "Evidence: measured once."]


# Columns


@pytest.mark.parametrize("columns", [CALL, KERNEL_COLUMNS, LAYER, GRADIENT_COLUMNS, ERRORS])
def test_every_column_is_defined_once_and_in_words(columns):
    assert len({column.name for column in columns}) == len(columns)
    for column in columns:
        assert column.definition.endswith("."), column.name


def test_a_definition_ends_with_its_unit():
    told = definitions(KERNEL_COLUMNS)
    assert told["core_us"].endswith("[microseconds]")
    assert not told["name"].endswith("]")
    assert list(told) == [column.name for column in KERNEL_COLUMNS]


def test_the_shown_errors_are_some_of_all():
    assert [column.name for column in SHOWN_ERRORS] == [
        *("mere", "mare", "share_above_1e3", "max_ulp", "equal_bits_share", "verdicts")
    ]
    assert set(SHOWN_ERRORS) < set(ERRORS)
