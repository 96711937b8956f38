"""Is the page of the largest study small enough to open quickly, and what is left out of a larger one?"""

from itertools import product

import pytest

from ascendsim import load_profile
from ascendsim.errors import DataError
from ascendsim.frozen import FrozenMap
from ascendsim.profile import Cost
from ascendsim.report.page import html as html_module
from ascendsim.report.page.html import LARGEST_BYTES, render, write_page
from ascendsim.report.page.records import Page, Picture, Section
from ascendsim.report.studies.beside import codesign_page
from ascendsim.report.studies.hardware import hardware_page
from ascendsim.report.studies.precision import precision_page
from ascendsim.report.tables import TextTable
from ascendsim.studies.codesign import Design, DesignAnswer, DesignQuestion
from ascendsim.studies.hardware.plans import enlargings
from ascendsim.studies.hardware.records import Doubt, Gain, HardwareAnswer, LayerGain, Question
from ascendsim.studies.modes.choice import PrecisionStudy
from ascendsim.studies.modes.records import CaseErrors, GradientError, Histogram, ModeError, Share
from ascendsim.workloads import load_workload, workload_names

STARTS = ("warm", "cold", "handed", "chained", "network")
DTYPES = ("float16", "bfloat16", "float32")
LEFT_OUT = "Left out, as the page would be too large"


def every(variant, network, copies=1):
    """The answer of `study hardware --every` under every start, with numbers as long as they get."""
    profile, workload = load_profile(variant), load_workload(network)
    changes = enlargings(profile)
    layers = tuple(
        LayerGain(f"{row.name}{'x' * copy}", row.count, 98765.43, 98765.43, 98765.43, 98765.43)
        for copy in range(copies)
        for row in workload.layers
    )
    gains = tuple(
        Gain(
            change.name,
            FrozenMap({path: (1, new) for path, new in change.on(profile).items()}),
            start,
            layers,
            Doubt(-0.0123, 0.0123, 28),
        )
        for change in changes
        for start in STARTS
    )
    asked = Question(workload.title, variant, (), tuple(changes), STARTS)
    return HardwareAnswer(asked, variant, "0" * 64, 28, tuple(gains), FrozenMap())


def measured(network, scales, data):
    """The answer of `study precision` of a network over all axes, with errors as long as they are printed."""
    errors = tuple(
        GradientError(name, *(1.23e-4,) * 6, 0.123, 0.0, 0.987, (("st", "why"), ("mixed", "why")))
        for name in ("grad_input", "grad_weight")
    )
    models = ("seq:RNE", "align:16:F24:RZ:acc", "block:16:RNE")
    modes = tuple(
        ModeError(dtype, (number,), dtype, model, scale, 1234.56, errors)
        for dtype, number, model, scale in product(
            ("float16", "bfloat16", "float32"), range(4), models, scales
        )
    )
    shares = tuple(
        Share(tensor, dtype, scale, 0.1, 0.1, 0.1)
        for tensor in ("grad_output", "input", "weight")
        for dtype, scale in product(
            ("float16", "bfloat16", "float32"), scales if tensor == "grad_output" else (1.0,)
        )
    )
    histograms = (Histogram("grad_output", -60, (1000,) * 70, 0, 0),)
    cases = tuple(
        CaseErrors(f"{row.name}, {kind}", row.count, modes, shares, histograms)
        for kind in data
        for row in load_workload(network).layers
    )
    return PrecisionStudy(network, "950PR_9599", 2.0**-10, len(models), data, cases)


@pytest.mark.parametrize("variant", ["910B2", "950PR_9599"])
def test_every_figure_of_every_network_under_every_start_fits_a_page(variant):
    longest = max(workload_names(), key=lambda name: len(load_workload(name).layers))
    answer = every(variant, longest)
    text = render(hardware_page(answer, {}))
    assert len(text.encode()) <= LARGEST_BYTES
    # Rows of all layers: those of the collapsed section are on it whole.
    assert text.count("<tr>") > len(answer.gains) * len(load_workload(longest).layers)


def test_many_designs_fit_a_page():
    asked = DesignQuestion("a test", "910B2", (), (), Cost("cores.cube"))
    name = "cores.cube=x2 buffers.L0C.capacity_bytes=x2 links.memory.nominal_tb_per_s=x1.5"
    designs = tuple(Design(f"{name} {at}", {}, float(at), 12345.6, 12345.6 - at) for at in range(4096))
    page = codesign_page(DesignAnswer(asked, "910B2", "0" * 64, 28, designs), {})
    assert len(render(page).encode()) <= LARGEST_BYTES


def test_a_page_of_more_keeps_its_answer_and_says_what_is_left_out(tmp_path):
    # 29 layers, each under two names: 655 tables of 59 rows are more than 5 MB.
    page = hardware_page(every("910B2", "yolov5s", copies=2), {})
    assert len(render(page).encode()) > LARGEST_BYTES
    write_page(tmp_path / "page.html", page)
    text = (tmp_path / "page.html").read_text()
    assert 0.9 * LARGEST_BYTES < len(text.encode()) <= LARGEST_BYTES
    assert text.count(LEFT_OUT) == 1
    assert page.answer in text.replace("&#39;", "'")


def test_precision_of_a_network_over_all_axes_fits_a_page(tmp_path):
    study = measured("yolov5s", (1.0, 256.0, 4096.0, 65536.0), ("normal, seed 0", "long-tailed, seed 0"))
    write_page(tmp_path / "page.html", precision_page(study, {}))
    text = (tmp_path / "page.html").read_text()
    assert len(text.encode()) <= LARGEST_BYTES
    # 58 cases x 144 modes x 2 gradients are 16,704 rows: some of them are left out.
    assert text.count(LEFT_OUT) == 1


# ---- What is left out

ROWS = tuple((f"row {at}", "x" * 50) for at in range(40))
FIRST = TextTable("First", ("name", "text"), frozenset({0}), ROWS, total=True)
PAGE = Page(
    "Title",
    "The answer.",
    (
        Section("Open", (), (), (FIRST,)),
        Section("Closed", ("Why.",), (Picture("<svg></svg>", "A picture."),), (FIRST, FIRST), collapsed=True),
        Section("Last", (), (Picture("<svg></svg>", "Another."),), (FIRST,), collapsed=True),
    ),
)


def written(folder, monkeypatch, most):
    monkeypatch.setattr(html_module, "LARGEST_BYTES", most)
    write_page(folder / "page.html", PAGE)
    return (folder / "page.html").read_text()


def test_a_page_that_fits_is_written_whole(tmp_path, monkeypatch):
    whole = render(PAGE)
    assert written(tmp_path, monkeypatch, len(whole.encode())) == whole


@pytest.mark.parametrize("less", [1, 2_000, 4_000, 8_000, 12_000])
def test_details_are_left_out_from_the_end_and_only_they(tmp_path, monkeypatch, less):
    whole = render(PAGE)
    most = len(whole.encode()) - less
    text = written(tmp_path, monkeypatch, most)
    assert len(text.encode()) <= most
    # What is open stays: the answer, and the first table with its total.
    before, _, after = text.partition("<details>")
    assert before == whole.partition("<details>")[0]
    assert LEFT_OUT in after
    # The details that are kept are a beginning of each section's.
    assert after.index("Why.") < after.index(LEFT_OUT)


def test_a_section_says_how_much_of_it_is_left_out(tmp_path, monkeypatch):
    whole = len(render(PAGE).encode())
    # A table of 40 rows, each of a cell on the left of 5 or 6 letters, another one of 50, and the marks: with
    # two of them less there is no room for the last section, nor for one of the two of the closed section.
    table = 40 * (10 + 22 + 6 + 9 + 50)
    text = written(tmp_path, monkeypatch, whole - 2 * table)
    last = text.partition("<summary>Last</summary>")[2]
    assert "1 pictures, and 40 rows, 1 tables of them whole" in last
    closed = text.partition("<summary>Closed</summary>")[2].partition("</details>")[0]
    kept = closed.count('<td class="left">row')
    assert 0 < kept < 80
    assert f"0 pictures, and {80 - kept} rows" in closed


def test_a_page_without_room_for_its_answer_is_refused(tmp_path, monkeypatch):
    with pytest.raises(DataError, match=r"more than 1,000; study fewer"):
        written(tmp_path, monkeypatch, 1_000)
    assert not list(tmp_path.iterdir())
