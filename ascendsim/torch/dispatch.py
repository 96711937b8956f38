"""Modes that see the convolutions and products of torch, with the names of their layers."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from fnmatch import fnmatchcase
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from ascendsim.errors import AscendSimError, ConfigError, items, refusal, shown, whole
from ascendsim.files import write_npz
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.ops.lowering.call import GRADIENTS
from ascendsim.ops.options.call import Options
from ascendsim.torch.autograd import array_of, gradients_of, has_values, output_of, problem_of, type_name
from ascendsim.torch.ledger import Ledger, PassEntry, Record, judged_backward, judged_forward, table
from ascendsim.torch.passes import OUTPUT, LayerNames, LayerPass, Setting, run_backward, run_forward
from ascendsim.torch.products import ProductPass, Products, SumPass
from ascendsim.torch.tbc import TbcBackward, TbcFunctions

if TYPE_CHECKING:
    from ascendsim.ops.options.keywords import Product


FORWARD = torch.ops.aten.convolution.default
BACKWARD = torch.ops.aten.convolution_backward.default

ByTorch = Callable[[], Any]
Filter = str | Sequence[str] | Callable[[LayerPass], bool] | None
PerLayer = Mapping[str, Mapping[str, Any]]


def checked_filter(chosen: Filter) -> Filter:
    """Return a filter as patterns, a function, or None.

    Raises   ConfigError for anything else
    """
    if chosen is None or callable(chosen):
        return chosen
    patterns = (chosen,) if isinstance(chosen, str) else chosen
    if not isinstance(patterns, Sequence) or not all(isinstance(pattern, str) for pattern in patterns):
        raise ConfigError(
            f"Simulation: layers is {shown(chosen)}; it must be a pattern of names, such as 'features.*', "
            "several of them, or a function of a LayerPass"
        )
    return tuple(patterns)


def wanted(layer: LayerPass, chosen: Filter) -> bool:
    """Return whether a checked filter takes a layer; patterns are those of file names."""
    if chosen is None:
        return True
    if callable(chosen):
        return bool(chosen(layer))
    return any(fnmatchcase(layer.name, pattern) for pattern in chosen)


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
        return self._dispatched(func, args, kwargs or {})

    def _dispatched(self, func: Any, args: Any, given: Any) -> Any:
        # Not a method of torch's name: torch wraps each of those, at the price of a small operator.
        if func is FORWARD:
            return self._forward(*args)
        if func is BACKWARD:
            return self._backward(*args)
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
        if not has_values(input, weight):
            return by_torch()
        layer = _layer(name, "forward", OUTPUT, (input, weight), attributes)
        return self.take(layer, (input, weight, bias), by_torch)

    def _backward(self, *args: Any) -> Any:
        # Between them, bias_sizes: torch passes [0] for a layer without bias.
        tensors, attributes, mask = args[:3], args[4:-1], args[-1]
        by_torch = partial(BACKWARD, *args)
        if not has_values(*tensors):
            return by_torch()
        results = tuple(name for name, asked in zip(GRADIENTS, mask, strict=True) if asked)
        layer = _layer(self._names.backward(tensors[2]), "backward", results, tensors, attributes)
        return self.take(layer, tensors, by_torch)


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
            p = layer.convolution
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


ERRORS = ("never", "first", "every")
REFUSED = ("raise", "torch")
OPERATORS = ("convolution", "product")


class Simulation(ConvolutionMode):
    """Runs every convolution and product inside `with Simulation(...):` on the simulator, in both passes.

    Keywords   those of `Setting`: product, cube_math_type, operands, order, threads, accumulation, ...
    layers     which layers: patterns of their names, or a function of a `LayerPass`; None: all. torch does
               the others
    per_layer  pattern of names -> keywords that differ there; the first pattern that fits counts
    passes     "forward" and "backward", or one of them
    operators  "convolution" and "product" (linear layers, attention), or one of them
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
        operators: str | Sequence[str] = OPERATORS,
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
        self._passes = _several("passes", passes, ("forward", "backward"))
        self._errors = _one_of("errors", errors, ERRORS)
        self._refused = _one_of("refused", refused, REFUSED)
        self._operators = _several("operators", operators, OPERATORS)
        self._ledger, self._products = Ledger(), Products(self._names)
        # Of every layer that came by, also of those that are left to torch; in the order of their first call.
        self._met: dict[str, None] = {}
        self._whole = ExitStack()
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

    def __enter__(self) -> Self:
        if not self._depth and "convolution" in self._operators:
            self._whole.enter_context(TbcFunctions(self._names, self.take))
        if not self._depth and "product" in self._operators:
            # Attention as products, and no operators that do a whole layer or block.
            self._whole.enter_context(sdpa_kernel(SDPBackend.MATH))
            mha, sdp = torch.backends.mha, torch.backends.cuda
            self._whole.callback(mha.set_fastpath_enabled, mha.get_fastpath_enabled())
            mha.set_fastpath_enabled(False)
            # In 16 bits where the script asks for 16 bits; the switch is not of CUDA alone.
            narrow = sdp.allow_fp16_bf16_reduction_math_sdp
            self._whole.callback(narrow, sdp.fp16_bf16_reduction_math_sdp_allowed())
            narrow(True)
        return super().__enter__()

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)
        if not self._depth:
            self._whole.close()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Take convolutions and products; leave the rest to torch."""
        given = kwargs or {}
        asked = self._products.asked(func, args, given) if "product" in self._operators else None
        if asked is None:
            return self._dispatched(func, args, given)
        return self._taken(asked.layer, asked.by_torch, partial(self._product_of, asked))

    def take(self, layer: LayerPass, tensors: tuple[Any, ...], by_torch: ByTorch) -> Any:
        """Return a layer's results by the simulator, or by torch where a filter or the interface says so."""
        run = self._forward_of if layer.direction == "forward" else self._backward_of
        if "convolution" not in self._operators:
            return by_torch()
        return self._taken(layer, by_torch, lambda entry: run(entry, *tensors))

    def _taken(self, layer: LayerPass, by_torch: ByTorch, run: Callable[[PassEntry], Any]) -> Any:
        self._met[layer.name] = None
        if layer.direction not in self._passes or not wanted(layer, self._layers):
            return by_torch()
        fitting = (own for pattern, own in self._own_settings if fnmatchcase(layer.name, pattern))
        entry = self._ledger.entry(layer, next(fitting, self._setting))
        try:
            made = run(entry)
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
        problem = entry.layer.convolution
        x, w, b = array_of(input), array_of(weight), None if bias is None else array_of(bias)
        result = run_forward(problem, x, w, b, entry.setting)
        self._note(entry, {"output": result.grad_input}, result.overflowed or ())
        if self._judges(entry):
            entry.judged.append(judged_forward(problem, x, w, b, result))
        return output_of(result, input, weight)

    def _backward_of(self, entry: PassEntry, *tensors: Any) -> Any:
        problem, mask = entry.layer.convolution, entry.layer.mask
        y, x, w = (array_of(tensor) for tensor in tensors)
        if isinstance(entry.layer, TbcBackward):
            result = entry.layer.run(y, x, w, entry.setting)
        else:
            result = run_backward(problem, y, x, w, mask, entry.setting)
        made = (result.grad_input, result.grad_weight, result.grad_bias)
        self._note(entry, dict(zip(GRADIENTS, made, strict=True)), result.overflowed or ())
        if self._judges(entry):
            entry.judged.append(judged_backward(problem, (y, x, w), mask, result))
        return gradients_of(result, *tensors)

    def _product_of(self, asked: ProductPass | SumPass, entry: PassEntry) -> Any:
        values, cut, compute = asked.run(entry.setting)
        self._note(entry, {asked.layer.results[0]: values}, cut)
        if self._judges(entry):
            entry.judged.append((asked.judged(values, compute),))
        return asked.tensor(values)

    def _note(self, entry: PassEntry, made: Mapping[str, Any], cut: Collection[str]) -> None:
        layer = entry.layer
        entry.note(made, cut)
        for kernel in sorted(cut):
            self._status[layer.name, layer.direction, kernel] = None

    def _judges(self, entry: PassEntry) -> bool:
        return self._errors == "every" or (self._errors == "first" and not entry.judged)


def _several(name: str, given: str | Sequence[str], choices: tuple[str, ...]) -> tuple[str, ...]:
    asked = (given,) if isinstance(given, str) else items(given)
    if asked is None:
        raise refusal(f"Simulation: {name}", given, f"{' and '.join(map(repr, choices))}, or one of them")
    return tuple(_one_of(name, one, choices) for one in asked)


def _one_of(name: str, given: str, choices: tuple[str, ...]) -> str:
    if not isinstance(given, str) or given not in choices:
        raise ConfigError(f"Simulation: {name} has {shown(given)}; it takes {', '.join(choices)}")
    return given
