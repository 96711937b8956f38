"""Read what `ascendsim run` is asked to run: one convolution or a whole network."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ascendsim.cli.tensors import npz_attributes, read_npz
from ascendsim.errors import ConfigError, ShapeError
from ascendsim.workloads import Layer, Workload, load_workload, workload_names

if TYPE_CHECKING:
    from ascendsim.ops.problems.convolution import ConvProblem

Mask = tuple[bool, bool, bool]
_SHAPE_OPTIONS = ("stride", "padding", "dilation", "output_padding", "groups", "transposed")
DEFAULT_WORKLOAD = "resnet50"
DEFAULT_DTYPE = "float16"


@dataclass(frozen=True, slots=True)
class Single:
    """One convolution: a title, the keywords of `ConvProblem`, which gradients, the user's arrays if any.

    layer_names   the layers of the network that it is one of, if any
    layer         its name there; None for another convolution
    """

    title: str
    options: dict[str, Any]
    mask: Mask
    arrays: dict[str, Any] | None = None
    layer_names: tuple[str, ...] = ()
    layer: str | None = None

    @property
    def each_options(self) -> list[dict[str, Any]]:
        """The keywords of `ConvProblem` of all that is run."""
        return [self.options]


@dataclass(frozen=True, slots=True)
class Network:
    """All layers of a network at one batch; without a mask each has the gradients that training asks for.

    layer_names   the layers of the network that these are of; others than these may have plans in a file
    """

    workload: Workload
    batch: int
    mask: Mask | None
    layer_names: tuple[str, ...]

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The layers, in the order of the forward pass."""
        return self.workload.layers

    @property
    def each_options(self) -> list[dict[str, Any]]:
        """The keywords of `ConvProblem` of every layer."""
        return [layer.problem_options(self.batch) for layer in self.layers]

    def mask_of(self, layer: Layer) -> Mask:
        """Return the gradients of one layer."""
        return self.mask or layer.mask


def read_request(arguments: Any) -> Single | Network:
    """Find out which of the ways to say what to run was taken.

    The layer may be a stage, a pattern or several names: these are then a network.

    Raises   ConfigError if two of them are mixed or one is incomplete, DataError for a bad .npz
    """
    if arguments.npz is not None:
        _refuse(
            arguments, ("layer", "workload", "batch", "input", "weight"), "--npz", "the file gives the sizes"
        )
        return _from_npz(arguments)
    if arguments.input is not None or arguments.weight is not None:
        _refuse(
            arguments, ("layer", "workload", "batch"), "--input and --weight", "--input includes the batch"
        )
        return _from_sizes(arguments)
    why = "these go with --input and --weight; a layer brings its own"
    _refuse(arguments, _SHAPE_OPTIONS, "a workload", why)
    return _from_workload(arguments)


def _from_npz(arguments: Any) -> Single:
    arrays = read_npz(arguments.npz)
    # What is said on the command line goes before what the file says.
    attributes = npz_attributes(arguments.npz, arrays)
    stored_mask = _mask(attributes.pop("output_mask", (True, True, True)))
    mask = arguments.mask or stored_mask
    options = {"input": arrays["input"].shape, "weight": arrays["weight"].shape, **attributes}
    return Single(arguments.npz.name, options | _shape_options(arguments), mask, arrays)


def _mask(values: Any) -> Mask:
    if not isinstance(values, tuple) or len(values) != 3:
        raise ConfigError(f"output_mask must be three times true or false, not {values!r}")
    return values


def _from_sizes(arguments: Any) -> Single:
    for name in ("input", "weight"):
        if getattr(arguments, name) is None:
            raise ConfigError(f"--{name} is missing; --input and --weight go together")
    options = {"input": arguments.input, "weight": arguments.weight, **_shape_options(arguments)}
    kind = "transposed convolution" if arguments.transposed else "convolution"
    title = f"a {kind} {_by(arguments.input)} with {_by(arguments.weight)}"
    return Single(title, options, arguments.mask or (True, True, True))


def _from_workload(arguments: Any) -> Single | Network:
    name = arguments.workload or DEFAULT_WORKLOAD
    # `ascendsim run resnet50` is what one tries first; "no layer resnet50" alone would not help.
    if arguments.workload is None and arguments.layer in workload_names():
        raise ConfigError(
            f"{arguments.layer} is a workload, not a layer; "
            f"`ascendsim run --network {arguments.layer}` runs all of it"
        )
    workload = load_workload(name)
    batch = arguments.batch or 1
    names = tuple(each.name for each in workload.layers)
    if arguments.layer is None:
        return Network(workload, batch, arguments.mask, names)
    rows = workload.select(arguments.layer)
    if len(rows) > 1:
        title = f"{len(rows)} layers ({arguments.layer}) of {workload.title}"
        return Network(replace(workload, title=title, layers=rows), batch, arguments.mask, names)
    (layer,) = rows
    # A convolution before a batch normalisation has no bias, and training no gradient of it. Who asks for one
    # layer wants its grad_input, although training has no use for that of the first.
    mask = arguments.mask or (True, *layer.mask[1:])
    title = f"{workload.title} {layer.name}, batch {batch}"
    return Single(title, layer.problem_options(batch), mask, layer_names=names, layer=layer.name)


def _shape_options(arguments: Any) -> dict[str, Any]:
    # One number is for all dimensions, however many there are; ConvProblem spreads it.
    given = {name: getattr(arguments, name) for name in _SHAPE_OPTIONS}
    return {
        name: value[0] if isinstance(value, tuple) and len(value) == 1 else value
        for name, value in given.items()
        if value is not None
    }


def _refuse(arguments: Any, names: tuple[str, ...], beside: str, why: str) -> None:
    """Refuse options that would be ignored beside others.

    Raises   ConfigError
    """
    for name in names:
        if getattr(arguments, name) is not None:
            shown = name.upper() if name == "layer" else f"--{name.replace('_', '-')}"
            raise ConfigError(f"{shown} cannot be combined with {beside}: {why}")


def _by(values: tuple[int, ...]) -> str:
    return "x".join(map(str, values))


def problem_of(layer: Layer, batch: int) -> ConvProblem:
    """Return the convolution of a layer of a network.

    Raises   ShapeError that names the layer: of the many in a file of one's own, which has the mistake?
    """
    from ascendsim.ops.problems.convolution import ConvProblem

    try:
        return ConvProblem(**layer.problem_options(batch))
    except ShapeError as error:
        raise ShapeError(f"layer {layer.name}: {error}") from None
