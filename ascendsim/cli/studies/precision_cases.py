"""The convolutions and tensors that a study of precision is asked about: drawn, or recorded by somebody."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ascendsim.cli.request import Network, Single, problem_of, read_request
from ascendsim.errors import ConfigError, DataError

if TYPE_CHECKING:
    from ascendsim.studies.modes.cases import Case, Tensors


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
    from ascendsim.studies.modes.cases import Case

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
    from ascendsim.studies.modes.cases import Case, Drawn

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
