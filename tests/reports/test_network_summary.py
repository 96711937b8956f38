"""Does the report of a network list every kernel of a backward pass, as a device's profile of it would?"""

import csv
import json
from collections import Counter

import pytest

from ascendsim.validate.msprof import read_msprof
from ascendsim.validate.schema import Row

# Two layers of one shape each, of which the second is there three times.
NETWORK = """
title = "Mine"
source = "this test"
bias = false
layers = [
    { name = "first", input = [16, 12, 12], weight = [32, 16, 3, 3], padding = 1 },
    { name = "second", input = [32, 12, 12], weight = [32, 32, 1, 1], count = 3 },
]
"""
PRODUCTS = ("910B2", "950PR_9589")


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """The folder of a network's report on two products."""
    from ascendsim.cli import main

    folder = tmp_path_factory.mktemp("network")
    (folder / "mine.toml").write_text(NETWORK)
    words = ["run", "--network", str(folder / "mine.toml"), "--batch", "2", "--out", str(folder / "report")]
    assert main([*words, "--workers", "1", *(word for name in PRODUCTS for word in ("--product", name))]) == 0
    return folder / "report"


def lines(report, product):
    with (report / f"op_summary-{product}.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.fixture(params=PRODUCTS)
def found(request, report):
    """The lines of a product, and what result.json says of it."""
    products = json.loads((report / "result.json").read_text())["products"]
    (entry,) = [product for product in products if product["variant"] == request.param]
    return lines(report, request.param), entry


def test_every_kernel_of_every_convolution_has_a_line(found):
    rows, product = found
    expected = Counter()
    for layer in product["layers"]:
        for kernel in layer["kernels"]:
            expected[f"{layer['name']}/{kernel['name']}"] += layer["count"]
    assert Counter(row["Op Name"] for row in rows) == expected
    assert {layer["count"] for layer in product["layers"]} == {1, 3}


def test_the_durations_add_up_to_the_network(found):
    rows, product = found
    # Three places are written of each.
    total = sum(float(row["Task Duration(us)"]) for row in rows)
    assert total == pytest.approx(product["time_us"], abs=5e-4 * len(rows))


def test_the_last_layer_comes_first_as_in_a_backward_pass(found):
    rows, _ = found
    layers = [row["Op Name"].partition("/")[0] for row in rows]
    assert layers == sorted(layers, reverse=True)
    assert [int(row["Task ID"]) for row in rows] == list(range(len(rows)))
    ends = [float(row["Task Start Time(us)"]) + float(row["Task Duration(us)"]) for row in rows]
    starts = [float(row["Task Start Time(us)"]) for row in rows]
    assert starts == pytest.approx([0.0, *ends[:-1]], abs=2e-3)


@pytest.mark.parametrize("product", PRODUCTS)
def test_the_profile_is_read_as_one_of_a_device(report, product):
    rows = [row for row in read_msprof(report / f"op_summary-{product}.csv", product) if isinstance(row, Row)]
    # Equal kernels become one case: both gradients of the second layer, of the first that of its weights,
    # as training asks for no gradient of the images.
    assert {(row.id, row.input_shape, row.weight_shape) for row in rows} == {
        ("first/grad_weight", (2, 16, 12, 12), (32, 16, 3, 3)),
        ("second/grad_input", (2, 32, 12, 12), (32, 32, 1, 1)),
        ("second/grad_weight", (2, 32, 12, 12), (32, 32, 1, 1)),
    }


def test_the_page_names_the_file(report):
    text = (report / "report.md").read_text()
    assert all(f"(op_summary-{product}.csv)" in text for product in PRODUCTS)
    assert "op_summary-910B2.csv" in json.loads((report / "result.json").read_text())["files"]
