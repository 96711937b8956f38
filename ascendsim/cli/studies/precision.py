"""`ascendsim study precision`: which format and cubeMathType for a layer, a network or recorded tensors."""

from __future__ import annotations

import argparse
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import file_digest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ascendsim.cli.request import (
    DEFAULT_WORKLOAD,
    Mask,
    Network,
    Single,
    add_keyword,
    add_products,
    convolution_of,
    convolutions_of,
    left_out_words,
    natural,
    positive,
    read_request,
    require_convolution,
)
from ascendsim.cli.studies.output import products_of
from ascendsim.errors import ConfigError, DataError
from ascendsim.workloads import load_workload

if TYPE_CHECKING:
    from ascendsim.ops.problems.convolution import ConvProblem
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
        from ascendsim.numerics.casts import decode
        from ascendsim.numerics.dtypes import dtype

        held = npz_tensors(self.path, read_npz(self.path), self.codes)
        each = {"grad_output": held.grad_output, "input": held.input, "weight": held.weight}
        return {name: decode(x, dtype(x.dtype)).astype(np.float64) for name, x in each.items()}


def cases_of(arguments: Any) -> tuple[str, str, list[ConvCase]]:
    """Return a title, where the batch comes from, and the cases that the words name.

    Raises   as `read_request`; ConfigError for options that would be ignored
    """
    if arguments.npz is not None:
        if arguments.data is not None:
            raise ConfigError("--data cannot be combined with --npz: the files are the data")
        if arguments.images is not None:
            raise ConfigError("--images cannot be combined with --npz: all that is recorded is computed")
        files = sorted(arguments.npz.glob("*.npz")) if arguments.npz.is_dir() else [arguments.npz]
        if not files:
            raise DataError(f"{arguments.npz}: this folder has no .npz file")
        return arguments.npz.name, "", [_recorded(file, arguments) for file in files]
    if arguments.codes is not None:
        raise ConfigError("--codes goes with --npz")
    request = read_request(arguments, TRAINING_BATCH)
    if isinstance(request, Network):
        request = replace(request, workload=convolutions_of(request.workload, arguments.layer))
    cases = list(_drawn(request, arguments))
    return _title(request), _about(arguments, cases), cases


def _about(arguments: Any, cases: Sequence[ConvCase]) -> str:
    """Say which batch is timed, where it comes from, and of how many of its images gradients are computed."""
    network = load_workload(arguments.workload or DEFAULT_WORKLOAD) if arguments.input is None else None
    # A convolution of a network may take several images for each one of the batch.
    batch = arguments.batch or network.batch or TRAINING_BATCH if network else cases[0].batch
    told = f"Times are those of batch {batch}"
    if arguments.batch is None and network:
        told += (
            ", as the network's file says"
            if network.batch
            else ", a choice where the network names none (--batch)"
        )
    images = sorted({case.sample.input[0] for case in cases})
    if all(case.sample == case.problem for case in cases):
        return f"{told}; errors are those of all its images."
    some = " to ".join(map(str, dict.fromkeys((images[0], images[-1]))))
    smaller = sum(case.sample.input[2:] != case.problem.input[2:] for case in cases)
    cut = f", in {smaller} of {len(cases)} cases cut to fewer pixels" if smaller else ""
    return f"{told}; errors are those of {some} of its images{cut} (--images N takes N whole ones)."


def _title(request: Single | Network) -> str:
    if isinstance(request, Single):
        return request.title
    return f"{request.workload.title}, batch {request.batch}{left_out_words(request.workload)}"


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
    from ascendsim.studies.modes.choice import ConvCase, SyntheticTensors, part_of

    kinds: Sequence[str] = arguments.data or ("normal",)
    budget = MULTIPLY_ADDS // len(request.each_options) // len(kinds)

    def case(name: str, kind: str, problem: ConvProblem, mask: Mask, count: int) -> ConvCase:
        part = part_of(problem, budget, arguments.images)
        load = SyntheticTensors(part, kind, arguments.seed)
        return ConvCase(name, problem, mask, count, f"{kind}, seed {arguments.seed}", load, part)

    for kind in kinds:
        ending = f", {kind}" if len(kinds) > 1 else ""
        if isinstance(request, Single):
            require_convolution(request.title, request.options.get("kind", "conv"))
            yield case(f"{request.title}{ending}", kind, ConvProblem(**request.options), request.mask, 1)
            continue
        for layer in request.layers:
            problem, mask = convolution_of(layer, request.batch), request.mask_of(layer)
            yield case(f"{layer.name}{ending}", kind, problem, mask, layer.count)


_EXAMPLES = """\
examples:
  ascendsim study precision s3b1_3x3 --batch 4 --dtype float16,float32
  ascendsim study precision s3 --batch 4
  ascendsim study precision --network alexnet --data normal,long-tailed --loss-scale 1,4096
  ascendsim study precision --npz recorded --loss-scale 1,4096 --out page
"""
TRAINING_BATCH = 16  # a choice: where launches are no longer most of the time
# Of one gradient of all cases together, or four times as many where that is one image of each: some seconds.
MULTIPLY_ADDS = 2**27
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
        "cubeMathType, accumulation model and loss scale; name the most accurate of the fastest that pass.",
        _EXAMPLES,
    )
    add_problem(command, TRAINING_BATCH)
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
        "--images",
        type=positive,
        metavar="N",
        help="images of the batch whose gradients are computed (as many as take some seconds)",
    )
    axes.add_argument(
        "--factor",
        type=float,
        metavar="X",
        help="a mode's limit is this many times the error of rounding once to its format (4)",
    )
    axes.add_argument("--limit", type=float, metavar="X", help="one largest error for all modes instead")
    add_keyword(axes, "rules", metavar="NAME")


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
    from ascendsim.studies.modes.records import FACTOR, PassLimits
    from ascendsim.validate.run import tuning_noise

    profiles = [load_profile(product) for product in products_of(arguments)]
    title, about, cases = cases_of(arguments)
    models = tuple(None if model == "default" else model for model in arguments.accumulation)
    varied = arguments.cube_math_type, models, arguments.loss_scale, arguments.rules
    return [
        PrecisionQuestion(
            title,
            Axes(profile, arguments.dtype or DTYPES, *varied),
            tuple(cases),
            PassLimits(arguments.limit, arguments.factor or FACTOR),
            tuning_noise().p90,
            about,
        )
        for profile in profiles
    ]


def _check(arguments: Any) -> None:
    """Refuse values of axes that mean nothing.

    Raises   ConfigError, UnsupportedError
    """
    from ascendsim.cli.tensors import require_tensor_dtype
    from ascendsim.numerics.accumulation import AccumulationModel
    from ascendsim.studies.modes.choice import DATA

    for name in arguments.dtype or ():
        require_tensor_dtype(name)
    for model in arguments.accumulation:
        if model != "default":
            AccumulationModel.parse(model)
    for number in arguments.cube_math_type:
        if number not in range(4):
            raise ConfigError(f"--cube-math-type {number}: it must be 0, 1, 2 or 3")
    limits = (one for one in (arguments.factor, arguments.limit) if one is not None)
    for number in (*arguments.loss_scale, *limits):
        if not 0 < number < float("inf"):
            raise ConfigError(f"--loss-scale, --factor and --limit must be above 0, not {number:g}")
    for kind in arguments.data or ():
        if kind not in DATA:
            raise ConfigError(
                f"--data {kind}: it must be {' or '.join(DATA)}, or give recorded tensors by --npz"
            )
