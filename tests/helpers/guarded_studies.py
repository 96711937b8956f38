"""A small call of each study, comparison and report: what the command runs, asked from Python."""

import csv
from functools import cache
from importlib.resources import files
from pathlib import Path

import numpy as np

import ascendsim
from ascendsim.profile import Cost, parse_changes
from ascendsim.report.calls import points_of, roof_of
from ascendsim.report.document import Run, run_document
from ascendsim.report.page.charts import roofline
from ascendsim.studies.codesign import DesignQuestion, study_codesign
from ascendsim.studies.engine.point import Point
from ascendsim.studies.engine.run import Budget, Engine, Store, rows_of
from ascendsim.studies.hardware.gains import study_hardware
from ascendsim.studies.hardware.plans import enlargings
from ascendsim.studies.hardware.records import Question, StudiedLayer
from ascendsim.studies.identify import folder as probe_folder
from ascendsim.studies.identify import vectors as probes
from ascendsim.studies.modes.choice import Case, Drawn, PrecisionStudy
from ascendsim.studies.modes.measure import Axes, PrecisionPoint, answer, case_errors
from ascendsim.studies.sweep import float64_references, interval, judge
from ascendsim.studies.tuning.records import TilingQuestion
from ascendsim.studies.tuning.study import set_beside, study_tiling
from ascendsim.studies.tuning.tune import INDEX, export, exported_plans
from ascendsim.validate.compare import grouped, pipe_errors, reached, slices, summarise
from ascendsim.validate.msprof import read_msprof
from ascendsim.validate.plans.measured import MeasuredPlan, measured_times, ranked_anew
from ascendsim.validate.run import compare_rows, quoted_rows, ranking_noise, rankings
from ascendsim.validate.schema import Row, read_rows
from tests.helpers.guarded_calls import PROBLEM, PRODUCT, STORED, each, in_folder

LAYERS = (StudiedLayer("small", PROBLEM, (True, True, False)),)
MEMORY = "links.memory.nominal_tb_per_s=1.7"


def engine():
    return Engine(Store(), 1), Budget()


def points():
    """Time points with changed figures, as a table."""
    asked = [Point(PROBLEM, PRODUCT, change.figures) for change in parse_changes(MEMORY)]
    outcome = engine()[0].answer(asked)
    return rows_of(outcome), [(one.time_us, one.planned_us) for _, one in outcome]


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
    cost = Cost("cores.cube / 3 + links.memory.nominal_tb_per_s")
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
    """Say between what a call lies."""
    found = interval(PRODUCT, _call)
    return found, [(effect.span_us, effect.changes, effect.largest_change) for effect in found.effects]


def _call(profile, plans):
    return ascendsim.estimate(PROBLEM, product=profile, output_mask=(True, False, False), tiling=plans)


def modes():
    """Ask how exact the modes are."""
    axes = Axes(ascendsim.load_profile(PRODUCT), ("float16", "float32"), (0, 1))
    case = Case("a", PROBLEM, (True, True, True), 1, "long-tailed", Drawn(PROBLEM, "long-tailed", 0))
    errors = case_errors(answer(PrecisionPoint(axes, case)).text)
    study = PrecisionStudy("a", PRODUCT, 0.01, 1, ("long-tailed",), (errors,))
    return errors, study.rows, study.cheapest, study.nearest


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
    readable = [row for row in quoted_rows() if isinstance(row, Row)]
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
        ranking_noise(ranked),
    )
    return found.cases, errors, summarise(found.cases), reached(found.cases), groups


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
    document = run_document("a layer", {}, [Run(result, profile)], [])
    [product] = document["products"]
    return product, roofline(points_of(product), roof_of(product, profile))


QUOTED = Path(str(files("ascendsim.validate") / "quoted.csv"))
PROBED, TUNED, READ = in_folder(probed), in_folder(tuned), in_folder(read)
STUDIES = {
    "report.calls.points_of": [reported],
    "report.calls.roof_of": [reported],
    "report.document.run_document": [reported],
    "report.page.charts.roofline": [reported],
    "studies.codesign.study_codesign": [codesign],
    "studies.engine.run.Engine": [points],
    "studies.engine.run.rows_of": [points],
    "studies.hardware.plans.enlargings": [lambda: enlargings(ascendsim.load_profile(PRODUCT))],
    "studies.hardware.gains.study_hardware": [hardware],
    **{
        f"studies.identify.folder.{name}": [PROBED]
        for name in ("read_outputs", "write_outputs", "write_probe")
    },
    "studies.identify.vectors.simulated": [PROBED],
    "studies.sweep.interval": [swept],
    "studies.modes.choice.Drawn": [modes],
    "studies.modes.measure.answer": [modes],
    "studies.modes.measure.case_errors": [modes],
    "studies.modes.choice.PrecisionStudy": [modes],
    "studies.sweep.float64_references": each(judged),
    "studies.sweep.judge": each(judged),
    "studies.tuning.study.set_beside": [lambda: set_beside(question(), {"base_m": 32, "base_n": 32})],
    "studies.tuning.tune.export": [TUNED],
    "studies.tuning.tune.exported_plans": [TUNED],
    "studies.tuning.study.study_tiling": [TUNED],
    **{f"validate.compare.{name}": [compared] for name in ("Case", "grouped", "summarise")},
    **{f"validate.compare.{name}": [compared] for name in ("pipe_errors", "slices")},
    "validate.msprof.read_msprof": [READ],
    "validate.plans.measured.MeasuredPlan": [ranked],
    "validate.plans.measured.measured_times": [READ],
    "validate.plans.measured.ranked_anew": [ranked],
    "validate.run.quoted_rows": [READ],
    **{f"validate.run.{name}": [compared] for name in ("ranking_noise", "rankings")},
    "validate.schema.read_rows": [READ],
    "validate.run.compare_rows": [compared],
    "validate.compare.reached": [compared],
}
