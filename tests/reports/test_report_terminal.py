"""Does a terminal show what hand-made documents hold, whatever its width? No call is run."""

import io
import itertools
import random
import sys
from types import SimpleNamespace

import pytest
from rich.console import Console

from ascendsim.profile import Figure, Product
from ascendsim.report.answers import print_answers
from ascendsim.report.document import profile_entry, variant_entry
from ascendsim.report.tables import TextTable
from ascendsim.report.terminal import (
    make_console,
    print_document,
    print_products,
    print_profile,
    print_table,
    print_text,
)
from tests.helpers.report_entries import GRADIENT, NETWORK, PRODUCT, document

JUDGED = PRODUCT | {"gradients": [GRADIENT], "order": "program"}


def printed(show, *given, width=100, terminal=False):
    """What a function of the report prints."""
    out = io.StringIO()
    show(*given, console=Console(file=out, width=width, force_terminal=terminal, highlight=False))
    return out.getvalue()


def test_a_document_is_printed_without_what_only_a_page_has_room_for():
    text = printed(print_document, document(JUDGED))
    for words in ("Time of each kernel", "Error of the gradients against float64", "Errors are against"):
        assert words in text
    assert "critical path" not in text
    estimate = printed(print_document, document(PRODUCT))
    assert "Errors are against" not in estimate
    assert "launch: what a task takes" in estimate
    network = printed(print_document, document(NETWORK))
    assert "Cycles of each kernel of one convolution" in network
    assert "launch: what a task takes" not in network


def test_what_has_nothing_to_say_takes_no_line():
    # Two variants of one product have no line about what was measured of several: nor has it a blank one.
    text = printed(print_document, document(PRODUCT, PRODUCT))
    assert "Products side by side" in text
    assert "\n\n\n" not in text


def test_brackets_are_text_and_no_style():
    table = TextTable("", ("[bold]",), frozenset({0}), (("[/red] ulp [g]",),))
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
    table = TextTable("", tuple(f"head{index}" for index in range(columns)), left, rows)
    shown = printed(lambda console: print_table(console, table), width=width, terminal=True).split()
    assert {word for row in rows for words in row for word in words.split()} <= set(shown)


def test_numbers_are_never_cut_off_on_a_narrow_terminal():
    table = TextTable("", ("text", "number"), frozenset({0}), (("word " * 40, "123,456,789"),))
    narrow = printed(lambda console: print_table(console, table), width=20, terminal=True)
    assert "123,456,789" in narrow
    assert max(len(line) for line in narrow.splitlines()) <= 100  # as in a pipe, where paragraphs are as wide
    piped = printed(lambda console: print_table(console, table), width=20)
    assert sum("word" in line for line in piped.splitlines()) == 1


def test_names_are_never_cut_off_on_a_narrow_terminal():
    # 13 names of 8 letters and two blanks each want 130 columns; texts of words are broken between these.
    names, words = tuple(f"column{at:02}" for at in range(13)), "mapping interleaved, 128xallx144"
    table = TextTable("", (*names, "text"), frozenset(range(14)), ((*names, words),))
    narrow = printed(lambda console: print_table(console, table), width=100, terminal=True)
    assert all(narrow.count(name) == 2 for name in names)
    assert [narrow.count(word) for word in words.split()] == [1, 1, 1]
    assert not any(words in line for line in narrow.splitlines())


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
    product = Product("toy", "toy1", ("toy1", "toy2"), "")
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
