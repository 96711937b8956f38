"""`ascendsim study precision`: which format and cubeMathType for a layer, a network or recorded tensors."""

from __future__ import annotations

import argparse
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ascendsim.cli.request import Network, Single, natural, problem_of, read_request
from ascendsim.cli.studies.output import add_products, products_of
from ascendsim.errors import ConfigError, DataError

if TYPE_CHECKING:
    from ascendsim.studies.modes.choice import ConvCase, PrecisionQuestion, Tensors


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


def cases_of(arguments: Any) -> tuple[str, list[ConvCase]]:
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


def _recorded(path: Path, arguments: Any) -> ConvCase:
    from ascendsim import ConvProblem
    from ascendsim.studies.modes.choice import ConvCase

    request = read_request(Namespace(**vars(arguments) | {"npz": path}))
    assert isinstance(request, Single)
    assert request.arrays is not None
    problem = ConvProblem(**request.options)
    problem.check_grad_output(request.arrays["grad_output"].shape)
    with path.open("rb") as file:
        digest = file_digest(file, "sha256").hexdigest()
    data = f"recorded, sha256 {digest[:16]}, {arguments.codes or 'values'}"
    load = Recorded(path, arguments.codes)
    for name, values in load().items():
        _require_finite(f"{path}: {name}", values)
    return ConvCase(path.stem, problem, request.mask, 1, data, load)


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


def _drawn(request: Single | Network, arguments: Any) -> Iterator[ConvCase]:
    from ascendsim import ConvProblem
    from ascendsim.studies.modes.choice import ConvCase, SyntheticTensors

    kinds: Sequence[str] = arguments.data or ("normal",)
    for kind in kinds:
        data = f"{kind}, seed {arguments.seed}"
        ending = f", {kind}" if len(kinds) > 1 else ""
        if isinstance(request, Single):
            problem = ConvProblem(**request.options)
            load = SyntheticTensors(problem, kind, arguments.seed)
            yield ConvCase(f"{request.title}{ending}", problem, request.mask, 1, data, load)
            continue
        for layer in request.layers:
            problem = problem_of(layer, request.batch)
            load = SyntheticTensors(problem, kind, arguments.seed)
            yield ConvCase(f"{layer.name}{ending}", problem, request.mask_of(layer), layer.count, data, load)


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
    from ascendsim.cli.studies.output import add_command, add_engine_options

    command = add_command(
        kinds,
        "precision",
        "which format and cubeMathType, by error and time",
        "Hold the gradients of a layer, a network or recorded tensors against float64 under every format, "
        "cubeMathType, accumulation model and loss scale; name the cheapest mode that passes.",
        _EXAMPLES,
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
    from ascendsim.cli.studies.output import engine_of, output_of
    from ascendsim.report.studies.precision import precision_answered, precision_compared, precision_rows
    from ascendsim.studies.modes.measure import study_precision
    from ascendsim.studies.table import Table

    _check(arguments)
    questions = _questions(arguments)
    with engine_of(arguments) as (engine, budget):
        studies = [study_precision(question, engine, budget) for question in questions]
    # The table first: where it cannot be written, nothing is printed but the reason.
    if arguments.table is not None:
        rows = [row for study in studies for row in precision_rows(study)]
        Table.of_records("Gradients", rows).write(arguments.table)
    output_of(arguments).write(studies, precision_answered, precision_compared)
    return 0


def _questions(arguments: Any) -> list[PrecisionQuestion]:
    """Return a question for each product."""
    from ascendsim.profile import load_profile
    from ascendsim.studies.modes.choice import Axes, PrecisionQuestion
    from ascendsim.validate.run import tuning_noise

    profiles = [load_profile(product) for product in products_of(arguments)]
    title, cases = cases_of(arguments)
    models = tuple(None if model == "default" else model for model in arguments.accumulation)
    varied = arguments.cube_math_type, models, arguments.loss_scale, arguments.rules
    return [
        PrecisionQuestion(
            title,
            Axes(profile, arguments.dtype or DTYPES, *varied),
            tuple(cases),
            arguments.limit,
            tuning_noise().median,
        )
        for profile in profiles
    ]


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
