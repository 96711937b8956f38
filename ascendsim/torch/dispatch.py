"""A mode that sees every convolution of torch, with the name of its layer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ascendsim.errors import AscendSimError, ConfigError, items, refusal, shown, whole
from ascendsim.files import write_npz
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.numerics.casts import decode
from ascendsim.numerics.dtypes import dtype as lookup_dtype
from ascendsim.numerics.metrics import Specials, error_metrics, specials_of
from ascendsim.ops.lowering.call import GRADIENTS
from ascendsim.ops.options.call import Options
from ascendsim.ops.results import Estimate
from ascendsim.studies.records import JudgedGradient
from ascendsim.studies.sweep import float64_references, judge
from ascendsim.torch.autograd import array_of, gradients_of, output_of, problem_of, type_name
from ascendsim.torch.passes import (
    OUTPUT,
    OUTPUT_ALONE,
    Filter,
    LayerNames,
    LayerPass,
    PerLayer,
    Record,
    Setting,
    checked_filter,
    costs,
    mirrored,
    parts_of,
    run_backward,
    run_forward,
    table,
    wanted,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.ops.lowering.call import Mask
    from ascendsim.ops.options.keywords import Product
    from ascendsim.ops.problems.convolution import ConvProblem
    from ascendsim.ops.results import ConvolutionBackwardResult


FORWARD = torch.ops.aten.convolution.default
BACKWARD = torch.ops.aten.convolution_backward.default

ByTorch = Callable[[], Any]


class ConvolutionMode(TorchDispatchMode):
    """Hands each forward and each backward to `take`; what that returns goes to the script."""

    def __init__(self) -> None:
        super().__init__()
        self._names, self._depth = LayerNames(), 0

    def take(self, layer: LayerPass, tensors: tuple[Any, ...], by_torch: ByTorch) -> Any:
        """Return the output of a forward, or the three gradients of a backward, None where masked.

        tensors   input, weight and bias (or None), or grad_output, input and weight
        by_torch  makes what torch itself would return
        """
        raise NotImplementedError

    def __enter__(self) -> Self:
        if not self._depth:
            self._names.watch()
        self._depth += 1
        entered: Self = super().__enter__()
        return entered

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)
        self._depth -= 1
        if not self._depth:
            self._names.stop()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Take the convolutions; leave the rest to torch."""
        if func is FORWARD:
            return self._forward(*args)
        if func is BACKWARD:
            return self._backward(*args)
        given = kwargs or {}
        # Without autograd torch hands over whole operators, conv2d say; their convolutions come back here.
        if torch.is_inference_mode_enabled():
            with self:
                made = func.decompose(*args, **given)
            if made is not NotImplemented:
                return made
        return func(*args, **given)

    def _forward(self, input: Any, weight: Any, bias: Any, *attributes: Any) -> Any:
        name = self._names.forward(weight)
        by_torch = partial(FORWARD, input, weight, bias, *attributes)
        if not _has_values(input, weight):
            return by_torch()
        layer = _layer(name, "forward", OUTPUT, (input, weight), attributes)
        return self.take(layer, (input, weight, bias), by_torch)

    def _backward(self, *args: Any) -> Any:
        # Between them, bias_sizes: torch passes [0] for a layer without bias.
        tensors, attributes, mask = args[:3], args[4:-1], args[-1]
        by_torch = partial(BACKWARD, *args)
        if not _has_values(*tensors):
            return by_torch()
        results = tuple(name for name, asked in zip(GRADIENTS, mask, strict=True) if asked)
        layer = _layer(self._names.backward(tensors[2]), "backward", results, tensors, attributes)
        return self.take(layer, tensors, by_torch)


def _has_values(*tensors: Any) -> bool:
    """Return whether there is anything to compute; torch traces shapes with tensors that have no values."""
    return all(tensor.numel() and tensor.device.type != "meta" for tensor in tensors)


_known = lru_cache(maxsize=256)(problem_of)  # the same calls come in every step of a training run


def _layer(name: str, direction: str, results: Any, tensors: Any, attributes: Any) -> LayerPass:
    input, weight = (tuple(tensor.shape) for tensor in tensors[-2:])
    problem = _known(input, weight, *(tuple(one) if isinstance(one, list) else one for one in attributes))
    return LayerPass(name, direction, problem, tuple(type_name(tensor) for tensor in tensors), results)


Loss = Callable[[torch.Tensor, Any], torch.Tensor]


def record(
    model: torch.nn.Module,
    loader: Iterable[Any],
    steps: int,
    folder: str | Path = "recorded",
    *,
    loss: Loss | None = None,
    optimizer: Any = None,
    layers: Filter = None,
) -> tuple[Path, ...]:
    """Train for some steps, and write what the backward of each convolution takes.

    loader     batches (input, target); `steps` of them are taken, or as many as there are
    folder     is made if it is missing; files of the same names in it are replaced
    loss       function of output and target; None: cross entropy
    optimizer  takes a step after each batch; None: the weights stay as they are
    layers     as of a `Simulation`
    Returns    the files, LAYER.stepN.npz, in the order in which they were written: activations (input),
               gradients (grad_output), weight, attributes and output_mask, as `ascendsim run --npz` reads
               them. bfloat16 and 8-bit tensors are there as codes, which `--dtype` names
    Raises     ConfigError for a folder that cannot be made, batches that are no pairs, no number of steps;
               UnsupportedError for tensors of other types than the simulator's
    """
    count = whole(steps)
    if count is None or count < 1:
        raise refusal("record: steps", steps, "a positive whole number")
    if not isinstance(model, torch.nn.Module):
        raise refusal("record: model", model, "a torch.nn.Module")
    if not isinstance(loader, Iterable):
        raise refusal("record: loader", loader, "batches (input, target), one after the other")
    if not (loss is None or callable(loss)) or not (optimizer is None or hasattr(optimizer, "step")):
        raise ConfigError("record: loss must be a function, and optimizer one of torch's; or None")
    writer = _Writer(_made(folder), checked_filter(layers))
    for number, batch in enumerate(islice(loader, count)):
        if not isinstance(batch, tuple | list) or len(batch) != 2:
            kind = type(batch).__name__
            raise ConfigError(f"record: batch {number} is a {kind}; it must be (input, target)")
        writer.step = number
        model.zero_grad()
        with writer:
            (loss or torch.nn.functional.cross_entropy)(model(batch[0]), batch[1]).backward()
        if optimizer is not None:
            optimizer.step()
    return tuple(writer.written)


class _Writer(ConvolutionMode):
    """Writes the tensors of every backward that it sees; torch computes all of them."""

    def __init__(self, folder: Path, layers: Filter) -> None:
        super().__init__()
        self._folder, self._layers = folder, layers
        self.step, self.written = 0, list[Path]()

    def take(self, layer: LayerPass, tensors: tuple[Any, ...], by_torch: ByTorch) -> Any:
        if layer.direction == "backward" and wanted(layer, self._layers):
            p = layer.problem
            names = ("grad_output", "input", "weight")
            attributes: dict[str, Any] = {
                "stride": p.stride,
                "padding": p.padding,
                "dilation": p.dilation,
                "transposed": p.transposed,
                "output_padding": p.output_padding,
                "groups": p.groups,
                "output_mask": layer.mask,
            }
            arrays = {name: _plain(array_of(t)) for name, t in zip(names, tensors, strict=True)}
            write_npz(self._path(layer.name), arrays | attributes)
        return by_torch()

    def _path(self, name: str) -> Path:
        """Return a file for a backward of this step; a module that runs twice has two."""
        safe = re.sub(r"[^\w.#-]+", "_", name).strip("_")
        stem = f"{safe}.step{self.step}"
        path, number = self._folder / f"{stem}.npz", 1
        while path in self.written:
            number += 1
            path = self._folder / f"{stem}.{number}.npz"
        self.written.append(path)
        return path


def _made(folder: str | Path) -> Path:
    if not isinstance(folder, str | Path):
        raise refusal("record: folder", folder, "the path of a folder")
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:  # a NUL in it
        raise ConfigError(f"record: folder {path} cannot be made ({error})") from error
    return path


def _plain(array: Any) -> Any:
    """Return an array of numpy's own types: bits, where the format is another library's."""
    if array.dtype in (np.float32, np.float16):
        return array
    return array.view(np.uint8 if array.itemsize == 1 else np.uint16)


@default_arithmetic
def judged_forward(
    problem: ConvProblem,
    input: NDArray[Any],
    weight: NDArray[Any],
    bias: Any,
    result: ConvolutionBackwardResult,
) -> tuple[JudgedGradient, ...]:
    """Return the error of an output, which is the grad_input of the result."""
    other = mirrored(problem)
    shape_only = np.zeros(problem.grad_output, input.dtype)
    references = float64_references(other, input, shape_only, weight, OUTPUT_ALONE)
    if bias is not None:
        more = decode(bias, lookup_dtype(bias.dtype)).astype(np.float64)
        references["grad_input"] = references["grad_input"] + more.reshape(-1, *(1,) * problem.rank)
    (output,) = judge(result, references)
    return (replace(output, name="output"),)


def judged_backward(
    problem: ConvProblem,
    given: tuple[NDArray[Any], NDArray[Any], NDArray[Any]],
    mask: Mask,
    result: ConvolutionBackwardResult,
) -> tuple[JudgedGradient, ...]:
    """Return the errors of the gradients that were asked for; `given` are grad_output, input and weight."""
    references = float64_references(problem, *given, mask)
    return tuple(
        _with_terms(one, given[0], references["grad_bias"], result.grad_bias)
        if one.name == "grad_bias"
        else one
        for one in judge(result, references)
    )


def _with_terms(one: JudgedGradient, grad_output: Any, exact: Any, made: Any) -> JudgedGradient:
    """Return the errors of a grad_bias with the magnitudes of its terms, and whether these cancel."""
    fmt = lookup_dtype(grad_output.dtype)
    axes = (0, *range(2, grad_output.ndim))
    sizes = np.abs(decode(grad_output, fmt).astype(np.float64)).sum(axis=axes)
    # Terms are off by half a step each, so that of a sum below that no digit is certain.
    lost = np.abs(exact) <= 2.0 ** -(fmt.mantissa_bits + 1) * sizes
    errors = error_metrics(made, exact, one.errors.dtype, sizes)
    return replace(one, errors=errors, cancels=bool(sizes.any() and np.mean(lost) > 0.5))


@dataclass
class PassEntry:
    """The calls of one pass of one layer so far."""

    layer: LayerPass
    setting: Setting
    calls: int = 0
    specials: dict[str, Specials] = field(default_factory=dict)
    overflowed: set[str] = field(default_factory=set)
    judged: list[tuple[JudgedGradient, ...]] = field(default_factory=list)
    refused: str | None = None

    def note(self, result: ConvolutionBackwardResult) -> set[str]:
        """Count the special elements of a call's results; return the kernels that saturated a value."""
        made = (result.grad_input, result.grad_weight, result.grad_bias)
        names = OUTPUT if self.layer.direction == "forward" else GRADIENTS
        found = {
            name: (values.dtype, specials_of(values))
            for name, values in zip(names, made, strict=False)
            if values is not None
        }
        for name, (_, one) in found.items():
            self.specials[name] = self.specials.get(name, Specials()) + one
        cut = set(result.overflowed or ())
        self.overflowed |= cut
        return cut


class Ledger:
    """Entries in the order in which their layers first ran."""

    def __init__(self) -> None:
        self._entries: dict[tuple[LayerPass, Setting], PassEntry] = {}
        self._estimates: dict[object, Estimate] = {}

    def entry(self, layer: LayerPass, setting: Setting) -> PassEntry:
        """Return the entry of a layer, a new one for a layer that has not run."""
        return self._entries.setdefault((layer, setting), PassEntry(layer, setting))

    def records(self) -> tuple[Record, ...]:
        """Return the layers that have run; equal layers share one estimate."""
        return tuple(self._record(entry) for entry in self._entries.values())

    def _record(self, entry: PassEntry) -> Record:
        estimate = None if entry.refused else self._estimate(entry)
        return Record(
            entry.layer,
            entry.setting,
            entry.calls,
            estimate,
            dict(entry.specials),
            tuple(sorted(entry.overflowed)),
            tuple(entry.judged),
            entry.refused,
        )

    def _estimate(self, entry: PassEntry) -> Estimate:
        parts = parts_of(entry.layer, entry.setting)
        # Settings compare as the objects they are: those of one simulation are made once.
        key = parts, entry.setting
        if key not in self._estimates:
            self._estimates[key] = costs(parts, entry.setting).without_timelines()
        return self._estimates[key]


ERRORS = ("never", "first", "every")
REFUSED = ("raise", "torch")


class Simulation(ConvolutionMode):
    """Runs every convolution inside `with Simulation(...):` on the simulator, forward and backward.

    Keywords   those of `Setting`: product, cube_math_type, operands, order, threads, accumulation, ...
    layers     which layers: patterns of their names, or a function of a `LayerPass`; None: all. torch does
               the others
    per_layer  pattern of names -> keywords that differ there; the first pattern that fits counts
    passes     "forward" and "backward", or one of them
    errors     "never"; "first": the first call of each layer is judged against float64; or "every" one
    refused    "raise" what the interface answers to a call that it does not take; "torch" computes it
               instead, and the record says why
    Raises     ConfigError, UnsupportedError and TypeError as `Setting`
    """

    def __init__(
        self,
        product: Product = Options.product,
        cube_math_type: int = 0,
        *,
        layers: Filter = None,
        per_layer: PerLayer | None = None,
        passes: str | Sequence[str] = ("forward", "backward"),
        errors: str = "never",
        refused: str = "raise",
        **keywords: Any,
    ) -> None:
        super().__init__()
        self._setting = Setting(product, cube_math_type, **keywords)
        self._layers = checked_filter(layers)
        given = (per_layer or {}).items() if isinstance(per_layer, Mapping | None) else [(per_layer, None)]
        if not all(isinstance(pattern, str) and isinstance(other, Mapping) for pattern, other in given):
            rule = 'keywords by pattern, such as {"fc*": {"operands": "hifloat8"}}'
            raise refusal("Simulation: per_layer", per_layer, rule)
        self._own_settings = [(pattern, self._setting.but(**other)) for pattern, other in given]
        asked = (passes,) if isinstance(passes, str) else items(passes)
        if asked is None:
            raise refusal("Simulation: passes", passes, '"forward", "backward" or both')
        self._passes = tuple(_one_of("passes", one, ("forward", "backward")) for one in asked)
        self._errors = _one_of("errors", errors, ERRORS)
        self._refused = _one_of("refused", refused, REFUSED)
        self._ledger = Ledger()
        # Of every layer that came by, also of those that are left to torch; in the order of their first call.
        self._met: dict[str, None] = {}
        self._status: dict[tuple[str, str, str], None] = {}

    @property
    def records(self) -> tuple[Record, ...]:
        """The layers that have run so far, in the order of their first runs; estimated when asked for."""
        return self._ledger.records()

    @default_arithmetic
    def table(self) -> str:
        """Return the records as lines of text, and which patterns fit no layer that ran."""
        return "\n".join([table(self.records), *self._unfitting()])

    @property
    def float_status(self) -> tuple[tuple[str, str, str], ...]:
        """The kernels that saturated a value since the status was cleared: layer, pass and kernel of each.

        A device that saturates (910, 310P) has Inf and NaN in no 16-bit result; its float status is not 0
        after such a kernel, and stays so until it is cleared.
        """
        return tuple(self._status)

    def clear_float_status(self) -> None:
        """Forget the kernels of `float_status`; the records keep theirs."""
        self._status.clear()

    def _unfitting(self) -> list[str]:
        """Say of each pattern that fits no layer so far: a slip of the pen would pass for a result."""
        given = [("layers", pattern) for pattern in self._layers or ()] if not callable(self._layers) else []
        given += [("per_layer", pattern) for pattern, _ in self._own_settings]
        ran = f"they are {', '.join(self._met)}" if self._met else "none has run"
        return [
            f"{keyword}: {pattern!r} fits none of the layers; {ran}"
            for keyword, pattern in given
            if not any(fnmatchcase(name, pattern) for name in self._met)
        ]

    def take(self, layer: LayerPass, tensors: tuple[Any, ...], by_torch: ByTorch) -> Any:
        """Return a layer's results by the simulator, or by torch where a filter or the interface says so."""
        self._met[layer.name] = None
        if layer.direction not in self._passes or not wanted(layer, self._layers):
            return by_torch()
        run = self._forward_of if layer.direction == "forward" else self._backward_of
        fitting = (own for pattern, own in self._own_settings if fnmatchcase(layer.name, pattern))
        entry = self._ledger.entry(layer, next(fitting, self._setting))
        try:
            made = run(entry, *tensors)
        except AscendSimError as error:
            if self._refused == "raise":
                error.add_note(
                    f"{layer.direction} of layer {layer.name}, {layer.problem}; `layers` of the Simulation "
                    'leaves layers to torch, refused="torch" those that the interface does not take'
                )
                raise
            entry.refused = str(error)
            made = by_torch()
        entry.calls += 1
        return made

    def _forward_of(self, entry: PassEntry, input: Any, weight: Any, bias: Any) -> Any:
        problem = entry.layer.problem
        x, w, b = array_of(input), array_of(weight), None if bias is None else array_of(bias)
        result = run_forward(problem, x, w, b, entry.setting)
        self._note(entry, result)
        if self._judges(entry):
            entry.judged.append(judged_forward(problem, x, w, b, result))
        return output_of(result, input, weight)

    def _backward_of(self, entry: PassEntry, *tensors: Any) -> Any:
        problem, mask = entry.layer.problem, entry.layer.mask
        y, x, w = (array_of(tensor) for tensor in tensors)
        result = run_backward(problem, y, x, w, mask, entry.setting)
        self._note(entry, result)
        if self._judges(entry):
            entry.judged.append(judged_backward(problem, (y, x, w), mask, result))
        return gradients_of(result, *tensors)

    def _note(self, entry: PassEntry, result: ConvolutionBackwardResult) -> None:
        layer = entry.layer
        for kernel in sorted(entry.note(result)):
            self._status[layer.name, layer.direction, kernel] = None

    def _judges(self, entry: PassEntry) -> bool:
        return self._errors == "every" or (self._errors == "first" and not entry.judged)


def _one_of(name: str, given: str, choices: tuple[str, ...]) -> str:
    if not isinstance(given, str) or given not in choices:
        raise ConfigError(f"Simulation: {name} has {shown(given)}; it takes {', '.join(choices)}")
    return given
