"""Are pages and documents of hand-made records whole? No call is run."""

from types import SimpleNamespace

from ascendsim.report.document import Run, kernel_entry, run_document
from ascendsim.report.markdown import markdown_table, page
from ascendsim.report.tables import GRADIENT as GRADIENT_COLUMNS
from ascendsim.report.tables import SHOWN_ERRORS, TextTable, definitions
from tests.helpers.report_entries import GRADIENT, KERNEL, NETWORK, PRODUCT, document
from tests.helpers.report_samples import made_up_interval, timed_kernel
from tests.helpers.toy_profiles import toy_split

JUDGED = PRODUCT | {"gradients": [GRADIENT], "order": "program"}


# Pages


def test_a_bar_in_a_cell_ends_no_cell():
    table = TextTable("t", ("name", "count"), frozenset({0}), (("a | b", " 3"),))
    assert markdown_table(table).splitlines() == ["| name | count |", "| :-- | --: |", "| a \\| b | 3 |"]


def test_a_table_without_rows_is_a_head():
    assert markdown_table(TextTable("t", ("name",), frozenset(), ())) == "| name |\n| --: |"


def test_a_page_names_its_pictures_and_its_trace():
    files = [{"plot": "timeline.png", "trace": "trace.json", "note": "It leaves out 3 spans."}]
    text = page(document(PRODUCT), files)
    assert "![Which pipe is busy when, of one core of each kind](timeline.png)" in text
    assert "[trace.json](trace.json) opens in <https://ui.perfetto.dev>. It leaves out 3 spans." in text
    bare = page(document(PRODUCT), [{}])
    assert "![" not in bare
    assert "perfetto" not in bare
    layers = page(document(NETWORK), [{"plot": "layers.png"}])
    assert "![Time of each layer by kernel](layers.png)" in layers
    assert "where the cycles of each pipe went" not in layers


def test_a_page_has_no_empty_paragraph():
    for product in (PRODUCT, JUDGED, NETWORK):
        text = page(document(product), [{}])
        assert "\n\n\n" not in text
        assert text.endswith("\n")
        assert not text.endswith("\n\n")


def test_the_command_of_a_page_can_be_pasted():
    text = page(document(PRODUCT, command=["run", "--npz", "my tensors.npz"]), [{}])
    assert "`ascendsim run --npz 'my tensors.npz'`" in text


def test_what_all_products_share_is_said_once_under_a_heading():
    other = PRODUCT | {"variant": "toy2"}
    text = page(document(PRODUCT, other), [{}, {}])
    assert text.count("## What holds of all products") == 1
    assert text.count("Arithmetic: float16") == 1
    assert "**Products side by side" in text
    alone = page(document(PRODUCT), [{}])
    assert "## What holds of all products" not in alone
    assert "side by side" not in alone


def test_a_page_closes_with_the_assumed_figures():
    text = page(document(PRODUCT), [{}])
    head, _, tail = text.partition("## Figures assumed for toy1")
    assert "| `sync.flag_cycles` | 10 | 0 .. 20 | a \\| guess |" in tail
    assert "What the columns mean" in head
    certain = page(document(PRODUCT | {"assumed_figures": {}}), [{}])
    assert "Figures assumed" not in certain


def test_a_definition_of_what_no_table_shows_has_no_heading():
    columns = (*GRADIENT_COLUMNS, *SHOWN_ERRORS)
    given = definitions(columns) | {"rmse": "Square root."}
    text = page(document(JUDGED, definitions={"products.gradients": given}), [{}])
    assert "| MERE | `mere` |" in text
    assert "|  | `rmse` | Square root. |" in text


def test_a_page_of_gradients_names_the_standards():
    assert "Standards, and NaN and Inf where R(g) has them: st: R; mixed: S." in page(document(JUDGED), [{}])


# Documents of records


def test_an_interval_becomes_plain_values():
    profile = SimpleNamespace(
        product="toy",
        variant="toy1",
        core_structure="split",
        cores=SimpleNamespace(cube=2, vector=4),
        clock=SimpleNamespace(cube_mhz=1000),
        evidence="",
        figures={},
        assumed=dict,
    )
    result = SimpleNamespace(
        compute_dtype="float16", accumulation="seq:RNE", kernels=(), cycles=0, time_us=0.0, notes=()
    )
    made = run_document("t", {}, [Run(result, profile, interval=made_up_interval())], [])["products"][0]
    assert made["order"] is None
    assert made["interval"] == {
        "figures": 3,
        "shortest_us": 3.56,
        "longest_us": 5.16,
        "least_cycles": 120,
        "most_cycles": 210,
        "left_out": (),
        "effects": [
            # The rate shortens the call at its high end, 128, and stretches it at its low end, 32.
            {
                "figure": "paths.GM_L1.bytes_per_cycle",
                "shortest_us": 3.66,
                "shortest_at": 128,
                "longest_us": 5.16,
                "longest_at": 32,
            },
            # The flag stands at its high end: nothing is longer than the call as it is.
            {
                "figure": "sync.flag_cycles",
                "shortest_us": 4.06,
                "shortest_at": 0,
                "longest_us": 4.16,
                "longest_at": None,
            },
        ],
    }


def test_errors_are_defined_where_there_are_gradients():
    # Nothing was computed: a definition of MERE would tell a reader to look for it.
    assert "mere" not in run_document("t", {}, [], [])["definitions"]["products.gradients"]


def test_kernel_is_a_whole_entry():
    # The sample of these tests has what a real entry has.
    profile = toy_split()
    assert set(kernel_entry(timed_kernel(profile), profile)) == set(KERNEL)
