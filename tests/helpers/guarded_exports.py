"""What is exported, a small call of each study among it, and what no test calls and why."""

import ast
import csv
import importlib
import json
from dataclasses import replace
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace

import numpy as np

import ascendsim
from ascendsim.profile import CostFormula, parse_changes
from ascendsim.report.calls import points_of, roof_of, roofline_picture
from ascendsim.report.document import CallReport, run_document
from ascendsim.report.page.charts import svg
from ascendsim.studies.accounts import LeverQuestion, TrafficQuestion
from ascendsim.studies.codesign import study_codesign
from ascendsim.studies.devices import study_devices
from ascendsim.studies.devices_records import DevicesQuestion
from ascendsim.studies.engine.point import StudyPoint
from ascendsim.studies.engine.run import Budget, Engine, Store, calls_table
from ascendsim.studies.hardware.figures import enlargings
from ascendsim.studies.hardware.gains import study_hardware
from ascendsim.studies.hardware.records import DesignQuestion, Question, StudiedLayer
from ascendsim.studies.identify import folder as probe_folder
from ascendsim.studies.identify import vectors as probes
from ascendsim.studies.levers import study_levers
from ascendsim.studies.modes.choice import Axes, ConvCase, PrecisionQuestion, SyntheticTensors
from ascendsim.studies.modes.measure import PrecisionPoint, answer, case_errors, study_precision
from ascendsim.studies.sweep import Sweep, float64_references, judge
from ascendsim.studies.traffic import estimate_call, study_traffic
from ascendsim.studies.tuning.records import TilingQuestion
from ascendsim.studies.tuning.study import set_beside, study_tiling
from ascendsim.studies.tuning.tune import INDEX, export, exported_plans
from ascendsim.studies.uncertainty import intervals
from ascendsim.studies.verdicts import ratios
from ascendsim.validate.calibrate import calibrate, calibrated_toml
from ascendsim.validate.compare import grouped, pipe_errors, reached, slices, summarise
from ascendsim.validate.coverage import MeasuredPlan, measured_times, ranked_anew
from ascendsim.validate.msprof import read_msprof
from ascendsim.validate.run import (
    compare_rows,
    noise_by_distance,
    quoted_rows,
    ranking_noise,
    rankings,
    tuning_noise,
)
from ascendsim.validate.schema import MeasuredRow, read_rows
from tests.helpers.guarded_calls import PROBLEM, PRODUCT, STORED, TENSORS, each, in_folder

# --- What is exported: what the package names as public, a document shows, or the command takes. -------

ROOT = Path(ascendsim.__file__).parent
PAGES = ROOT.parent
# Rooms without `__all__` whose functions are called by name from outside: all of them are drawn, those of
# compiled kernels apart, which take memory laid out as they need it.
OPEN = ("numerics", "ops/reference")
KERNELS = "numerics/compiled"
ENTRY = "ascendsim.numerics.compiled.accumulate"
# Rooms that the command and the reports call.
CALLED, CALLERS = ("ascendsim.studies.", "ascendsim.validate."), ("cli", "report")


def name_of(value):
    """Name a callable by where it is defined, so that it has one name from wherever it is imported."""
    return f"{value.__module__}.{value.__qualname__}".removeprefix("ascendsim.")


def exported():
    """Return everything callable that is exported, by name."""
    found = {}
    for module, name in {*_listed(), *_shown(), *_open(), *_taken()}:
        value = getattr(importlib.import_module(module), name, None)  # none: a name for type checkers
        if callable(value) and str(getattr(value, "__module__", "")).startswith("ascendsim."):
            found[name_of(value)] = value
    return found


def shown():
    """Return the names of what documents and examples import from the package."""
    values = (getattr(importlib.import_module(module), name) for module, name in _shown())
    return {name_of(value) for value in values if callable(value)}


def _module_of(path):
    parts = ("ascendsim", *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _listed():
    for path in ROOT.rglob("*.py"):
        if "__all__ = [" in path.read_text():
            module = importlib.import_module(_module_of(path))
            yield from ((module.__name__, name) for name in module.__all__)


def _shown():
    pages = [PAGES / "README.md", *(PAGES / "docs").rglob("*.md"), *(PAGES / "examples").glob("*.py")]
    texts = [path.read_text() for path in pages]
    for path in (PAGES / "examples").glob("*.ipynb"):
        texts += ["".join(cell["source"]) for cell in json.loads(path.read_text())["cells"]]
    for text in texts:
        yield from _imports(text)


def _imports(text):
    """Yield module and name of each import of ours in a text, in which code may be quoted or prompted."""
    lines = iter(line.strip().removeprefix(">>> ") for line in text.splitlines())
    for line in lines:
        if line.startswith("from ascendsim"):
            while "(" in line and ")" not in line:
                line += next(lines)
            node = ast.parse(line.split("#")[0].strip()).body[0]
            yield from ((node.module, alias.name) for alias in node.names)


def _open():
    for room in OPEN:
        for path in (ROOT / room).rglob("*.py"):
            module = _module_of(path)
            if path.is_relative_to(ROOT / KERNELS) and module != ENTRY:
                continue
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                    yield module, node.name


def _taken():
    for room in CALLERS:
        for path in (ROOT / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith(CALLED):
                    yield from ((node.module, alias.name) for alias in node.names)


# --- A small call of each study, comparison and report: what the command runs, asked from Python. ------

LAYERS = (StudiedLayer("small", PROBLEM, (True, True, False)),)
MEMORY = "links.memory.nominal_tb_per_s=1.7"


def engine():
    return Engine(Store(), 1), Budget()


def points():
    """Time points with changed figures, as a table."""
    asked = [StudyPoint(PROBLEM, PRODUCT, change.figures) for change in parse_changes(MEMORY)]
    outcome = engine()[0].answer(asked)
    return calls_table(outcome).records(), [(one.time_us, one.planned_us) for _, one in outcome]


def two_dies():
    """Ask what an all-reduce between two dies takes of a step of one layer."""
    return study_devices(DevicesQuestion("a layer", "910_93", LAYERS, ("step",)), *engine())[0].steps


def hardware():
    """Ask what a change is worth, and what each record says of it."""
    changes = (*parse_changes(MEMORY), *parse_changes("scalar.issue_cycles=x0.5"))
    asked = Question("a test", PRODUCT, LAYERS, changes, doubt=False)
    found, _ = study_hardware(asked, *engine())
    names = ("base_us", "same_us", "anew_us", "better_us", "unchanged_us", "share", "plan_share", "own_share")
    return found, [[getattr(gain, name) for name in names] for gain in found.gains]


def codesign():
    """Ask for designs within a cost."""
    groups = (parse_changes("cores.cube=12"), parse_changes(MEMORY))
    cost = CostFormula("cores.cube / 3 + links.memory.nominal_tb_per_s")
    return study_codesign(
        DesignQuestion("a test", PRODUCT, LAYERS, groups, cost, None, ("warm",), 1), *engine()
    )


def question(**options):
    return TilingQuestion("a layer", PRODUCT, PROBLEM, "grad_input", starts=("warm",), **options)


def tuned(folder):
    """Tune a plan with few trials, and write what was found."""
    found, tuner = study_tiling(question(trials=3, doubt=False), *engine())
    export(folder, tuner, 2)
    index = (folder / INDEX).read_text()
    return found, found.saved("warm"), index, exported_plans(folder, "grad_input")


def swept():
    """Say between what a call lies; its time is made up, as the doors that time calls are held themselves."""
    (found,) = intervals([Sweep.of(PRODUCT, _made_up_call)])
    apart = ratios([found, replace(found, usual_us=found.usual_us / 3)])
    return found, apart, [(effect.span_us, effect.changes, effect.largest_change) for effect in found.effects]


def _made_up_call(profile, _plans):
    time_us = 1 + profile.launch.per_core_us / 3 + profile.figures["scalar.start_us"].value / 7
    return SimpleNamespace(time_us=time_us, cycles=round(1000 * time_us), plans={}, kernels=())


def counted():
    """Count the bytes of a call."""
    layer = StudiedLayer("a layer", PROBLEM, (True, True, True))
    question = TrafficQuestion("a layer", PRODUCT, (layer,))
    return study_traffic(question, partial(estimate_call, {}))


def levers():
    """Change each figure of a product alone; the times are made up, as of intervals."""
    return study_levers(LeverQuestion("a layer", PRODUCT), _made_up_call, 1)


def modes():
    """Ask how exact the modes are."""
    axes = Axes(ascendsim.load_profile(PRODUCT), ("float16", "float32"), (0, 1))
    case = ConvCase(
        "a", PROBLEM, (True, True, True), 1, "long-tailed", SyntheticTensors(PROBLEM, "long-tailed", 0)
    )
    errors = case_errors(answer(PrecisionPoint(axes, case)).text)
    study = study_precision(PrecisionQuestion("a", axes, (case,)), Engine(Store(), 1), Budget())
    return errors, study.rows, study.best, study.nearest


def judged(scale):
    """Judge gradients that were computed beforehand."""
    tensors = STORED[scale, "float32"]
    references = float64_references(PROBLEM, *tensors, (True, True, True))
    return references, judge(computed(scale), references)


@cache
def computed(scale):
    """Return a result computed once, before any mode is set."""
    given = *STORED[scale, "float32"], [16], 1, 1, 1, False, 0, 1, [True] * 3, 0
    return ascendsim.convolution_backward(*given, product=PRODUCT, timing=False)


def probed(folder):
    """Write a probe, answer it by the simulator and read the answers."""
    answers = {
        case: probes.simulated(case, PRODUCT) for case in probe_folder.write_probe(folder, ("float16",))
    }
    probe_folder.write_outputs(folder, answers)
    with np.load(folder / "inputs.npz") as inputs:
        written = [inputs[name] for name in inputs]
    return written, list(probe_folder.read_outputs(folder).values())


@cache
def rows():
    """Return the quickest rows that are quoted, read before any mode is set."""
    readable = [row for row in quoted_rows() if isinstance(row, MeasuredRow)]
    return [row for row in readable if row.id.startswith("pto-gemm-")][:6]


def compared():
    """Compare measurements, and sum up."""
    found = compare_rows(rows())
    errors = [case.error for case in found.cases]
    ranked = rankings(found.cases)
    groups = (
        grouped(found.cases),
        slices(found.cases),
        pipe_errors(found.cases),
        ranked,
        noise_by_distance(ranked),
        [ranking_noise(ranking.compared) for ranking in ranked],
        tuning_noise(),
    )
    return found.cases, errors, summarise(found.cases), reached(found.cases), groups


def calibrated():
    """Fit figures on three copies."""
    sizes = {"a": (4096, 236.0), "b": (16384, 306.0), "c": (65536, 590.0)}
    moves = [
        MeasuredRow(name, PRODUCT, "move", path="GM_L1", bytes=size, measured_cycles=cycles)
        for name, (size, cycles) in sizes.items()
    ]
    found = calibrate(moves, PRODUCT)
    return found, found.error("left_out"), calibrated_toml(found, PRODUCT, "rows.csv", "0")


def read(folder):
    """Read measured tables of several kinds."""
    path = folder / "op_summary.csv"
    columns = ["Op Name", "OP Type", "Task Duration(us)", "Block Num", "Input Shapes", "Input Data Types"]
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow([*columns, "Output Shapes"])
        for time in (12.1, 11.7):
            table.writerow(["mm", "MatMulV3", time, 20, '"512,256;384,256"', "DT_BF16;DT_BF16", '"512,384"'])
    profile = read_msprof(path, PRODUCT)
    quoted = read_rows(QUOTED)[:40], quoted_rows()[:40]
    times = folder / "kernel_details.csv"
    times.write_text("Type,Duration(us),Input Shapes\n" + "Conv3DBackpropFilterV2,0.1,1\n" * 3)
    with times.open("a") as file:
        file.write("Conv3DBackpropFilterV2,0.3,1\n")
    return profile, measured_times([times], "grad_weight", 2), quoted


MEASURED = [MeasuredPlan(str(at), 10 + at / 7, 9 + at / 3) for at in range(4)]


def ranked():
    """Rank measured plans anew."""
    return ranked_anew(MEASURED), [plan.error for plan in MEASURED]


def reported():
    """Make the document of a report, and draw its roofline."""
    profile = ascendsim.load_profile(PRODUCT)
    result = ascendsim.estimate(PROBLEM, product=profile)
    document = run_document("a layer", {}, [CallReport(result, profile)], [])
    [product] = document["products"]
    return product, svg(roofline_picture(points_of(product, profile), roof_of(product, profile)).chart)


QUOTED = Path(str(files("ascendsim.validate") / "quoted.csv"))
PROBED, TUNED, READ = in_folder(probed), in_folder(tuned), in_folder(read)
STUDIES = {
    "report.calls.points_of": [reported],
    "report.calls.roof_of": [reported],
    "report.calls.roofline_picture": [reported],
    "report.page.charts.svg": [reported],
    "report.document.run_document": [reported],
    "studies.codesign.study_codesign": [codesign],
    "studies.engine.measure.measure": [points],
    "studies.engine.run.Engine": [points],
    "studies.engine.run.calls_table": [points],
    "studies.hardware.figures.enlargings": [lambda: enlargings(ascendsim.load_profile(PRODUCT))],
    "studies.devices.study_devices": [two_dies],
    "studies.hardware.gains.study_hardware": [hardware],
    **{
        f"studies.identify.folder.{name}": [PROBED]
        for name in ("read_outputs", "write_outputs", "write_probe")
    },
    "studies.identify.vectors.simulated": [PROBED],
    "studies.levers.steps_of": [levers],
    "studies.levers.study_levers": [levers],
    "studies.traffic.estimate_call": [counted],
    "studies.traffic.study_traffic": [counted],
    "studies.uncertainty.intervals": [swept],
    "studies.verdicts.ratios": [swept],
    "studies.records.parts_us": [points],
    "studies.modes.choice.SyntheticTensors": [modes],
    "studies.modes.measure.study_precision": [modes],
    "studies.modes.choice.PrecisionStudy": [modes],
    "studies.sweep.float64_references": each(judged),
    "studies.sweep.judge": each(judged),
    "studies.tuning.study.set_beside": [lambda: set_beside(question(), {"base_m": 32, "base_n": 32})],
    "studies.tuning.tune.export": [TUNED],
    "studies.tuning.tune.exported_plans": [TUNED],
    "studies.tuning.study.study_tiling": [TUNED],
    **{f"validate.compare.{name}": [compared] for name in ("MeasuredCase", "grouped", "summarise")},
    **{f"validate.compare.{name}": [compared] for name in ("pipe_errors", "slices")},
    **{f"validate.calibrate.{name}": [calibrated] for name in ("calibrate", "calibrated_toml")},
    "validate.msprof.read_msprof": [READ],
    "validate.coverage.MeasuredPlan": [ranked],
    "validate.coverage.measured_times": [READ],
    "validate.coverage.ranked_anew": [ranked],
    "validate.run.quoted_rows": [READ],
    **{f"validate.run.{name}": [compared] for name in ("noise_by_distance", "rankings")},
    "validate.run.tuning_noise": [compared],
    "validate.schema.read_rows": [READ],
    "validate.run.compare_rows": [compared],
    "validate.compare.reached": [compared],
}


# --- A small call of each door for torch: forward, backward, and what a simulation has written down. ---

KINDS = ("Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d")


@cache
def leaves(scale):
    """Return grad_output, input, weight and bias, made before any mode is set."""
    import torch

    grad_output, input, weight = (torch.from_numpy(x.copy()) for x in TENSORS[scale])
    return grad_output, input, weight, weight[:, 0, 0, 0].clone()


def differentiated(scale, by, run):
    """Return an output and the gradients of all that it was made of."""
    grad_output, *given = leaves(scale)
    given = [tensor.clone().requires_grad_() for tensor in given]
    made = run(*given)
    made.backward(grad_output.reshape(made.shape) if by is None else by)
    return [made, *(tensor.grad for tensor in given)]


def convolved(scale):
    """Convolve by name, plainly and under autocast."""
    import torch

    from ascendsim.torch import Setting, convolution

    setting = Setting(PRODUCT)
    plain = differentiated(scale, None, lambda x, w, b: convolution(x, w, b, 1, 1, setting=setting))
    with torch.autocast("cpu", torch.bfloat16):
        output = convolution(*leaves(scale)[1:], 1, 1, setting=setting)
    return plain, output.float()


def simulated(scale):
    """Convolve under the mode, and read its records."""
    import torch

    from ascendsim.torch import Simulation

    with Simulation(PRODUCT, errors="every") as simulation:
        made = differentiated(scale, None, lambda x, w, b: torch.nn.functional.conv2d(x, w, b, padding=1))
    records = [(one.cycles, one.time_us, one.errors) for one in simulation.records]
    return made, records, simulation.table()


@cache
def module(kind):
    """Return a module and what goes in, and a gradient of what comes out."""
    import torch

    from ascendsim import torch as door

    torch.manual_seed(29)
    made = getattr(door, kind)(4, 6, 3, padding=1, setting=door.Setting(PRODUCT))
    rank = int(kind[-2])
    return made, torch.randn(2, 4, *(5,) * rank), torch.randn(2, 6, *(5,) * rank)


def by_module(kind):
    """Return a call that runs a module forth and back."""

    def call():
        made, input, grad = module(kind)
        made.zero_grad()
        output = made(input)
        output.backward(grad)
        return [output, made.weight.grad.clone(), made.bias.grad.clone()]

    return call


SIMULATED = each(simulated)
TORCH = {
    "torch.autograd.convolution": each(convolved),
    "torch.dispatch.Simulation": SIMULATED,
    "torch.ledger.Record": SIMULATED,
    **{f"torch.autograd.{kind}": [by_module(kind)] for kind in KINDS},
}


# --- Exports that the test of guarded doors does not call, with the reason why not. --------------------

# Reason -> lines of MODULE: NAMES
NOT_CALLED = {
    "says what is wrong": """
        errors: AclnnError AscendSimError CapacityError ConfigError DataError ProgramError ShapeError
            StoppedError UnsupportedError WorkerError
    """,
    "a record, whose numbers are those of guarded functions, or whole numbers alone": """
        aclnn.c_values: Out aclDataType aclFormat aclSysParamOpt
        aclnn.handles: AclTensor
        numerics.accumulation: IntegerSum AccumulationModel products_of rounds_once MathSettings
        numerics.factor: Cuts Elements Factor FactorRange Threads Values
        numerics.dtypes: Control OverflowRules DType Integer dtype find itemsize_of name_of fraction_bits
        numerics.format_rounding: require_choice require_float32 CodeTable
        numerics.metric_chunks: ChunkTotals Column Standards Verdict standards
        numerics.metrics: ErrorMetrics Specials specials_of
        numerics.casts: is_stored
        ops.many: Item
        ops.options.asked: planned_call
        ops.options.call: options_of
        ops.schedules.vector.channel_sums: bias_parts
        ops.matmul: MatmulTiling
        ops.plan: Plan Tiling shares
        ops.problems.convolution: ConvProblem
        ops.problems.layers: layer_problem
        ops.problems.matmul: MatmulProblem
        ops.schedules.base: Schedule
        ops.schedules.dgrad.nest: Dgrad DgradTiles
        ops.schedules.matmul: Matmul
        ops.schedules.blocks: tile_rings Writeback
        ops.schedules.wgrad.nest: Wgrad
        ops.schedules.wgrad.tasks: WgradTiles
        ops.tiling.request: PlanRequest PartialPlan
        program.walk: Axis alike
        program.instruction: SlotToSlot instructions
        program.nest: Nest
        program.places: Slot Gm GmTensor
        program.program: NestProgram ProgramBuilder
        instructions.vector: vector_cost
        profile.files: ShippedProduct
        profile.records: Generation Figure
        program.kernel: Core CoreWork Kernel Phase unknown_costs
        report.document: CallReport
        rules.typed: ConvTbcBackwardCall ConvolutionBackwardCall CubeMathType TensorDescription Decision
        rules.loader: load_rules product_names rule_set_names rules_digest known_product rule_product
        rules.resolve: resolve
        studies.arithmetic.math: Attribution Judged Math as_dot as_text reduction_tree
        studies.devices_records: DevicesAnswer DevicesQuestion
        studies.engine.point: StudyPoint code_version
        studies.engine.run: Budget require_answer Store
        studies.hardware.records: Design DesignAnswer DesignQuestion Doubt LayerGain Gain HardwareAnswer
            NewPlan Question StudiedLayer
        studies.identify.records: Agreeing Identification
        studies.modes.choice: ConvCase ModeSummary Axes PrecisionQuestion Worst
            part_of
        studies.modes.records: CaseErrors FormatShare GradientError PassLimits
        studies.accounts: EnergyEvent Lever LeverAnswer LeverQuestion TrafficAnswer TrafficQuestion
            energy_between energy_pj lacking
        studies.records: StudyAnswer Interval JudgedGradient Ratio Spent
        studies.verdicts: GainVerdict condition_words
        studies.table: Table form microseconds numbers percent require_table_name saving share
            text_table three_digits us words
        studies.sweep: Sweep
        studies.uncertainty: interval_size
        studies.tuning.records: Beside BufferUse Course CyclesPart ReachedTime Started TilingAnswer
            TilingQuestion Trial StartCycles
        studies.tuning.tune: Tuner point_of
        torch.passes: Setting
        validate.calibrate: Calibration
        validate.compare: Group Summary
        validate.coverage: Coverage comparison_line known_coverage MeasuredRanking
        validate.run: Ranking Validation
        validate.schema: Unusable MeasuredRow
        workloads: load_workload workload_names
        workloads.records: Layer LeftOut Workload counted merged toml_text
    """,
    "moves bytes as they are, or looks at names": """
        aclnn.c_calls: aclDestroyAclOpExecutor aclSetAclOpExecutorRepeatable aclSetInputTensorAddr
            aclSetOutputTensorAddr aclSetTensorAddr aclCreateBoolArray aclCreateIntArray aclCreateTensor
            aclDestroyIntArray aclDestroyTensor
        aclnn.c_values: aclFinalize aclGetRecentErrMsg aclInit aclrtCreateStream aclrtCtxGetSysParamOpt
            aclrtCtxSetSysParamOpt aclrtDestroyStream aclrtFree aclrtMalloc aclrtMemcpy aclrtResetDevice
            aclrtSetDevice aclrtSynchronizeStream
        profile.changes: contradiction
        pto.kernel: read_pto
        profile.files: is_file_name configs_directory
        torch.network: read_network
        torch.dispatch: record
        validate.schema: read_lines
    """,
    "an instruction, or compiled code, which runs under the guard of what runs it": """
        native.function: Native
        instructions.vector: Add CopyGmToUb CopyUbToGm
        instructions.elementwise: Binary Compare MulAdd Select Unary
        instructions.rowwise: BinaryRows Brcb ReduceRows
        instructions.flags: BarrierAll SetFlag WaitFlag
    """,
    "a step of a twin, code_table, error_metrics or reference_gradients, shown nowhere": """
        numerics.accumulation_twins: add_block align block_add exact_sum exponent low_half output
            product rounded seq seq_muladd term total tree
        numerics.casts: floor_log2
        numerics.dtypes: positive_values value_of_code
        numerics.format_rounding: field_value
        numerics.metric_chunks: chunk_totals root_mean_square round_reference
        ops.reference.call: merged_dgrad merged_wgrad passed_dgrad any_dgrad phased_dgrad
            ordered_product blocks_in_parts any_wgrad winograd_wgrad
        ops.reference.ordered: numbered_pixels streamed_elements append_slices im2col ordered_dgrad
            reduction_by_groups reduction_of sources ordered_wgrad add_as_tree add_in_order add_to_zeros
    """,
    "a step of the product of a guarded call, on whose accumulate it ends; shown nowhere": """
        numerics.compiled.accumulate: GatheredProduct WrittenOut cuts_of_products prepared product_of
            products_of PlannedProducts planned_matrices
        numerics.factor: cuts_of is_known matrix_factor
    """,
    "takes seconds; what it computes with is looked at below": """
        precision: identify
        studies.identify.judge: identify_outputs
    """,
}


def not_called():
    """Return the reasons by name."""
    found = {}
    for reason, text in NOT_CALLED.items():
        for word in text.split():
            if word.endswith(":"):
                module = word
            else:
                found[f"{module[:-1]}.{word}"] = reason
    return found
