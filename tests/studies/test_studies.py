"""Are the answers of the studies plain, frozen records, with every field explained?"""

import json
import pickle
from dataclasses import FrozenInstanceError, asdict, fields, is_dataclass

import numpy as np
import pytest

from ascendsim.report.document import plain
from ascendsim.studies import records
from ascendsim.studies.records import FigureEffect, Interval, JudgedGradient
from tests.helpers.report_samples import judged_gradient, made_up_interval

EFFECT = FigureEffect("sync.flag_cycles", 10, 0, 20, 4.0, 3.5, None)
GRADIENT = judged_gradient(np.array([1, 2], np.float16), [1, 2])
SAMPLES = (EFFECT, made_up_interval(), GRADIENT)
KINDS = [kind for kind in vars(records).values() if is_dataclass(kind)]


def test_every_record_has_a_sample():
    assert {type(sample) for sample in SAMPLES} == set(KINDS) == {FigureEffect, Interval, JudgedGradient}


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_is_documented(kind):
    for field in fields(kind):
        assert field.name in kind.__doc__, field.name


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: type(sample).__name__)
def test_a_record_is_frozen(sample):
    with pytest.raises(FrozenInstanceError):
        setattr(sample, fields(sample)[0].name, None)
    with pytest.raises((AttributeError, TypeError)):  # slots: no field that nobody declared
        sample.comment = "mine"


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: type(sample).__name__)
def test_a_record_pickles(sample):
    assert pickle.loads(pickle.dumps(sample)) == sample


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: type(sample).__name__)
def test_a_record_holds_plain_values(sample):
    # No array, timeline or profile hides in it: it becomes JSON as it is.
    assert json.loads(json.dumps({key: plain(value) for key, value in asdict(sample).items()}))


@pytest.mark.parametrize("kind", KINDS)
def test_a_time_and_a_count_of_cycles_name_their_unit(kind):
    times = {"shortest_us", "longest_us", "usual_us", "low_us", "high_us", "least_cycles", "most_cycles"}
    for field in fields(kind):
        if "float" in str(field.type) or "cycles" in field.name:
            assert field.name in times


def test_an_interval_is_as_wide_as_its_figures_together():
    made = made_up_interval()
    # By hand: 4.16 as it is, 0.5 off by the rate and 0.1 off by the flag; a us more by the rate alone.
    assert made.shortest_us == pytest.approx(4.16 - 0.5 - 0.1)
    assert made.longest_us == pytest.approx(4.16 + 1.0)
    assert [effect.span_us for effect in made.effects] == pytest.approx([1.5, 0.1])
