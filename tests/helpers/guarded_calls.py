"""A small call of everything exported that computes, on values that other modes of arithmetic change.

`TINY` values are near 1e-20, so that their products are subnormal in float32; `USUAL` ones round. Calls
return what is compared: arrays, numbers, records.
"""

import contextlib
import io
import runpy
import tempfile
from fractions import Fraction
from functools import cache, partial
from pathlib import Path

import numpy as np

import ascendsim
from ascendsim import ConvProblem, Item, MatmulProblem, aclnn, precision
from ascendsim.functional import run_kernel
from ascendsim.instructions import winograd
from ascendsim.numerics import accumulation_twins as twins
from ascendsim.numerics import casts, dtypes, format_rounding, hifloat8
from ascendsim.numerics import casts as cast_twins
from ascendsim.numerics import casts as quick_casts
from ascendsim.numerics import dtypes as ulp
from ascendsim.numerics import format_rounding as tables
from ascendsim.numerics import hifloat8 as hifloat8_rounding
from ascendsim.numerics.accumulation import AccumulationModel
from ascendsim.numerics.compiled.accumulate import accumulate
from ascendsim.numerics.metrics import error_metrics
from ascendsim.ops.checks import check_flags
from ascendsim.ops.options.asked import planned_call
from ascendsim.ops.options.call import options_of
from ascendsim.ops.problems.layers import layer_problem
from ascendsim.ops.reference import ordered as sums
from ascendsim.ops.reference.call import reference_gradients
from ascendsim.ops.reference.float64 import gradients_float64, layer_gradients_float64
from ascendsim.ops.tiling.request import PlanRequest
from ascendsim.ops.tiling.vendor.operators import operator_plan, product_tiling
from ascendsim.timing.critical_path import critical_path, cycles_by_cause
from ascendsim.timing.kernel import measure_kernel
from ascendsim.timing.times import occupation
from tests.helpers import toy_machines

PRODUCT = "910B2"
PROBLEM = ConvProblem((2, 16, 6, 6), (16, 16, 3, 3), padding=1)
LAYER = ConvProblem((2, 64, 14, 14), (64, 64, 3, 3), 1, 1)
ATTRIBUTES = ([16], 1, 1, 1, False, 0, 1)
GRADIENTS = ("grad_input", "grad_weight", "grad_bias")


def drawn(scale, *shapes, seed=29):
    """Draw float32 tensors near a scale."""
    rng = np.random.default_rng(seed)
    return [(rng.standard_normal(shape) * scale).astype(np.float32) for shape in shapes]


USUAL, TINY = 1.0, 1e-20
SHAPES = (PROBLEM.grad_output, PROBLEM.input, PROBLEM.weight)
RUN = f"run --input 2,16,6,6 --weight 16,16,3,3 --padding 1 --product {PRODUCT} --json".split()
TENSORS = {scale: drawn(scale, *SHAPES) for scale in (USUAL, TINY)}
MATRICES = {scale: drawn(scale, (20, 24), (24, 18)) for scale in (USUAL, TINY)}
# grad_output, input, weight and bias of conv_tbc
TBC = {scale: drawn(scale, (7, 2, 16), (7, 2, 16), (3, 16, 16), (16,)) for scale in (USUAL, TINY)}
INPUTS = ("grad_output", "input", "weight")
BY_NAME = {
    scale: dict(zip(INPUTS, (x.astype(np.float64) for x in of), strict=True)) for scale, of in TENSORS.items()
}
STORED = {
    (scale, dtype): [casts.encode(casts.round_to(x, dtype), dtype) for x in TENSORS[scale]]
    for scale in (USUAL, TINY)
    for dtype in ("float32", "float16", "bfloat16")
}
# Every 1,999,993rd pattern: all exponents, subnormals among them. Few enough to be quick.
VALUES = np.arange(0, 2**32, 1_999_993, dtype=np.uint64).astype(np.uint32).view(np.float32)
SUBNORMAL = (np.arange(1, 400) * 2.0**-149).astype(np.float32)
with np.errstate(over="ignore", invalid="ignore"):
    WIDE = np.concatenate([VALUES, SUBNORMAL]).astype(np.float64) * (1 + 2.0**-40)
FINITE = WIDE[np.isfinite(WIDE)]
MAGNITUDES = [Fraction(float(x)) for x in np.abs(VALUES[np.isfinite(VALUES)][:2000:9])]
HALVES = casts.round_to(VALUES, "float16")


def made(result):
    """Return the gradients of a result."""
    return [getattr(result, name) for name in GRADIENTS]


def backward(scale, dtype="float32", **options):
    """Return the gradients, and of a call with timing what is told of its cycles."""
    result = ascendsim.convolution_backward(
        *STORED[scale, dtype], *ATTRIBUTES, [True] * 3, 0, product=PRODUCT, **options
    )
    return made(result), told(result) if result.timing else None


def backward_tbc(scale, **options):
    """Return the gradients of conv_tbc."""
    return made(ascendsim.conv_tbc_backward(*TBC[scale], 1, 0, product=PRODUCT, **options))


def told(estimate):
    """Return all that an estimate says of cycles and times, a timeline and what a notebook shows."""
    spans = [(core.issue, core.start, core.end, core.done) for core in _cores(estimate.kernels[0].timeline)]
    return estimate.to_records(), estimate.time_us, estimate.cycles, estimate._repr_html_(), spans


def _cores(timeline):
    return [core for phase in timeline.phases for core in phase.cores]


def matmul(scale, **options):
    """Return a matrix product and its cycles."""
    result = ascendsim.matmul(*MATRICES[scale], product=PRODUCT, **options)
    return result.output, result.time_us, result.cycles


@cache
def planned():
    """Return a call that has its plans."""
    options = options_of("a test", {"product": PRODUCT, "deterministic": True})
    return planned_call(PROBLEM, options, "float32", 0, (True, True, True))[1]


@cache
def usual(dtype="float16"):
    """Return an estimate made before any mode was set."""
    return ascendsim.estimate(PROBLEM, dtype, product=PRODUCT)


def kernel_results(scale):
    """Run a kernel by itself: the sums of grad_bias."""
    kernels = usual("float32").kernels
    [kernel] = [
        one.kernel for one in kernels if "grad_output" in one.kernel.tensors and one.name == "grad_bias"
    ]
    memory = {"grad_output": TENSORS[scale][0]}
    run_kernel(kernel, memory)
    return memory["grad_bias"]


def timed_kernel():
    """Time a kernel by itself, on both engines, and follow its cycles."""
    profile, kernel = ascendsim.load_profile(PRODUCT), usual().kernels[0].kernel
    found = [measure_kernel(kernel, profile, engine=engine) for engine in ("compiled", "simpy")]
    core = next(iter(found[0].cores))
    path = critical_path(usual().kernels[0].timeline)
    return [(times.cycles, times.bytes, occupation(times, core)) for times in found], cycles_by_cause(path)


def sampled_tilings():
    """Count and draw legal tilings."""
    tilings = ascendsim.legal_tilings(ConvProblem((1, 16, 4, 4), (16, 16, 1, 1)), "grad_input", PRODUCT)
    return len(tilings), tilings.sample(3), next(iter(tilings))


def accumulated(scale, model="block:16:RNE"):
    """Add a product to an accumulator."""
    c = np.zeros((20, 18), np.float32)
    accumulate(AccumulationModel.parse(model), *MATRICES[scale], c)
    return c


def twin(scale):
    """Add a small product by definition."""
    a, b = (x[:3, :3] for x in MATRICES[scale])
    model = AccumulationModel.parse("block:2:RNE")
    return twins.accumulate_twin(model, a.copy(), b.copy(), np.zeros((3, 3), np.float32))


def eight_bits():
    """Take values to hifloat8 and back, by the class and by its pieces."""
    array = hifloat8.HiFloat8Array.from_float32(VALUES)
    return array, array.to_float32(), np.asarray(array), hifloat8.value_ranks(np.arange(128, dtype=np.uint8))


def casts_of(name):
    """Return a call that casts every kind of value to every format."""
    function = getattr(casts, name)

    def call():
        on_grid = [(casts.round_to(VALUES, fmt), fmt) for fmt in dtypes.DTYPES]
        if name == "round_to":
            return [x for x, _ in on_grid]
        if name == "decode":
            return [casts.decode(casts.encode(x, fmt), fmt) for x, fmt in on_grid]
        return [function(x, fmt) for x, fmt in on_grid]

    return call


def quantised(text, rounding="nearest"):
    """Round to a format of studies, some values of which are its subnormals."""
    values = np.concatenate([FINITE, np.linspace(-3, 3, 500) * 2.0**-14])
    return precision.quantise(values, precision.format_of(text), rounding=rounding, seed=3)


def formats():
    """Return every format of studies by its name."""
    return [precision.format_of(f"e{e}m{m}") for e in range(2, 9) for m in range(24)]


def maths():
    return [
        precision.Math("float16", "block:16:RNE", "float16"),
        precision.Math("mxfp8_e4m3", "seq:RNE", "float32", "stochastic"),
        precision.Math("float32", "seq:RNE", "float32"),
    ]


def workspaces(scale):
    """Return tensors of the two-phase interface: inputs and outputs."""
    inputs = [aclnn.AclTensor(x, "float32") for x in TENSORS[scale]]
    outputs = [np.ones(shape, np.float32) for shape in (PROBLEM.input, PROBLEM.weight, (16,))]
    return inputs, outputs


def two_phases(scale):
    """Run the two-phase interface into arrays."""
    inputs, outputs = workspaces(scale)
    targets = [aclnn.AclTensor(x, "float32") for x in outputs]
    attributes = ([16], [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    given = *inputs, *attributes, [True] * 3, 0, *targets
    size, executor = aclnn.convolution_backward_get_workspace_size(*given, product=PRODUCT)
    executor.run(size)
    return size, outputs


def two_phases_tbc(scale):
    """Run the two-phase interface of conv_tbc."""
    outputs = [np.ones_like(x) for x in TBC[scale][1:]]
    given = [aclnn.AclTensor(x, "float32") for x in TBC[scale]]
    targets = [aclnn.AclTensor(x, "float32") for x in outputs]
    size, executor = aclnn.conv_tbc_backward_get_workspace_size(*given, 1, 0, *targets, product=PRODUCT)
    executor.run(size)
    return size, outputs


def as_in_c(scale):
    """Run the vendor's spelling, on memory of its runtime."""
    inputs, outputs = workspaces(scale)
    given = [_placed(x.array) for x in inputs]
    targets = [_placed(x) for x in outputs]
    attributes = ((16,), (1, 1), (1, 1), (1, 1), False, (0, 0), 1, (True,) * 3, 0)
    size, executor, simulated = aclnn.Out(), aclnn.Out(), {"product": PRODUCT}
    status = aclnn.aclnnConvolutionBackwardGetWorkspaceSize(
        *given, *attributes, *targets, size, executor, simulated
    )
    memory = np.empty(size.value, np.uint8)
    return status, aclnn.aclnnConvolutionBackward(memory, size, executor), size.value, outputs


def as_in_c_tbc(scale):
    """Run the vendor's spelling of conv_tbc."""
    outputs = [np.ones_like(x) for x in TBC[scale][1:]]
    size, executor = aclnn.Out(), aclnn.Out()
    placed = [[_placed(x) for x in of] for of in (TBC[scale], outputs)]
    first = aclnn.aclnnConvTbcBackwardGetWorkspaceSize(
        *placed[0], 1, 0, *placed[1], size, executor, {"product": PRODUCT}
    )
    second = aclnn.aclnnConvTbcBackward(np.empty(size.value, np.uint8), size, executor)
    return first, second, size.value, outputs


def _placed(values):
    shape = values.shape
    strides = [int(np.prod(shape[axis + 1 :])) for axis in range(len(shape))]
    layout = aclnn.ACL_FORMAT_NCHW if values.ndim == 4 else aclnn.ACL_FORMAT_ND
    given = shape, len(shape), aclnn.ACL_FLOAT, strides, 0, layout, shape, len(shape)
    return aclnn.aclCreateTensor(*given, values.reshape(-1))


def commanded(*words):
    """Return what the command prints."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert _main(words) == 0
    return out.getvalue()


def _main(words):
    from ascendsim.cli import main

    return main(words)


def in_folder(call):
    """Return a call that is given a folder of its own, which is gone afterwards."""

    def run():
        with tempfile.TemporaryDirectory() as folder:
            return call(Path(folder))

    return run


def traced(folder):
    """Write a trace."""
    profile = ascendsim.load_profile(PRODUCT)
    from ascendsim.report.trace import write_trace

    result = ascendsim.estimate(PROBLEM, product=profile)
    path = folder / "trace.json"
    return write_trace(path, result.kernels, profile, 500), path.read_text()


def plan_files(folder):
    """Write plans and read them again."""
    plans = product_tiling(PlanRequest(LAYER, "grad_input", "float16", ascendsim.load_profile(PRODUCT)))
    ascendsim.write_plans(folder / "plans.toml", {"grad_input": plans})
    return (folder / "plans.toml").read_text(), ascendsim.read_plans(folder / "plans.toml").plans


def products():
    """Load products in every way, and read what prices and changes them."""
    from ascendsim.profile import CostFormula, list_products, parse_changes

    profile = ascendsim.load_profile(PRODUCT)
    listed = list_products()
    changes = [change.on(profile) for change in parse_changes("links.l2_read.nominal_tb_per_s=4.9,x1.1")]
    other = ascendsim.load_profile(PRODUCT, overrides=changes[0])
    cost = CostFormula("links.memory.nominal_tb_per_s / 3 + 0.1").of(profile)
    return profile.told, other.told, listed, changes, cost, profile.launch_us(7)


def change_files(folder):
    """Read changes from a file."""
    from ascendsim.profile import read_changes

    path = folder / "changes.toml"
    path.write_text('[[change]]\nname = "more"\nfigures = { "links.memory.nominal_tb_per_s" = 1.7 }\n')
    return read_changes(path)


def product_of_figures():
    """Make a product of figures given in code, from which others follow."""
    return toy_machines.toy_split(**{"links.l2_read.nominal_tb_per_s": 0.7}).told


def each(function, **options):
    """Return calls on usual values and on tiny ones."""
    return [partial(function, scale, **options) for scale in (USUAL, TINY)]


def measured():
    """Measure an array by all measures."""
    kept = np.isfinite(HALVES)
    values, exact = HALVES[kept], HALVES[kept].astype(np.float64) * (1 + 2.0**-12)
    return error_metrics(values, exact, "float16", np.abs(exact))


def as_carriers():
    """Take binary16 through the quick conversions, which are compiled for long arrays."""
    halves = casts.encode(HALVES, "float16")
    return (
        quick_casts.decoded(halves, "float16"),
        quick_casts.as_carrier(halves),
        quick_casts.rounded(VALUES, "float16"),
        quick_casts.rounded_halves(VALUES),
        quick_casts.stored(HALVES, "float16"),
        quick_casts.cuts_off(VALUES, "float16"),
    )


LINES = [[list(row) for row in drawn(scale, (4, 4, 5))[0]] for scale in (USUAL, 2.0**-126)]
ROWS = np.concatenate(drawn(USUAL, (7, 40)) + drawn(2.0**-130, (7, 40)), axis=1)
DOUBLES = {
    scale: [x.astype(np.float64) * by for x in TENSORS[scale]] for scale, by in ((USUAL, 1), (TINY, 1e-140))
}


def in_lines():
    """Take pixels through the lines of Winograd, each alone and in a plane."""
    rows = [row for of in LINES for row in of]
    return [
        [winograd.small_line(*row[:2]) for row in rows],
        [winograd.big_line(*row) for row in rows],
        [winograd.taps_line(*row) for row in rows],
        [winograd.in_plane(winograd.big_line, of) for of in LINES],
    ]


def summed():
    """Add float32 numbers in the order of vector cores, some of them subnormal."""
    return sums.bias_gradient(ROWS.reshape(7, 8, 10), 2)


def by_definition(scale):
    """Return the gradients by their definition."""
    return reference_gradients(planned(), *TENSORS[scale])


def in_float64(scale):
    """Return the gradients in float64, of tensors whose products are subnormal there if they are tiny."""
    return gradients_float64(PROBLEM, *DOUBLES[scale])


LINEAR = layer_problem(kind="linear", input=(4, 32), weight=(16, 32))


# grad_output, input and weight of a linear layer, with subnormal products; drawn before any mode is set.
LINEAR_TENSORS = drawn(2.0**-65, LINEAR.grad_output, LINEAR.input, LINEAR.weight)
LINEAR_DOUBLES = [x.astype(np.float64) * 2.0**-450 for x in LINEAR_TENSORS]


def linear():
    """Return the gradients of a linear layer, and cycles."""
    made = ascendsim.product_backward(*LINEAR_TENSORS, True, product=PRODUCT)
    return made.grad_input, made.grad_weight, made.grad_bias, made.time_us


def linear_estimated():
    """Estimate a linear layer."""
    return told(ascendsim.estimate_layer(LINEAR, product=PRODUCT))


def linear_in_float64():
    """Return the gradients of a linear layer in float64, of subnormal products."""
    return layer_gradients_float64(LINEAR, *LINEAR_DOUBLES)


def eight_bit_tables():
    """Look up all codes of the formats of eight bits, and the values of the codes."""
    formats = [fmt for fmt in dtypes.DTYPES if fmt.bits == 8]
    found = [tables.decode_codes(np.arange(256, dtype=np.uint8), fmt) for fmt in formats]
    codes = [tables.encode_codes(x, fmt) for x, fmt in zip(found, formats, strict=True)]
    return found, codes, [list(tables.code_table(fmt)) for fmt in formats]


def checked():
    """Hold a schedule against the definition."""
    return ascendsim.check_schedule("dgrad", PROBLEM, "float32", product=PRODUCT, orders=1)


def flags_checked():
    """Hold flags and a barrier that is superfluous against the order that tiles ask for."""
    profile = ascendsim.load_profile("910B2")
    example = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "11_flags_of_your_own.py"))
    return check_flags(example["doubled"](profile, barrier=True), profile)


def estimated(**options):
    """Estimate a call, with casts into HF32 and every kernel."""
    return told(ascendsim.estimate(PROBLEM, product=PRODUCT, **options))


def many():
    """Estimate several calls in this process."""
    items = [Item(PROBLEM, product=PRODUCT), Item(LAYER, product="310P")]
    return [told(one) for one in ascendsim.estimate_many(items, workers=1)]


def vendor():
    """Plan as the product's operators do."""
    given = LAYER, "grad_input", "float16", ascendsim.load_profile(PRODUCT)
    return [str(function(PlanRequest(*given))) for function in (operator_plan, product_tiling)]


def spread(scale):
    """Compute gradients under several arithmetics."""
    return precision.spread(PROBLEM, BY_NAME[scale], maths())


def attributed(scale):
    """Part the errors of several arithmetics."""
    return [precision.attribute(PROBLEM, BY_NAME[scale], math) for math in maths()]


PLANS = in_folder(plan_files)
AS_IN_C, AS_IN_C_TBC = each(as_in_c), each(as_in_c_tbc)
TWO_PHASES, TWO_PHASES_TBC = each(two_phases), each(two_phases_tbc)
# What has to be changed by some mode, were there no guard: everything that takes tensors, or reads numbers.
CALLS = {
    **{f"aclnn.c_calls.aclnnConvTbcBackward{phase}": AS_IN_C_TBC for phase in ("", "GetWorkspaceSize")},
    **{f"aclnn.c_calls.aclnnConvolutionBackward{phase}": AS_IN_C for phase in ("", "GetWorkspaceSize")},
    "aclnn.handles.Executor": TWO_PHASES,
    "aclnn.interface.conv_tbc_backward_get_workspace_size": TWO_PHASES_TBC,
    "aclnn.interface.convolution_backward_get_workspace_size": TWO_PHASES,
    "cli.main": [partial(commanded, *RUN, *more) for more in ([], ["--cycles-only", "--dtype", "float32"])],
    "functional.run_kernel": each(kernel_results),
    "numerics.accumulation_twins.accumulate_twin": each(twin),
    "numerics.compiled.accumulate.accumulate": [
        *each(accumulated),
        *each(accumulated, model="seq:RNE"),
        *each(accumulated, model="align:4:F26:RZ"),
    ],
    "numerics.casts.cast_twin": [
        lambda: [cast_twins.cast_twin(float(x), fmt) for fmt in dtypes.DTYPES[:3] for x in FINITE[::40]]
    ],
    "numerics.casts.hybrid_twin": [
        lambda: [cast_twins.hybrid_twin(x, name) for name in hifloat8_rounding.HYBRIDS for x in MAGNITUDES]
    ],
    "numerics.casts.hf32": [lambda: [casts.hf32(VALUES, bits) for bits in (10, 11)]],
    **{f"numerics.casts.{name}": [casts_of(name)] for name in ("decode", "encode", "round_to", "is_on_grid")},
    "numerics.format_rounding.narrow_to_odd": [lambda: format_rounding.narrow_to_odd(WIDE)],
    "numerics.format_rounding.round_fields": [
        lambda: [format_rounding.round_fields(VALUES, dtypes.DTYPES[at], "RINT", "ieee") for at in (0, 1)]
    ],
    "numerics.hifloat8.HiFloat8Array": [eight_bits],
    "numerics.hifloat8.value_ranks": [eight_bits],
    "numerics.hifloat8.round_hifloat8": [lambda: hifloat8_rounding.round_hifloat8(VALUES, "ROUND", "ieee")],
    "numerics.hifloat8.round_hybrid": [
        lambda: [
            hifloat8_rounding.round_hybrid(HALVES, name, "float16") for name in hifloat8_rounding.HYBRIDS
        ]
    ],
    **{
        f"numerics.format_rounding.{name}": [eight_bit_tables]
        for name in ("code_table", "decode_codes", "encode_codes")
    },
    "numerics.dtypes.ulps": [lambda: [ulp.ulps(FINITE, fmt) for fmt in dtypes.DTYPES]],
    "numerics.metrics.error_metrics": [measured],
    **{
        f"numerics.casts.{name}": [as_carriers]
        for name in ("as_carrier", "cuts_off", "decoded", "rounded", "rounded_halves", "stored")
    },
    **{
        f"instructions.winograd.{name}": [in_lines]
        for name in ("big_line", "in_plane", "small_line", "taps_line")
    },
    "ops.checks.check_flags": [flags_checked],
    "ops.checks.check_schedule": [checked],
    "ops.convolution_backward.conv_tbc_backward": [
        *each(backward_tbc),
        *each(backward_tbc, timing=False),
        *each(backward_tbc, timing=False, threads=2),
    ],
    "ops.convolution_backward.convolution_backward": [
        *each(backward),
        *each(backward, order="arrival"),
        *each(backward, timing=False),
        *each(backward, timing=False, threads=2),
        *(
            partial(backward, USUAL, dtype=dtype, timing=timing)
            for dtype in ("float16", "bfloat16")
            for timing in (True, False)
        ),
    ],
    "ops.convolution_backward.estimate": [
        estimated,
        partial(estimated, dtype="float32", tiling="search", l2_start="chained"),
        partial(estimated, engine="simpy"),
    ],
    "ops.layers.estimate_layer": [linear_estimated],
    "ops.layers.product_backward": [linear],
    "ops.many.estimate_many": [many],
    "ops.matmul.estimate_matmul": [
        lambda: told(ascendsim.estimate_matmul(MatmulProblem(96, 80, 64), product=PRODUCT))
    ],
    "ops.matmul.matmul": each(matmul),
    "ops.reference.call.reference_gradients": each(by_definition),
    "ops.reference.float64.gradients_float64": each(in_float64),
    "ops.reference.float64.layer_gradients_float64": [linear_in_float64],
    "ops.reference.ordered.bias_gradient": [summed],
    "ops.tiling.legal_tilings.legal_tilings": [sampled_tilings],
    "ops.tiling.plan_files.read_plans": [PLANS],
    "ops.tiling.plan_files.write_plans": [PLANS],
    "ops.tiling.vendor.operators.operator_plan": [vendor],
    "ops.tiling.vendor.operators.product_tiling": [vendor],
    "profile.changes.Change": [products],
    "profile.changes.parse_changes": [products],
    "profile.changes.read_changes": [in_folder(change_files)],
    "profile.records.CostFormula": [products],
    "profile.files.list_products": [products],
    "profile.files.load_profile": [products],
    "profile.files.profile_from_tree": [product_of_figures],
    "profile.records.Profile": [products],
    "report.trace.write_trace": [in_folder(traced)],
    "studies.arithmetic.math.attribute": each(attributed),
    "studies.arithmetic.math.spread": each(spread),
    "studies.arithmetic.formats.format_of": [formats],
    "studies.arithmetic.formats.quantise": [
        partial(quantised, *given)
        for given in (["float32"], ["e5m10"], ["mxfp8_e4m3"], ["scaled(e4m3)"], ["e4m3", "stochastic"])
    ],
    "studies.identify.folder.rank_by_public_figures": [
        lambda: precision.rank_by_public_figures(["block:4:RNE", "seq:RNE"])
    ],
    "timing.critical_path.critical_path": [timed_kernel],
    "timing.critical_path.cycles_by_cause": [timed_kernel],
    "timing.kernel.measure_kernel": [timed_kernel],
    "timing.times.occupation": [timed_kernel],
}
