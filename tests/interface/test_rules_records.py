"""Does the shipped rule set answer the outside records as their authors expect?"""

from collections import Counter

import pytest

from ascendsim.rules import TensorDescription
from tests.helpers.case_records import FILES, case_records
from tests.helpers.rules_calls import answer


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
