"""What does a notebook show of a result?"""

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np

from ascendsim.ops.results import Estimate, result_html
from tests.helpers.report_samples import timed_run
from tests.helpers.toy_profiles import toy_split


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
