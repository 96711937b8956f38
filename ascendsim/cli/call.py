"""Turn arguments into calls of the Python interface."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ascendsim.cli.own_schedules import schedules_of
from ascendsim.cli.plans import tiling_of
from ascendsim.cli.values import GRADIENTS
from ascendsim.errors import AscendSimError
from ascendsim.report.columns import Entry

if TYPE_CHECKING:
    from ascendsim.cli.request import Mask
    from ascendsim.cli.tensors import Tensors
    from ascendsim.ops.problems.convolution import ConvProblem
    from ascendsim.profile import Profile

# A run's document, and how to write its folder if one is asked for.
Answer = tuple[Entry, Callable[[Path], Sequence[Path]]]


def backward(problem: ConvProblem, tensors: Tensors, mask: Mask, profile: Profile, arguments: Any) -> Any:
    """Compute gradients and cycles."""
    from ascendsim import convolution_backward

    with _one_of_several(profile, arguments):
        return convolution_backward(
            tensors.grad_output,
            tensors.input,
            tensors.weight,
            # bias_sizes, which the interface asks for only where the gradient of the bias is wanted.
            [problem.grad_output[1]] if mask[2] else None,
            problem.stride,
            problem.padding,
            problem.dilation,
            problem.transposed,
            problem.output_padding,
            problem.groups,
            mask,
            arguments.cube_math_type,
            order=arguments.order,
            tiling=tiling_of(arguments, arguments.layer),
            **_keywords(profile, arguments),
        )


def estimate_cycles(
    problem: ConvProblem,
    dtype: str | Sequence[str],
    mask: Mask,
    arguments: Any,
    profile: Profile,
    plans: Any = None,
) -> Any:
    """Estimate cycles alone; `dtype` is one name, or one for each of grad_output, input and weight.

    The last two come last because studies repeat a call with others; without `plans` those asked for.
    """
    from ascendsim import estimate

    with _one_of_several(profile, arguments):
        return estimate(
            problem,
            dtype=dtype,
            cube_math_type=arguments.cube_math_type,
            output_mask=mask,
            tiling=tiling_of(arguments, arguments.layer) if plans is None else plans,
            **_keywords(profile, arguments),
        )


@contextmanager
def _one_of_several(profile: Profile, arguments: Any) -> Iterator[None]:
    """Add to an error of one of several products whose it is, and that the others can do without it."""
    try:
        yield
    except AscendSimError as error:
        if len(arguments.product) > 1:
            error.add_note(
                f"This is what {profile.variant} says; leave it out of --product to run the others."
            )
        raise


def settings(mask: Mask, dtype: str | Sequence[str], arguments: Any) -> dict[str, Any]:
    """Describe what was asked for besides the shapes."""
    # Part of every report: bits and cycles depend on all of these.
    asked = [name for name, wanted in zip(GRADIENTS, mask, strict=True) if wanted]
    names = dtype if isinstance(dtype, str) else " ".join(dtype)
    own = {"schedule": " ".join(arguments.schedule)} if arguments.schedule else {}
    if arguments.tiling:
        own["tiling"] = arguments.tiling
    return {
        "dtype": names,
        "cube_math_type": arguments.cube_math_type,
        "gradients": " ".join(asked),
        "L2": arguments.l2_start,
        **own,
    }


def _keywords(profile: Profile, arguments: Any) -> dict[str, Any]:
    """Return the keywords that gradients and estimates share, so that both are of the same call."""
    return {
        "product": profile,
        "accumulation": arguments.accumulation,
        "deterministic": arguments.deterministic,
        "rules": arguments.rules,
        "l2_start": arguments.l2_start,
        "engine": arguments.engine,
        "schedule": schedules_of(arguments.schedule),
    }
