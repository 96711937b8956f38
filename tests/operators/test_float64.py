"""Are gradients in float64 right, and those of the outside cases within the vendor's tolerances?"""

import os
from collections import Counter
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import ascendsim.ops.reference.float64 as module
from ascendsim import conv_tbc_backward, convolution_backward
from ascendsim.numerics.casts import encode, round_to
from ascendsim.numerics.dtypes import dtype as lookup_dtype
from ascendsim.numerics.format_rounding import narrow_to_odd
from ascendsim.ops.options.call import Options
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.reference.call import reference_gradients
from ascendsim.ops.reference.float64 import gradients_float64
from ascendsim.rules import ConvTbcBackwardCall, resolve
from ascendsim.rules.loader import rule_product
from tests.conftest import NO_DATA
from tests.helpers.calls import GRADIENTS, INPUTS, as_carrier, gradients, in_order, on_the_cube
from tests.helpers.conv_cases import assert_same_bits
from tests.helpers.outside_records import case_records

# --- Are the float64 gradients the gradients of the convolution? ---------------------------------------


def forward(problem, big_or_small, weight):
    """The convolution by its definition, term by term: output for an input of the problem's shape."""
    output = np.zeros((problem.batch, problem.grad_output[1], *problem.output_size))
    x = big_or_small.reshape(*big_or_small.shape[:2], *problem.input_size)
    w = weight.reshape(*weight.shape[:2], *problem.kernel)
    small_c, big_c = problem.small_channels, problem.big_channels
    places = product(
        range(problem.batch),
        range(problem.groups * small_c),
        range(big_c),
        *(range(size) for size in problem.small_size),
        *(range(size) for size in problem.kernel),
    )
    for n, s, b, *rest in places:
        at, tap = rest[:3], rest[3:]
        there = [
            a * stride + t * dilation - pad[0]
            for a, t, stride, dilation, pad in zip(
                at, tap, problem.strides, problem.dilations, problem.pads, strict=True
            )
        ]
        if not all(0 <= p < size for p, size in zip(there, problem.big_size, strict=True)):
            continue
        big_at = (n, s // small_c * big_c + b, *there)
        small_at = (n, s, *at)
        if problem.transposed:
            output[big_at] += x[small_at] * w[(s, b, *tap)]
        else:
            output[small_at] += x[big_at] * w[(s, b, *tap)]
    return output.reshape(problem.grad_output)


PROBLEMS = [
    ConvProblem((2, 3, 5, 4), (2, 3, 3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2)),
    ConvProblem((1, 4, 5, 5), (6, 2, 2, 2), padding=(0, 1, 2, 0), groups=2),
    ConvProblem((2, 2, 4), (3, 2, 3), stride=2, padding=1),
    ConvProblem((1, 2, 3, 4, 3), (2, 2, 2, 1, 3), stride=(1, 2, 1), padding=(1, 0, 1)),
    ConvProblem((1, 4, 3, 3), (4, 1, 2, 3), stride=2, output_padding=1, transposed=True, groups=2),
    ConvProblem((2, 2, 3, 3), (2, 3, 3, 3), padding=1, transposed=True),
]


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_gradients_are_derivatives_of_the_definition(problem):
    # The convolution is linear in input and in weight, so with integers (exact in float64)
    # <grad_output, conv(e, weight)> is grad_input at e, and likewise for weight.
    rng = np.random.default_rng(5)
    x = rng.integers(-4, 5, problem.input).astype(float)
    w = rng.integers(-4, 5, problem.weight).astype(float)
    dy = rng.integers(-4, 5, problem.grad_output).astype(float)
    dx, dw, db = gradients_float64(problem, dy, x, w)
    for made, shape, output in (
        (dx, problem.input, lambda e: forward(problem, e, w)),
        (dw, problem.weight, lambda e: forward(problem, x, e)),
    ):
        assert made.shape == shape
        for flat in rng.choice(made.size, size=min(12, made.size), replace=False):
            unit = np.zeros(made.size)
            unit[flat] = 1
            assert made.flat[flat] == np.vdot(dy, output(unit.reshape(shape)))
    assert np.array_equal(db, dy.sum(axis=(0, *range(2, dy.ndim))))


def test_batch_chunks_do_not_change_the_result(monkeypatch):
    problem = ConvProblem((5, 2, 4, 4), (3, 2, 3, 3), padding=1)
    rng = np.random.default_rng(1)
    tensors = [
        rng.integers(-9, 9, s).astype(float) for s in (problem.grad_output, problem.input, problem.weight)
    ]
    whole = gradients_float64(problem, *tensors)
    monkeypatch.setattr(module, "_CHUNK_BYTES", 1)  # one image at a time
    for one, other in zip(whole, gradients_float64(problem, *tensors), strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize("mask", [(True, False, False), (False, True, False), (False, False, True)])
def test_masked_gradients_are_none(mask):
    problem = ConvProblem((1, 1, 3, 3), (1, 1, 2, 2))
    made = gradients_float64(
        problem, np.ones((1, 1, 2, 2)), np.ones((1, 1, 3, 3)), np.ones((1, 1, 2, 2)), mask
    )
    assert tuple(gradient is not None for gradient in made) == mask


def test_16_bit_tensors_and_infinities_pass():
    problem = ConvProblem((1, 1, 2, 2), (1, 1, 1, 1))
    dy = np.array([[[[np.inf, 1], [2, -1]]]], dtype=np.float16)
    dx, dw, _ = gradients_float64(
        problem, dy, np.zeros((1, 1, 2, 2), np.float16), np.ones((1, 1, 1, 1), np.float16)
    )
    assert np.array_equal(dx, dy.astype(float))
    assert np.isnan(dw).all()  # inf * 0


def test_the_main_job_counts_its_ones():
    # Every pixel inside meets 128 channels under 9 taps; every channel sums 4 images of 28 x 28.
    problem = ConvProblem((4, 128, 28, 28), (128, 128, 3, 3), padding=1)
    tensors = [np.ones(s, np.float16) for s in (problem.grad_output, problem.input, problem.weight)]
    dx, _, db = gradients_float64(problem, *tensors)
    assert dx[0, 0, 5, 5] == 128 * 9
    assert db[0] == 4 * 28 * 28


# --- Are the gradients of the outside cases exact, and inside the vendor's own tolerances? -------------
# Every record that expects success, whose shapes are those of a convolution and that has less than 50
# million multiply-adds is run; by default every fourth of them on its first product, with the slow tests
# all of them on all their products. The rules are those of the shipped operator, which is what the records
# describe; a record of a bare kernel runs under the hardware rules with a float32 grad_weight.

MOST_MACS = 50_000_000
EVERY = 4
# Sums of hundreds or thousands of float32 terms that cancel to less than 1e-3 of their size: the ordered
# arithmetic (bits as in the reference) is off by more than 1e-4 of such a sum in more than one of 10,000
# elements. The bias of the first adds 4096 images one after the other; the next add term by term, as the cube
# of 910_95 does in float32; of the last three elements in 7744 cancel.
BEYOND = {
    ("atk-conv-209", "910B", "grad_bias"): 16,
    ("atk-conv-209", "910_93", "grad_bias"): 16,
    ("atk-conv-209", "910_95", "grad_bias"): 16,
    ("atk-tbc-035", "910_95", "grad_weight"): 4,
    ("atk-tbc-040", "910_95", "grad_weight"): 3,
    ("atk-tbc-041", "910_95", "grad_weight"): 3,
    ("atk-tbc-072", "910_95", "grad_input"): 5,
    ("gtest-conv-ascend910B2_test_PreDilation_FP32_4dim_padding", "910B", "grad_input"): 1,
    ("gtest-conv-ascend910B2_test_PreDilation_FP32_4dim_padding", "910B", "grad_weight"): 2,
}
ABSOLUTE = 1e-8
TBC_AXES = {"grad_output": (1, 2, 0), "input": (1, 2, 0), "weight": (2, 1, 0)}


def why_left_out(record):
    """Return why a record is not run, "" if it is."""
    if record.status != 0:
        return "expects nothing" if record.status is None else "expects an error"
    if not record.consistent:
        return "shapes are not those of a convolution"
    if record.macs is None or record.macs >= MOST_MACS:
        return "50 million multiply-adds or more"
    return ""


def all_records():
    named = os.environ.get("ASCENDSIM_DATA")
    return case_records(Path(named)) if named and Path(named).is_dir() else []


def pairs(record):
    """Return the record with each product to run it on, by the name of its profile."""
    return [(record, rule_product(product)) for product in record.products]


RECORDS = all_records()
RUN = [record for record in RECORDS if not why_left_out(record)]
USUAL = [pairs(record)[0] for record in RUN[::EVERY]]
REST = [pair for record in RUN for pair in pairs(record) if pair not in USUAL]
NOTHING = [pytest.param(None, "", marks=pytest.mark.skip(reason=NO_DATA))]


@dataclass(frozen=True)
class Ready:
    """A record with its tensors: what was given, and the same as a convolution (N, C, space)."""

    record: object
    call: object
    product: str
    rules: str
    carriers: dict
    bias: object

    @property
    def is_tbc(self):
        return isinstance(self.call, ConvTbcBackwardCall)

    @property
    def options(self):
        outputs = [getattr(self.call, name) for name in GRADIENTS]
        dtypes = [output and output.dtype for output in outputs]
        if self.record.kernel:
            dtypes[1] = "float32"
        return {"product": self.product, "rules": self.rules, "output_dtypes": tuple(dtypes)}

    def run(self):
        """Make the call as a user would."""
        stored = [encode(self.carriers[name], getattr(self.call, name).dtype) for name in INPUTS]
        call = self.call
        if self.is_tbc:
            bias = encode(self.bias, call.bias.dtype)
            return conv_tbc_backward(*stored, bias, call.pad, call.cube_math_type, **self.options)
        return convolution_backward(
            *stored,
            call.bias_sizes,
            call.stride,
            call.padding,
            call.dilation,
            call.transposed,
            call.output_padding,
            call.groups,
            call.output_mask,
            call.cube_math_type,
            **self.options,
        )

    def convolution(self):
        """Return the carriers and the problem as a convolution."""
        if not self.is_tbc:
            call = self.call
            # The shapes rule over output_padding, of which a record may give four values.
            spare = self.decided().output_padding
            problem = ConvProblem(
                call.input.shape,
                call.weight.shape,
                call.stride,
                call.padding,
                call.dilation,
                call.transposed,
                spare,
                call.groups,
            )
            return problem, self.carriers
        moved = {name: self.carriers[name].transpose(axes) for name, axes in TBC_AXES.items()}
        return ConvProblem(moved["input"].shape, moved["weight"].shape, 1, self.call.pad), moved

    def decided(self):
        """Return what the rules decide; a record of a bare kernel gets the outputs that it lacks."""
        options, asked = Options(**self.options), self.call
        if self.record.kernel:
            asked = replace(asked, grad_input=None, grad_weight=None, grad_bias=None)
            asked = asked.with_usual_outputs(options.wanted_dtypes)
        return resolve(asked, options.profile, self.rules)

    def resolved(self, problem):
        """Return what fixes the kernels."""
        return Options(**self.options).call(problem, self.decided(), {})

    def as_given(self, made):
        """Bring gradients of a convolution to the order of the call's own tensors."""
        if not self.is_tbc:
            return made
        return [made[0].transpose(2, 0, 1), made[1].transpose(2, 1, 0), made[2]]


def ready(record, product, seed=0):
    """Draw the tensors of a record: uniform in its ranges, rounded to its formats."""
    rng = np.random.default_rng(seed)

    def drawn(name):
        tensor = getattr(record.call, name)
        values = rng.uniform(*record.ranges[name], tensor.shape).astype(np.float32)
        return round_to(values, tensor.dtype)

    carriers = {name: drawn(name) for name in INPUTS}
    bias = drawn("bias") if hasattr(record.call, "bias") else None
    rules = "hardware" if record.kernel else "shipped"
    return Ready(record, record.call, product, rules, carriers, bias)


def check(record, product):
    """Compare the bits with the ordered reference and, where torch is installed, the values with float64."""
    case = ready(record, product)
    got = gradients(case.run())
    if not all(carrier.size for carrier in case.carriers.values()):
        check_empty(case, got)
        return
    problem, carriers = case.convolution()
    call = case.resolved(problem)
    mask = tuple(values is not None for values in got)
    made = reference_gradients(call, **carriers, arrivals=in_order(call), mask=mask)
    want = case.as_given([made.get(name) for name in GRADIENTS])
    for name, values, bits in zip(GRADIENTS, got, want, strict=True):
        if values is not None:
            assert_same_bits(as_carrier(values), np.ascontiguousarray(bits), name)
    exact = golden(case, problem, carriers, call, mask)
    for name, values, want in zip(GRADIENTS, got, exact, strict=True):
        if values is None:
            continue
        missed = misses_of(name, as_carrier(values), want, call)
        known = BEYOND.get((record.id, product, name))
        fits = missed.sum() == known if known else missed.mean() <= tolerance(name, call)
        assert fits, f"{name}: {missed.sum()} of {values.size} are off"
        if known:
            magnitudes = {name: np.abs(carrier) for name, carrier in carriers.items()}
            size = golden(case, problem, magnitudes, call, mask)[GRADIENTS.index(name)]
            assert (np.abs(want)[missed] < 1e-3 * size[missed]).all(), f"{name}: not for cancellation"


def check_empty(case, got):
    """Ask for zeros where a tensor is empty; the shipped TBC operator counts the terms of its bias."""
    terms = np.prod(case.call.grad_output.shape[:2]) if case.is_tbc else 0
    for name, values in zip(GRADIENTS, got, strict=True):
        expected = terms if name == "grad_bias" else 0
        assert values is None or (as_carrier(values) == expected).all(), name


def golden(case, problem, carriers, call, mask):
    """Return the gradients in float64, of the operands as the cube multiplies them."""
    from tests.helpers.torch_samples import torch_gradients

    cube = [on_the_cube(call, name, np.ascontiguousarray(carriers[name])) for name in INPUTS]
    # without the bias, which is a sum of grad_output as it came
    made = list(torch_gradients(problem, *cube, (*mask[:2], False)))
    made[2] = carriers["grad_output"].astype(np.float64).sum(axis=(0, *range(2, 2 + problem.rank)))
    return case.as_given(made)


def misses_of(name, got, exact, call):
    """Return which elements are off by more than the tolerance, relative to float64.

    The float64 value is brought into the formats that the gradient passes on its way out, as the vendor's own
    comparisons bring theirs into the output format: half a unit of bfloat16 is more than the tolerance.
    """
    wanted = exact
    for fmt in (lookup_dtype(fmt) for fmt in formats_on_the_way(name, call)):
        if fmt.bits < 32:
            wanted = round_to(narrow_to_odd(wanted), fmt).astype(np.float64)
    return np.abs(got - wanted) > ABSOLUTE + tolerance(name, call) * np.abs(wanted)


def tolerance(name, call):
    """Return the vendor's relative tolerance, which is also the share of elements that may be off."""
    true_float32 = call.compute_dtype == "float32" and call.dtypes[name] == "float32"
    return 1e-4 if true_float32 else 1e-3


def formats_on_the_way(name, call):
    """Return what a gradient is rounded to after its sum, in order."""
    first = {
        "grad_input": call.leaves_in("grad_input"),
        "grad_weight": "float16" if call.squeezed else "float32",
        "grad_bias": call.leaves_in("grad_bias"),
    }
    return first[name], call.dtypes[name]


@pytest.mark.parametrize(("record", "product"), USUAL or NOTHING, ids=str)
def test_gradients_of_a_record(record, product):
    check(record, product)


@pytest.mark.slow
@pytest.mark.parametrize(("record", "product"), REST or NOTHING, ids=str)
def test_gradients_of_every_record(record, product):
    check(record, product)


def test_every_record_is_accounted_for(data_dir, capsys):
    assert data_dir
    left_out = Counter(why_left_out(record) for record in RECORDS if why_left_out(record))
    assert len(RUN) + sum(left_out.values()) == len(RECORDS)
    assert len(USUAL) + len(REST) == sum(len(record.products) for record in RUN)
    assert {bool(record.kernel) for record, _ in USUAL} == {False, True}
    assert {type(record.call).__name__ for record, _ in USUAL} == {
        "ConvolutionBackwardCall",
        "ConvTbcBackwardCall",
    }
    reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(left_out.items()))
    with capsys.disabled():
        print(
            f"\noutside records: {len(RUN)} of {len(RECORDS)} have gradients to compare, on "
            f"{len(USUAL) + len(REST)} pairs with a product ({len(USUAL)} by default); left out: {reasons}; "
            f"{len(BEYOND)} gradients are beyond the tolerance, where sums cancel"
        )
