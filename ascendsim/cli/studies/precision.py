"""`ascendsim study precision`: which format and cubeMathType for a layer, a network or recorded tensors."""

from __future__ import annotations

import argparse
import json
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ascendsim.cli.request import Network, Single, natural, problem_of, read_request
from ascendsim.cli.studies.output import add_products, products_of
from ascendsim.errors import ConfigError, DataError

if TYPE_CHECKING:
    from ascendsim.profile import Profile
    from ascendsim.studies.engine.run import Budget, Engine
    from ascendsim.studies.modes.choice import Case, PrecisionStudy, Tensors


@dataclass(frozen=True)
class Recorded:
    """Tensors of a user's file."""

    path: Path
    codes: str | None

    def __call__(self) -> Tensors:
        """Read grad_output, input and weight."""
        import numpy as np

        from ascendsim.cli.tensors import npz_tensors, read_npz
        from ascendsim.numerics.formats.casts import decode
        from ascendsim.numerics.formats.dtypes import dtype

        held = npz_tensors(self.path, read_npz(self.path), self.codes)
        each = {"grad_output": held.grad_output, "input": held.input, "weight": held.weight}
        return {name: decode(x, dtype(x.dtype)).astype(np.float64) for name, x in each.items()}


def cases_of(arguments: Any) -> tuple[str, list[Case]]:
    """Return a title, and the cases that the words name.

    Raises   as `read_request`; ConfigError for options that would be ignored
    """
    if arguments.npz is not None:
        if arguments.data is not None:
            raise ConfigError("--data cannot be combined with --npz: the files are the data")
        files = sorted(arguments.npz.glob("*.npz")) if arguments.npz.is_dir() else [arguments.npz]
        if not files:
            raise DataError(f"{arguments.npz}: this folder has no .npz file")
        return arguments.npz.name, [_recorded(file, arguments) for file in files]
    if arguments.codes is not None:
        raise ConfigError("--codes goes with --npz")
    request = read_request(arguments)
    return _title(request), list(_drawn(request, arguments))


def _title(request: Single | Network) -> str:
    if isinstance(request, Single):
        return request.title
    return f"{request.workload.title}, batch {request.batch}"


def _recorded(path: Path, arguments: Any) -> Case:
    from ascendsim import ConvProblem
    from ascendsim.studies.modes.choice import Case

    request = read_request(Namespace(**vars(arguments) | {"npz": path}))
    assert isinstance(request, Single)
    assert request.arrays is not None
    problem = ConvProblem(**request.options)
    problem.check_grad_output(request.arrays["grad_output"].shape)
    digest = sha256(path.read_bytes()).hexdigest()
    data = f"recorded, sha256 {digest[:16]}, {arguments.codes or 'values'}"
    load = Recorded(path, arguments.codes)
    for name, values in load().items():
        _require_finite(f"{path}: {name}", values)
    return Case(path.stem, problem, request.mask, 1, data, load)


def _require_finite(where: str, values: Any) -> None:
    """Refuse numbers that every format loses: an error says nothing of them, and no mode would pass.

    Raises   DataError
    """
    import numpy as np

    wrong = np.argwhere(~np.isfinite(values))
    if len(wrong):
        first = tuple(int(at) for at in wrong[0])
        raise DataError(
            f"{where} has {len(wrong)} of {values.size} values that are NaN or infinite, the first at "
            f"{first}; a study of precision needs finite ones: leave this step out, or record one that "
            "does not overflow"
        )


def _drawn(request: Single | Network, arguments: Any) -> Iterator[Case]:
    from ascendsim import ConvProblem
    from ascendsim.studies.modes.choice import Case, Drawn

    kinds: Sequence[str] = arguments.data or ("normal",)
    for kind in kinds:
        data = f"{kind}, seed {arguments.seed}"
        ending = f", {kind}" if len(kinds) > 1 else ""
        if isinstance(request, Single):
            problem = ConvProblem(**request.options)
            load = Drawn(problem, kind, arguments.seed)
            yield Case(f"{request.title}{ending}", problem, request.mask, 1, data, load)
            continue
        for layer in request.layers:
            problem = problem_of(layer, request.batch)
            load = Drawn(problem, kind, arguments.seed)
            yield Case(f"{layer.name}{ending}", problem, request.mask_of(layer), layer.count, data, load)


_EXAMPLES = """\
examples:
  ascendsim study precision s3b1_3x3 --batch 4 --dtype float16,float32
  ascendsim study precision s3 --batch 4
  ascendsim study precision --network alexnet --data normal,long-tailed --loss-scale 1,4096
  ascendsim study precision --npz recorded --loss-scale 1,4096 --out page
"""
LIMIT = 2.0**-10  # T of float16 in the operator test kit, as a bound of a norm
MODELS = ("default", "seq:RNE", "align:cube_k:F24:RZ:acc")
DTYPES = ("float16", "bfloat16", "float32")


def add_precision(kinds: Any) -> Any:
    """Add the command to the kinds of studies and return it."""
    from ascendsim.cli.request import add_problem
    from ascendsim.cli.studies.output import add_engine_options

    command = kinds.add_parser(
        "precision",
        help="which format and cubeMathType, by error and time",
        description="Hold the gradients of a layer, a network or recorded tensors against float64 under "
        "every format, cubeMathType, accumulation model and loss scale; name the cheapest mode that passes.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_problem(command)
    _add_axes(command.add_argument_group("what is varied; several of each with commas between"))
    add_engine_options(command)
    command.set_defaults(command=precision)
    return command


def _add_axes(axes: Any) -> None:
    add_products(axes)
    axes.add_argument("--dtype", type=_words, help="formats of the tensors (float16,bfloat16,float32)")
    axes.add_argument(
        "--cube-math-type",
        type=_numbers(int),
        default=(0, 1, 2, 3),
        metavar="N",
        help="cubeMathTypes (0,1,2,3)",
    )
    axes.add_argument(
        "--accumulation",
        type=_words,
        default=MODELS,
        metavar="MODEL",
        help=f"accumulation models; `default` is the product's ({','.join(MODELS)})",
    )
    axes.add_argument(
        "--loss-scale", type=_numbers(float), default=(1.0,), metavar="X", help="factors of grad_output (1)"
    )
    axes.add_argument("--data", type=_words, help="of tensors that are drawn: normal, long-tailed (normal)")
    axes.add_argument("--seed", type=natural, default=0, help="of tensors that are drawn (0)")
    axes.add_argument("--codes", metavar="FORMAT", help="format of the codes in --npz, such as bfloat16")
    axes.add_argument(
        "--limit", type=float, default=LIMIT, help="largest error with which a mode passes (2^-10)"
    )
    axes.add_argument("--rules", default="documented", metavar="NAME", help="rule set (documented)")


def _words(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(","))


def _numbers(kind: Callable[[str], Any]) -> Callable[[str], tuple[Any, ...]]:
    def numbers(text: str) -> tuple[Any, ...]:
        try:
            return tuple(kind(part) for part in text.split(","))
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not numbers with commas between") from None

    return numbers


def precision(arguments: Any) -> int:
    """Measure, answer, print, and write what was asked for."""
    from ascendsim.cli.studies.output import engine_of
    from ascendsim.profile import load_profile

    _check(arguments)
    profiles = [load_profile(product) for product in products_of(arguments)]
    title, cases = cases_of(arguments)
    with engine_of(arguments) as (engine, budget):
        studies = [_measured(arguments, profile, title, cases, engine, budget) for profile in profiles]
    _print(studies, arguments, profiles)
    return 0


def _measured(
    arguments: Any, profile: Profile, title: str, cases: Sequence[Case], engine: Engine, budget: Budget
) -> PrecisionStudy:
    """Measure all cases on a product."""
    from ascendsim.studies.engine.run import Engine
    from ascendsim.studies.modes.choice import PrecisionStudy
    from ascendsim.studies.modes.measure import Axes, PrecisionPoint, answer, case_errors
    from ascendsim.validate.run import tuning_noise

    models = tuple(None if model == "default" else model for model in arguments.accumulation)
    axes = Axes(
        profile,
        arguments.dtype or DTYPES,
        arguments.cube_math_type,
        models,
        arguments.loss_scale,
        arguments.rules,
    )
    points = [PrecisionPoint(axes, case) for case in cases]
    # The engine asks no more of a point than its key and label, and hands it back.
    own = Engine(engine.store, engine.jobs, engine.scheduler, engine.advance, cast("Any", answer))
    outcome = own.answer(cast("Any", points), budget)
    found = []
    for _, one in outcome:
        if one is not None and one.reason:
            raise ConfigError(one.reason)
        if one is not None:
            found.append(case_errors(one.text))
    # The answer is over all cases: without some of them it would be another one.
    if outcome.left:
        raise ConfigError(
            f"study precision: time or trials are used up with {outcome.left} of {len(cases)} cases left; "
            "what was measured is kept: run the same command again to go on"
        )
    data = tuple(dict.fromkeys(case.data for case in cases))
    asked = arguments.limit, len(models), data, tuple(found)
    return PrecisionStudy(title, profile.variant, *asked, tuning_noise().median)


def _check(arguments: Any) -> None:
    """Refuse values of axes that mean nothing.

    Raises   ConfigError, UnsupportedError
    """
    from ascendsim.cli.tensors import require_tensor_dtype
    from ascendsim.numerics.accumulation.models import AccumulationModel
    from ascendsim.studies.modes.choice import DATA

    for name in arguments.dtype or ():
        require_tensor_dtype(name)
    for model in arguments.accumulation:
        if model != "default":
            AccumulationModel.parse(model)
    for number in arguments.cube_math_type:
        if number not in range(4):
            raise ConfigError(f"--cube-math-type {number}: it must be 0, 1, 2 or 3")
    for scale in (*arguments.loss_scale, arguments.limit):
        if not 0 < scale < float("inf"):
            raise ConfigError(f"--loss-scale and --limit must be above 0, not {scale:g}")
    for kind in arguments.data or ():
        if kind not in DATA:
            raise ConfigError(
                f"--data {kind}: it must be {' or '.join(DATA)}, or give recorded tensors by --npz"
            )


def _print(studies: Sequence[PrecisionStudy], arguments: Any, profiles: Sequence[Profile]) -> None:
    from ascendsim.report.studies.precision import precision_rows
    from ascendsim.studies.engine.run import write_table

    # The table first: where it cannot be written, nothing is printed but the reason.
    if arguments.table is not None:
        write_table([row for study in studies for row in precision_rows(study)], arguments.table)
    # The page is written even where the reader of what is printed leaves early, as `head` does.
    try:
        told = _print_json if arguments.json else _print_tables
        told(studies)
    finally:
        _write_page(studies, arguments, profiles)


def _print_json(studies: Sequence[PrecisionStudy]) -> None:
    from ascendsim.report.studies.precision import precision_compared, precision_record

    records = [precision_record(study) for study in studies]
    several = len(studies) > 1
    said = {"answer": precision_compared(studies), "answers": records} if several else records[0]
    print(json.dumps(said, indent=1, allow_nan=False))


def _write_page(studies: Sequence[PrecisionStudy], arguments: Any, profiles: Sequence[Profile]) -> None:
    from ascendsim.cli.studies.output import write_study_page
    from ascendsim.report.studies.beside import facts as study_facts
    from ascendsim.report.studies.hardware import joined
    from ascendsim.report.studies.precision import precision_compared, precision_page, precision_title
    from ascendsim.studies.sweep import ranged_figures

    pages = []
    for study, profile in zip(studies, profiles, strict=True):
        assumed = len(ranged_figures(profile))
        facts = study_facts(arguments.words, profile.variant, profile.content.hex(), assumed)
        pages.append(precision_page(study, facts))
    names = [study.variant for study in studies]
    page = pages[0]
    if len(studies) > 1:
        page = joined(precision_title(studies), pages, names, precision_compared(studies))
    write_study_page(arguments, page)


def _print_tables(studies: Sequence[PrecisionStudy]) -> None:
    from ascendsim.report.studies.precision import (
        DEFINITIONS,
        mode_table,
        parts_table,
        precision_compared,
        precision_sentence,
        reasons,
        refusals,
        share_table,
    )
    from ascendsim.report.terminal import make_console, print_table, print_text

    out = make_console()
    if len(studies) > 1:
        print_text(out, precision_compared(studies))
        out.print()
    for study in studies:
        print_text(out, precision_sentence(study))
        for line in reasons(study):
            print_text(out, line)
        print_table(out, mode_table(study))
        print_table(out, parts_table(study))
        print_table(out, share_table(study, every=False))
        out.print()
        for line in refusals(study):
            print_text(out, line)
    for word in ("error", "storage, cast, output, sums", "of terms", "passes limit", "misses rules", "us"):
        print_text(out, f"{word}: {DEFINITIONS[word]}")
