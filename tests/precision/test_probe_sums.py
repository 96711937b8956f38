"""Are the sums of a probe of their formats, and the same in every call, however it is cut?"""

import numpy as np
import pytest

from ascendsim.numerics.accumulation.models import AccumulationModel
from ascendsim.numerics.formats.casts import round_to
from ascendsim.studies.identify.judge import answers, cuts, slices, telling_cuts
from ascendsim.studies.identify.vectors import DEPTH, FORMATS, Case, operands


@pytest.mark.parametrize("fmt", FORMATS)
def test_every_operand_is_of_the_format(fmt):
    case = Case("matmul", fmt)
    v = case.vectors()
    for values in (v.a, v.b):
        assert np.array_equal(round_to(values, case.stored), values)
    assert v.a.shape == (len(v.questions), DEPTH)
    assert not v.a[:, 96:].any()


@pytest.mark.parametrize("fmt", ["float16", "float32"])
def test_the_three_calls_compute_the_same_sums(fmt):
    v = Case("matmul", fmt).vectors()
    a, b = v.a.astype(np.float64), v.b.astype(np.float64)
    first, second = operands("grad_input", a, b)
    assert np.array_equal(np.einsum("bkmo,knij->bnmo", first, second)[0, :, :, 0].T, a @ b)
    first, second = operands("grad_weight", a, b)
    made = np.einsum("bmop,bnop->mn", first, second)
    assert np.array_equal(made[: len(a)], a @ b)
    assert not made[len(a) :].any()


@pytest.mark.parametrize(
    "text",
    ["seq:RZ", "block:4:RNE", "block:64:RNE", "exact-mmad:RNE", "tree:16:halves:RZ", "seq:RNE+saturate"],
)
def test_cuts_that_are_left_out_answer_like_one_that_is_not(text):
    model, v = AccumulationModel.parse(text), Case("matmul", "float32").vectors()
    a, b = v.a[::7], v.b
    kept = {answers(model, a, b, cut).tobytes() for cut in telling_cuts(model, DEPTH, 8)}
    assert {answers(model, a, b, cut).tobytes() for cut in cuts(DEPTH, 8)} == kept


def test_a_cut_covers_the_reduction_once():
    for cut in cuts(DEPTH, 8):
        covered = [at for part in slices(cut, DEPTH) for mmad in part for at in range(mmad.start, mmad.stop)]
        assert covered == list(range(DEPTH))


def test_a_case_is_a_plain_value():
    case = Case("matmul", "hf32")
    assert case == Case("matmul", "hf32") != Case("matmul", "float32")
    assert case.stored.name == "float32"
