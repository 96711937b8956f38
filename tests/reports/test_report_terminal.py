"""Do a terminal and a notebook tell the answer first, and show what a document holds?"""

import io
import itertools
import random
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

from ascendsim.ops.results import Estimate, result_html
from ascendsim.profile import Figure, ShippedProduct
from ascendsim.report.document import profile_entry, variant_entry
from ascendsim.report.headline import figure_words, groups_apart, headline
from ascendsim.report.markdown import page
from ascendsim.report.overview import (
    errors_table,
    kernels_table,
    layers_table,
    network_table,
    plans_table,
    products_table,
)
from ascendsim.report.tables import layer_table
from ascendsim.report.terminal import (
    make_console,
    print_answers,
    print_document,
    print_products,
    print_profile,
    print_table,
    print_text,
)
from ascendsim.report.words import closing_of_all, own_errors_in_short, own_errors_line
from ascendsim.studies.records import MODEL
from ascendsim.studies.records import PLAN as PLAN_RISK
from ascendsim.studies.table import text_table
from tests.helpers.report_samples import (
    CAST,
    GRADIENT,
    KERNEL,
    LAYERS,
    NETWORK,
    PLAN,
    PRODUCT,
    document,
    timed_run,
)
from tests.helpers.toy_machines import toy_split

# --- Does a terminal show what hand-made documents hold, whatever its width? No call is run. -----------

JUDGED = PRODUCT | {"gradients": [GRADIENT], "order": "program"}


def printed(show, *given, width=100, terminal=False):
    """What a function of the report prints."""
    out = io.StringIO()
    show(*given, console=Console(file=out, width=width, force_terminal=terminal, highlight=False))
    return out.getvalue()


def test_a_document_is_printed_without_what_only_a_page_has_room_for():
    text = printed(print_document, document(JUDGED))
    for words in ("Time of each kernel", "Error of the gradients against float64", "Errors: against"):
        assert words in text
    assert "critical path" not in text
    estimate = printed(print_document, document(PRODUCT))
    assert "Errors: against" not in estimate
    assert "launch: what a task takes" in estimate
    network = printed(print_document, document(NETWORK))
    assert "Cycles of each kernel of one layer" in network
    assert "launch: what a task takes" not in network


def test_what_has_nothing_to_say_takes_no_line():
    # Two variants of one product have no line about what was measured of several: nor has it a blank one.
    text = printed(print_document, document(PRODUCT, PRODUCT))
    assert "Products side by side" in text
    assert "\n\n\n" not in text


def test_brackets_are_text_and_no_style():
    table = text_table("", ("[bold]",), frozenset({0}), (("[/red] ulp [g]",),))
    out = printed(lambda console: print_table(console, table))
    assert "[bold]" in out
    assert "[/red] ulp [g]" in out


@pytest.mark.parametrize("width", [60, 100, 140])
@pytest.mark.parametrize("seed", range(30))
def test_no_word_of_a_random_table_is_cut_off(seed, width):
    # rich takes from the widest text first, also what its longest word needs, and cuts off what is behind.
    rng = random.Random(seed)
    columns = rng.randint(2, 6)
    left = frozenset(index for index in range(columns) if rng.random() < 0.6)
    words = itertools.count()

    def cell(index):
        count = rng.randint(1, 5) if index in left else 1
        return " ".join(f"{'w' * rng.randint(1, 40)}{next(words)}" for _ in range(count))

    rows = tuple(tuple(cell(index) for index in range(columns)) for _ in range(3))
    table = text_table("", tuple(f"head{index}" for index in range(columns)), left, rows)
    shown = printed(lambda console: print_table(console, table), width=width, terminal=True).split()
    # Beside what names the rows there is half of the width, in which a longer word is folded.
    every = {word for row in rows for words in row for word in words.split()}
    assert {word for word in every if len(word) + 2 <= width // 2} <= set(shown)


def test_numbers_are_never_cut_off_on_a_narrow_terminal():
    table = text_table("", ("text", "number"), frozenset({0}), (("word " * 40, "123,456,789"),))
    narrow = printed(lambda console: print_table(console, table), width=20, terminal=True)
    assert "123,456,789" in narrow
    assert max(len(line) for line in narrow.splitlines()) <= 100  # as in a pipe, where paragraphs are as wide
    piped = printed(lambda console: print_table(console, table), width=20)
    assert sum("word" in line for line in piped.splitlines()) == 1


def test_names_are_never_cut_off_on_a_narrow_terminal():
    # 13 names of 8 letters and two blanks each want 130 columns: two blocks, both with the first two.
    names, words = tuple(f"column{at:02}" for at in range(13)), "mapping interleaved, 128xallx144"
    table = text_table("", (*names, "text"), frozenset(range(14)), ((*names, words),))
    narrow = printed(lambda console: print_table(console, table), width=100, terminal=True)
    assert [narrow.count(name) for name in names] == [4, 4, *[2] * 11]
    assert [narrow.count(word) for word in words.split()] == [1, 1, 1]
    assert max(map(len, narrow.splitlines())) <= 100


def test_a_paragraph_breaks_at_blanks_alone():
    out = printed(lambda console: print_text(console, "grad-weight " * 3), width=16)
    assert out == "grad-weight\ngrad-weight\ngrad-weight\n"


def test_a_console_is_as_wide_as_its_terminal_and_plain_in_a_pipe(monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert make_console().width == 100
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", "72")
    assert make_console().width == 72


def profile_of(**figures):
    return SimpleNamespace(
        product="toy",
        variant="toy1",
        evidence="none",
        figures=figures,
        sources={"S1": "a book"},
        assumed=dict,
        core_structure="split",
        cores=SimpleNamespace(cube=2, vector=4),
        clock=SimpleNamespace(cube_mhz=1000),
    )


def test_a_figure_is_printed_with_its_range_and_its_source():
    figures = {
        "rate": Figure(4, "S1", "assumed", range=(1, 8), note="a guess"),
        "size": Figure(100_000, "S1", "measured"),
    }
    lines = printed(print_profile, profile_of(**figures)).splitlines()
    assert lines[:2] == ["toy (variant toy1)", "Evidence: none"]
    assert lines[2:6] == [
        "rate               4  (assumed, 1 .. 8)",
        "    S1; a guess",
        "size         100,000  (measured)",
        "    S1",
    ]
    assert lines[-1] == "    S1: a book"
    wrapped = printed(print_profile, profile_of(rate=Figure(4, "word " * 30, "measured")), terminal=True)
    assert sum("word" in line for line in wrapped.splitlines()) > 1


def test_a_variant_is_marked_as_what_the_plain_name_means():
    product = ShippedProduct("toy", "toy1", ("toy1", "toy2"), "")
    entry = variant_entry(product, profile_of(rate=Figure(4, "S1", "measured")))
    assert entry["default"]
    assert (entry["figures"], entry["assumed"]) == (1, 0)
    text = printed(print_products, [entry])
    assert "toy1*" in text
    assert "toy: none" in text


def test_the_figures_of_a_product_become_plain_values():
    made = profile_entry(profile_of(model=Figure(float("inf"), "S1", "assumed", range=(1, float("inf")))))
    assert made["sources"] == {"S1": "a book"}
    assert made["figures"]["model"] == {
        "value": "inf",
        "confidence": "assumed",
        "range": [1, "inf"],
        "source": "S1",
        "note": "",
    }


# Answers of the interface

ACCEPTED = {
    "call": "mine",
    "product": "910B",
    "rules": "documented",
    "status": 0,
    "expected": None,
    "as_expected": True,
    "empty": False,
    "compute_dtype": "float16",
    "workspace_bytes": 16_777_216,
    "warnings": ["be careful"],
}
REFUSED = ACCEPTED | {
    "status": 161002,
    "name": "ACLNN_ERR_PARAM_INVALID",
    "check": "3 (ranks)",
    "reason": "no such rank",
    "as_expected": False,
}


def test_answers_are_printed_call_by_call():
    text = printed(print_answers, [[ACCEPTED], [REFUSED | {"call": "yours"}]], {"mine.toml": "my rules"}, "")
    assert text.index("mine\n") < text.index("yours\n") < text.index("Rules mine.toml: my rules.")
    assert "accepted, computes in float16, workspace 16,777,216 bytes; warning: be careful" in text
    assert "ACLNN_ERR_PARAM_INVALID, check 3 (ranks): no such rank" in text
    assert "(!)" not in text  # nobody said what to expect
    assert "Where they differ" not in text
    assert "Left out" not in text


def test_an_unexpected_answer_is_marked():
    rows = [ACCEPTED | {"expected": 0}, REFUSED | {"expected": 0}]
    lines = printed(print_answers, [rows], {}, "").splitlines()
    assert lines[0] == "mine, expected 0"
    assert sum("161002 (!)" in line for line in lines) == 1
    assert not any("0 (!)" in line for line in lines if "161002" not in line)


def test_the_two_usual_rule_sets_are_set_against_each_other():
    titles = {"documented": "pages", "shipped": "code"}
    text = printed(print_answers, [[ACCEPTED | {"empty": True}]], titles, "310 by shipped")
    assert "empty, writes zeros" in text
    assert "Where they differ, documented is what is promised and shipped what happens." in text
    assert "Left out, without the operator: 310 by shipped (--product asks them)." in text


# -------------------------------------------------------------------------------------------------------
# Is the answer of a run told first, in a sentence and in tables that have all products? No call is run.
# -------------------------------------------------------------------------------------------------------

SLOW = PRODUCT | {"variant": "toy2", "time_us": 6.0, "cube_mhz": 500}
OVERVIEW_JUDGED = PRODUCT | {"gradients": [GRADIENT]}


# The sentence


def test_one_product_takes_so_long_and_is_busy_there():
    assert headline([PRODUCT]) == (
        "toy1 takes 3.00 us: launch 1.00, entry 0.50, cores 1.50. grad_input takes all of it; the busiest "
        "of its pipes is M, 50% of its cycles, the next MTE2, 25%."
    )


def with_interval(product, name, low, high, *figures):
    return product | {"variant": name, "interval": {"low_us": low, "high_us": high, "dominant": figures}}


def test_without_intervals_the_order_is_that_of_point_estimates_and_says_so():
    line = headline([SLOW, PRODUCT])
    assert line.startswith(
        "By point estimates alone, the fastest first: toy1 3.0 us, toy2 6.0 us; --interval"
    )
    assert "times as long" not in line
    many = [PRODUCT | {"variant": f"toy{number}"} for number in range(9)]
    assert "toy5 3.0 us and 3 more; " in headline(many)


def ratio_of(first, second, low, high, dominant="", of=(1,)):
    """The entry of a ratio between two products."""
    names = {"first": first["variant"], "second": second["variant"]}
    return names | {"low": low, "high": high, "dominant": dominant, "of": of}


def test_products_whose_ratio_may_be_one_are_not_ordered():
    fast = with_interval(PRODUCT, "a", 2.0, 4.0, "launch.per_core_us", "paths.GM_L1.turning_cycles")
    wide = with_interval(SLOW, "b", 5.0, 427.0, "vector.tap_block_cycles")
    third = with_interval(SLOW, "c", 5.5, 7.0, "sync.flag_cycles")
    ratios = [
        ratio_of(wide, fast, 0.01, 0.5),
        ratio_of(wide, third, 0.5, 2, "vector.tap_block_cycles", (0,)),
        ratio_of(fast, third, 1.5, 3),
    ]
    line = headline([wide, fast, third], ratios)
    assert line.startswith(
        "Fastest: a 3.0 us (2.0 .. 4.0; launch per core, GM_L1 turning). Then: b 6.0 us (5.0 .. 427; vector "
        "tap block) and c 6.0 us (5.5 .. 7.0; sync flag) cannot be ordered: measuring "
        "`vector.tap_block_cycles` of b would settle most. On a grad_input "
    )

    def settled(dominant, of):
        slow = with_interval(SLOW, "b", 3, 9, "sync.flag_cycles")
        return headline([fast, slow], [ratio_of(fast, slow, 0.5, 3, dominant, of)])

    # What moves the ratio need not move either time most, and may be no figure.
    assert "measuring `x.y` of a and b would settle most" in settled("x.y", (0, 1))
    assert "a measured call on b would settle most" in settled(MODEL, (1,))
    assert "measured calls on a and b would settle most" in settled(MODEL, (0, 1))
    assert "knowing b's own plan would settle" in settled(PLAN_RISK, (1,))
    # Two that are apart are said to be so, though a third hangs them together; it contests the first place.
    three = [
        with_interval(PRODUCT, "a", 2, 4),
        with_interval(SLOW, "b", 3, 9),
        with_interval(SLOW, "c", 5, 99),
    ]
    hung = [
        ratio_of(*three[:2], 0.9, 3, "x.y"),
        ratio_of(three[0], three[2], 1.2, 40),
        ratio_of(*three[1:], 0.5, 40, "v.w"),
    ]
    assert "and c 6.0 us (5.0 .. 99) cannot be ordered, but a before c: measuring `x.y` of b" in (
        headline(three, hung)
    )
    # Where nothing is sure nobody is the fastest.
    assert "astest" not in settled("x.y", (1,))


def test_intervals_that_overlap_by_what_both_share_are_ordered():
    fast, slow = with_interval(PRODUCT, "a", 2, 9, "x.y"), with_interval(SLOW, "b", 4, 18, "x.y")
    for products, ends in (((fast, slow), (1.9, 2.1)), ((slow, fast), (1 / 2.1, 1 / 1.9))):
        line = headline(products, [ratio_of(*products, *ends, "v.w")])
        assert line.startswith(
            "Fastest: a 3.0 us (2.0 .. 9.0; x y). Then: b 6.0 us (4.0 .. 18; x y); 1.9 to 2.1 times as long "
            "as a."
        )


def test_each_group_is_surely_before_all_after_it_and_no_group_falls_apart():
    for seed in range(200):
        pick = random.Random(seed)
        ranked = list(range(6))
        pick.shuffle(ranked)
        place = {one: at for at, one in enumerate(ranked)}
        sure = {(a, b) for a in ranked for b in ranked if place[a] < place[b] and pick.random() < 0.8}
        groups = groups_apart(ranked, lambda *pair, sure=sure: pair in sure)
        assert [one for group in groups for one in group] == ranked
        # By the definition: of all cuts those that nothing unsure crosses.
        cuts = list(itertools.accumulate(map(len, groups)))[:-1]
        assert cuts == [at for at in range(1, 6) if set(itertools.product(ranked[:at], ranked[at:])) <= sure]


def test_a_figure_is_told_in_words():
    assert figure_words("launch.per_core_us") == "launch per core"
    assert figure_words("paths.GM_L1.transposing_bytes_per_cycle") == "GM_L1 transposing"
    assert figure_words("links.memory.nominal_tb_per_s") == "memory nominal"
    assert figure_words("vector.repeat_cycles.unary") == "repeat unary"
    assert figure_words("alone") == "alone"


def test_of_a_network_the_layer_with_the_largest_share_is_named():
    # Layer a has 9 of 12 us; its two kernels take equally long, so that the first stands for it.
    assert "Layer a (3 of them) takes 75% of it, grad_input the longest of its kernels; " in headline(
        [NETWORK]
    )


def test_a_call_of_no_kernels_has_a_sentence_too():
    nothing = PRODUCT | {"kernels": [], "time_us": 0.0, "launch_us": 0.0, "entry_us": 0.0, "core_us": 0.0}
    assert headline([nothing]).endswith("cores 0.00. No kernel runs.")
    assert headline([nothing, nothing]).endswith("are apart. No kernel runs.")


# The tables


def test_a_kernel_has_the_pipe_that_is_busy_longest():
    table = kernels_table([PRODUCT | {"kernels": [KERNEL, CAST]}])
    assert table.headings == (
        *("kernel", "cycles", "launch", "entry", "core", "us", "share", "cores", "cube", "busiest", "next"),
    )
    assert [row[-2:] for row in table.rows] == [("M 50%", "MTE2 25%"), ("V 100%", ""), ("", "")]
    assert table.total


def test_products_of_one_clock_are_set_below_each_other_with_their_cycles():
    two = [PRODUCT | {"kernels": [KERNEL, CAST]}, PRODUCT | {"variant": "toy3"}]
    table = kernels_table(two)
    assert table.headings[:3] == ("product", "kernel", "cycles")
    # Each product is named once, and what the products table says already, the sums, is left out.
    assert [row[:2] for row in table.rows] == [("toy1", "grad_input"), ("", "cast"), ("toy3", "grad_input")]
    assert not table.total
    assert table.left == {0, 1, 10, 11}
    # One kernel alone has all of the time: it has the column for the sake of the others.
    assert {len(row) for row in table.rows} == {len(table.headings)}
    assert table.rows[2][table.headings.index("share")] == "100%"


def test_cycles_of_different_clocks_are_not_set_side_by_side():
    table = kernels_table([PRODUCT, SLOW])
    assert "cycles" not in table.headings
    assert "cycles" not in table.title
    assert table.rows[0][:3] == ("toy1", "grad_input", "1.00")
    assert table.left == {0, 1, 8, 9}
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
    other = OVERVIEW_JUDGED | {"variant": "toy2"}
    assert [row[0] for row in errors_table([OVERVIEW_JUDGED, other]).rows] == ["all 2"]
    differing = OVERVIEW_JUDGED | {"variant": "toy3", "gradients": [GRADIENT | {"sha256": "f" * 16}]}
    assert [row[0] for row in errors_table([OVERVIEW_JUDGED, differing, other]).rows] == [
        "toy1, toy2",
        "toy3",
    ]
    assert errors_table([OVERVIEW_JUDGED]).headings[0] == "gradient"


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
        "By point estimates",
        "Products side by side",
        "Time of each kernel",
        "Arithmetic:",
        "launch, entry, core: of",
    ]
    assert [short.index(words) for words in order] == sorted(short.index(words) for words in order)
    assert "with each pipe busy" not in short
    assert "Plans (" not in short
    assert "Figures that" not in short
    long = printed(
        lambda *given, **more: print_document(*given, details=True, **more), document(PRODUCT, SLOW)
    )
    assert long.count("with each pipe busy") == 2
    assert long.count("Plans (") == long.count("Figures that") == 1
    assert "More with --details" in short
    assert "More with --details" not in long


def test_five_products_with_gradients_fill_a_screen():
    kernels = [KERNEL, KERNEL | {"name": "grad_weight"}, CAST, CAST]
    product = OVERVIEW_JUDGED | {
        "kernels": kernels,
        "gradients": [GRADIENT, GRADIENT],
        "evidence": "word " * 20,
    }
    figures = "vector.tap_block_cycles", "launch.per_core_us"
    five = [with_interval(product, f"950PR_958{number}", 22.5, 389.5, *figures) for number in range(5)]
    unsure = [ratio_of(*pair, 0.5, 2, figures[0], (0, 1)) for pair in itertools.combinations(five, 2)]
    made = document(*five, measured_in_short="word " * 36, ratios=unsure)
    lines = printed(print_document, made).splitlines()
    assert len(lines) <= 60
    assert max(map(len, lines)) <= 100


def test_of_several_products_the_kernels_of_the_cube_have_rows():
    # What the others take stands in the products' table.
    three = PRODUCT | {"kernels": [CAST, KERNEL, CAST | {"name": "sum"}], "time_us": 9.0}
    table = kernels_table([three, PRODUCT], cube=True)
    assert [row[:2] for row in table.rows] == [("toy1", "grad_input"), ("toy1", "grad_input")]
    # Where nothing multiplies, what there is.
    table = kernels_table([PRODUCT | {"kernels": [CAST]}, PRODUCT], cube=True)
    assert [row[1] for row in table.rows] == ["cast", "grad_input"]


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
    joined = {"low_us": 2.0, "high_us": 4.0, "dominant": ["launch.per_core_us"]}
    interval = joined | {
        "shortest_us": 2.0,
        "longest_us": 4.0,
        "least_cycles": 1,
        "most_cycles": 2,
        "figures": 1,
    }
    three = PRODUCT | {"kernels": [KERNEL, CAST, CAST | {"name": "sum"}]}
    both = [three | {"interval": interval | {"effects": []}}] * 2
    alike = [ratio_of(*both, 1.0, 1.0, "")]
    short = printed(print_document, document(*both, ratios=alike))
    assert "sum " not in short
    assert "Interval:" not in short
    assert "2.0 .. 4.0" in short
    long = printed(
        lambda *given, **more: print_document(*given, details=True, **more), document(*both, ratios=alike)
    )
    assert "sum " in long
    assert long.count("Interval:") == 2


def test_figures_of_several_products_are_a_line():
    both = [PRODUCT, SLOW | {"evidence": "a guess"}]
    assert closing_of_all(both) == []
    lines = closing_of_all(both, details=True)
    assert lines == [
        "toy2: Evidence: a guess.",
        "Figures that are assumed: toy1 1 of 4, toy2 1 of 4 (`ascendsim profiles NAME`).",
    ]


# --- What does a notebook show of a result? ------------------------------------------------------------


class Balanced(HTMLParser):
    """Fails at a tag that closes another one than the last that is open."""

    def __init__(self):
        super().__init__()
        self.open, self.text = [], []

    def handle_starttag(self, tag, attrs):
        del attrs
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def words(html):
    parser = Balanced()
    parser.feed(html)
    assert not parser.open
    return parser.text


def result():
    return timed_run(toy_split()).result


def test_a_result_says_its_time_its_gradients_and_its_kernels():
    text = words(result()._repr_html_())
    # Twice 80 cycles of a nanosecond, and a launch of 2 us each.
    assert text[:3] == [
        "toy_split: 160 cycles, 4.16 us with launches",
        "float16 in the cube, accumulation model block:16:RNE",
        "grad_weight: 2x2, float16",
    ]
    assert "executed in program order" in text
    at = text.index("plan") + 1
    # M is busy in 50 of 80 cycles; 1000 multiply-adds in 80 cycles of 2 cubes with 4096 each.
    assert text[at : at + 6] == ["grad_weight", "80", "2.08", "2", "M 62%", "0%"]
    assert text[-3:] == ["Notes", "nothing is real", "one core in two"]


def test_an_estimate_has_no_gradients_to_show():
    made = result()
    estimate = Estimate("toy", "toy_split", "float16", "block:16:RNE", made.kernels, ())
    text = words(estimate._repr_html_())
    assert not any("grad_weight:" in word or "order" in word or word == "Notes" for word in text)


def test_a_result_without_times_shows_none():
    text = words(replace(result(), kernels=(), timing=False)._repr_html_())
    assert text[0] == "toy_split"
    assert "no instructions executed" in text
    assert "kernel" not in text
    assert not any("cycles" in word for word in text)


def test_a_masked_gradient_is_left_out():
    both = replace(result(), grad_input=np.zeros((1, 3), np.float32))
    assert "grad_input: 1x3, float32" in words(both._repr_html_())
    assert "grad_input" not in "".join(words(result()._repr_html_()))


def test_the_repr_of_a_result_is_a_few_lines():
    # Not the programs of its kernels, which are megabytes.
    assert len(repr(result())) < 2000


def test_what_a_call_says_is_text_and_no_tag():
    html = result_html("<b>", ["a & b"], [], ["<script>"])
    assert not re.search("<script|<b><", html)
    assert words(html) == ["<b>", "a & b", "Notes", "<script>"]


def test_a_printed_result_has_a_line_for_each_gradient_and_kernel():
    made = result()
    head, *lines = str(made).splitlines()
    assert head.startswith(f"{made.variant}: {made.compute_dtype} in the cube")
    shown = [name for name in ("grad_input", "grad_weight", "grad_bias") if getattr(made, name) is not None]
    names = [line.partition(":")[0] for line in lines]
    assert names == [*shown, *(kernel.name for kernel in made.kernels)]
    assert all(len(line) < 100 for line in lines)


def judged(name, *kinds):
    shares = [
        {"own": not of, "kind": kind, "of": of or "910B", "tried": 0, "inside": 0} for kind, of in kinds
    ]
    return {"variant": name, "interval": {"model": {"shares": shares}}}


def test_products_without_an_own_error_of_the_model_are_named():
    none, some, known = (
        judged("a", ("dx", "910"), ("dw", "910B")),
        judged("b", ("dx", "910"), ("dw", "")),
        "c",
    )
    whole = "No own error of the model is known of"
    assert own_errors_line(none) == f"{whole} any kernel on a (the 910's and the 910B's stand in)."
    assert own_errors_line(some) == f"{whole} dx on b (the 910's stands in)."
    assert (
        own_errors_line(judged(known, ("dx", ""))) == own_errors_in_short([judged(known, ("dx", ""))]) == ""
    )
    assert own_errors_in_short([none, some, judged(known, ("dx", ""))]) == (
        "No own error of the model is known on a, nor of all kernels on b: errors of others stand in "
        "(--details)."
    )
