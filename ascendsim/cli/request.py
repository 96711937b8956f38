"""Read what `ascendsim run` is asked to run: one convolution or a whole network."""

from __future__ import annotations

import argparse
import math
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ascendsim.cli.tensors import npz_attributes, read_npz
from ascendsim.errors import ConfigError, ShapeError
from ascendsim.ops.options.keywords import CHOICES, Keywords, l2_start_given, meanings
from ascendsim.workloads import Layer, LeftOut, Workload, load_workload, workload_names

if TYPE_CHECKING:
    from ascendsim.ops.problems.convolution import ConvProblem
    from ascendsim.ops.problems.layers import LayerProblem


Mask = tuple[bool, bool, bool]
_SHAPE_OPTIONS = ("stride", "padding", "dilation", "output_padding", "groups", "transposed")
DEFAULT_WORKLOAD = "resnet50"
DEFAULT_DTYPE = "float16"


@dataclass(frozen=True, slots=True)
class Single:
    """One layer: a title, the keywords of `layer_problem`, which gradients, the user's arrays if any.

    layer_names   the layers of the network that it is one of, if any
    layer         its name there; None for another one
    """

    title: str
    options: dict[str, Any]
    mask: Mask
    arrays: dict[str, Any] | None = None
    layer_names: tuple[str, ...] = ()
    layer: str | None = None

    @property
    def each_options(self) -> list[dict[str, Any]]:
        """The keywords of `layer_problem` of all that is run."""
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
        """The keywords of `layer_problem` of every layer."""
        return [layer.problem_options(self.batch) for layer in self.layers]

    def mask_of(self, layer: Layer) -> Mask:
        """Return the gradients of one layer."""
        return self.mask or layer.mask


def read_request(arguments: Any, batch: int = 1) -> Single | Network:
    """Find out which of the ways to say what to run was taken.

    The layer may be a stage, a pattern or several names: these are then a network. `batch` is that of a layer
    or network where neither the user nor the network's file says one.

    Raises   ConfigError if two of them are mixed or one is incomplete, DataError for a bad .npz
    """
    if arguments.npz is not None:
        _refuse(
            arguments,
            ("layer", "workload", "batch", "input", "weight", "kind"),
            "--npz",
            "the file gives the sizes",
        )
        return _from_npz(arguments)
    if arguments.input is not None or arguments.weight is not None:
        _refuse(
            arguments, ("layer", "workload", "batch"), "--input and --weight", "--input includes the batch"
        )
        return _from_sizes(arguments)
    why = "these go with --input and --weight; a layer brings its own"
    _refuse(arguments, ("kind", *_SHAPE_OPTIONS), "a workload", why)
    return _from_workload(arguments, batch)


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
    if arguments.kind not in (None, "conv"):
        options["kind"], title = arguments.kind, f"a {arguments.kind} {title.partition(' convolution ')[2]}"
    return Single(title, options, arguments.mask or (True, True, True))


def _from_workload(arguments: Any, usual_batch: int) -> Single | Network:
    name = arguments.workload or DEFAULT_WORKLOAD
    # `ascendsim run resnet50` is what one tries first; "no layer resnet50" alone would not help.
    if arguments.workload is None and arguments.layer in workload_names():
        raise ConfigError(
            f"{arguments.layer} is a workload, not a layer; "
            f"`ascendsim run --network {arguments.layer}` runs all of it"
        )
    workload = load_workload(name)
    batch = arguments.batch or workload.batch or usual_batch
    names = tuple(each.name for each in workload.layers)
    if arguments.layer is None:
        return Network(workload, batch, arguments.mask, names)
    rows = workload.select(arguments.layer)
    if len(rows) > 1:
        title = f"{len(rows)} layers ({arguments.layer}) of {workload.title}"
        return Network(replace(workload, title=title, layers=rows, left_out=()), batch, arguments.mask, names)
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


def problem_of(layer: Layer, batch: int) -> LayerProblem:
    """Return the problem that a layer of a network computes.

    Raises   ShapeError that names the layer: of the many in a file of one's own, which has the mistake?
    """
    from ascendsim.ops.problems.layers import layer_problem

    try:
        return layer_problem(**layer.problem_options(batch))
    except ShapeError as error:
        raise ShapeError(f"layer {layer.name}: {error}") from None


def convolution_of(layer: Layer, batch: int) -> ConvProblem:
    """Return the convolution of a layer, for a study that knows no other kind.

    Raises   ConfigError for a layer of another kind
    """
    require_convolution(f"layer {layer.name}", layer.kind)
    return cast("ConvProblem", problem_of(layer, batch))


def require_convolution(name: str, kind: str) -> None:
    """Refuse a layer of another kind for a study that knows none.

    Raises   ConfigError
    """
    if kind != "conv":
        raise ConfigError(
            f"{name} is of kind {kind}, and this study is of convolutions; name those alone, "
            "or ask `ascendsim run`, `study why`, `study hardware` or `study traffic`, which know it"
        )


def convolutions_of(workload: Workload, words: str | None = None) -> Workload:
    """Return a network without its layers of other kinds, which are counted in what is left out.

    words   by which its layers were chosen, as of `Workload.select`: a layer of another kind that they name,
            and not by a pattern, stays, so that it is refused by its name

    A network that has no convolution stays as it is.
    """
    named = [word.strip() for word in (words or "").split(",")]
    kept = tuple(layer for layer in workload.layers if layer.kind == "conv" or layer.name in named)
    rest = (
        LeftOut(layer.name, layer.kind, layer.count, problem_of(layer, 1).macs)
        for layer in workload.layers
        if layer not in kept
    )
    return replace(workload, layers=kept, left_out=(*workload.left_out, *rest)) if kept else workload


NAMED = 3  # layers that are left out


def left_out_words(workload: Workload) -> str:
    """Return the end of a title that says what of a network is not in a study; "" where nothing is."""
    from ascendsim.studies.table import share

    if not workload.left_out:
        return ""
    lost = left_out_of(workload)
    names = [f"{one.name} ({one.kind}{f' x {one.count}' * (one.count > 1)})" for one in workload.left_out]
    named = ", ".join(names[:NAMED]) + f" and {len(names) - NAMED} more" * (len(names) > NAMED)
    least = "at least " * bool(lost["unknown"])
    return f" (without {named}: {least}{share(lost['share'])} % of its multiply-adds)"


def left_out_of(workload: Workload) -> dict[str, Any]:
    """Return the work of a network that is not run, and its known share of all multiply-adds forward.

    Values   share: a part of 1; unknown: how many have an unknown number; layers: of each kind and size a
             name, count and macs of one of them for one image; of: number of all layers, with these
    """
    left_out = workload.left_out
    lost = sum(one.count * (one.macs or 0) for one in left_out)
    # All grow with the batch alike.
    made = sum(layer.count * problem_of(layer, 1).macs for layer in workload.layers)
    return {
        "share": lost / (made + lost),
        "unknown": sum(one.count for one in left_out if one.macs is None),
        "of": sum(layer.count for layer in workload.layers) + sum(one.count for one in left_out),
        "layers": [asdict(one) for one in left_out],
    }


GRADIENT_NAMES = ("input", "weight", "bias")
GRADIENTS = tuple(f"grad_{name}" for name in GRADIENT_NAMES)


class Wrapped(argparse.RawDescriptionHelpFormatter):
    """Keeps the lines of a description, as far as they fit: what is too wide wraps below its first word."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(
            textwrap.fill(line, width, initial_indent=indent, subsequent_indent=indent + margin)
            for line in text.splitlines()
            for margin in [" " * (len(line) - len(line.lstrip()) + 2 * line.startswith(" "))]
        )


def sizes(text: str) -> tuple[int, ...]:
    """Read "4,128,28,28"."""
    # Whether they fit together is for the problem to say, which knows what each stands for.
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a list of whole numbers such as 4,128,28,28"
        ) from None


def gradients(text: str) -> tuple[bool, bool, bool]:
    """Read "input,weight" as an output mask."""
    # Reports call them grad_input and so on: what was read there may be written here.
    names = [part.strip().removeprefix("grad_") for part in text.split(",")]
    for name in names:
        if name not in GRADIENT_NAMES:
            raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(GRADIENT_NAMES)}")
    return ("input" in names, "weight" in names, "bias" in names)


def order(text: str) -> str | int:
    """Read an order of execution: "program", "arrival" or the seed of a random legal one."""
    if text in ("program", "arrival"):
        return text
    try:
        return natural(text)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not program, arrival or a seed (0, 1, 2, ...)"
        ) from None


def l2_start(text: str, more: Sequence[str] = ()) -> str:
    """Read what L2 holds as a call begins, as `CallOptions` has it; `more` are words of this command."""
    try:
        return text if text in more else l2_start_given(text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix("l2_start is ")) from None


def positive(text: str) -> int:
    """Read 1, 2, 3, ..."""
    number = _whole(text)
    if not number:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return number


def natural(text: str) -> int:
    """Read 0, 1, 2, ..."""
    number = _whole(text)
    if number is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 0 or more")
    return number


def finite(text: str) -> float:
    """Read a number that is neither infinite nor NaN."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number")
    return number


def _whole(text: str) -> int | None:
    # int() would also take "1_000", " 7" and digits of other scripts; 19 digits could exceed 64 bits.
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def each_once(names: Sequence[str]) -> tuple[str, ...]:
    """Return each product's name once, in their order; print on stderr which names are of one chip.

    A product's plain name is that of one of its variants, and a file may hold what another does: to answer
    both would print one answer twice, and count one chip as two.

    Raises   ConfigError for a name of no product, or for two products with one name in reports
    """
    from ascendsim.profile import load_profile

    found: dict[tuple[str, bytes], str] = {}
    called: dict[str, str] = {}
    for name in dict.fromkeys(names):
        profile = load_profile(name)
        first = found.setdefault((profile.variant, profile.content), name)
        if first != name:
            print(f"--product {name}: is {profile.variant}, as {first} is; answered once", file=sys.stderr)
            continue
        other = called.setdefault(profile.variant, name)
        if other != name:
            raise ConfigError(
                f"--product {other} and --product {name} are two products that are both called "
                f'{profile.variant}; give one of the files another name, or a line variant = "..."'
            )
    return tuple(found.values())


def add_keyword(how: Any, name: str, more: str = "", **said: Any) -> None:
    """Add the flag of a keyword of operators, which says what its docstring says, and `more`."""
    default = getattr(Keywords, name)
    usual = "" if default is None else f" (default {default})"
    own = {"default": default, "choices": CHOICES.get(name)} | said
    how.add_argument(f"--{name.replace('_', '-')}", help=meanings().get(name, "") + usual + more, **own)


BUDGETS = ("most_instructions", "most_bytes")


def add_budgets(how: Any) -> None:
    """Add the flags that limit a call."""
    for name in BUDGETS:
        add_keyword(how, name, "; 0: no call is", type=lambda text: natural(text) or None, metavar="N")


def budgets_of(arguments: Any) -> dict[str, int | None]:
    """Return the limits of a call, as keywords of operators."""
    return {name: getattr(arguments, name) for name in BUDGETS}


def add_products(what: Any, *, several: bool = True) -> None:
    """Add the option that names the products, or the only one."""
    more = "; repeat it for several" * several
    add_keyword(what, "product", more, action="append", metavar="NAME", default=None)


def add_problem(command: Any, batch: int = 1) -> None:
    """Add what says which layer, network, sizes or tensors are meant; `batch` as in `read_request`."""
    what = command.add_argument_group("what to run")
    what.add_argument(
        "layer",
        nargs="?",
        metavar="LAYER",
        help="a layer of the network, a stage (s3), a pattern ('s3*') or several with commas between "
        "(none: all of it)",
    )
    what.add_argument(
        *("--network", "--workload"),
        dest="workload",
        metavar="NAME",
        help=f"{', '.join(workload_names())}, or the path of a .toml or .onnx file (default resnet50)",
    )
    batches = f"batch of a layer or network (default: what the network's file says, or {batch})"
    what.add_argument("--batch", type=positive, help=batches)
    what.add_argument("--npz", type=Path, metavar="FILE", help="your own grad_output, input and weight")
    what.add_argument("--input", type=sizes, metavar="N,C,H,W", help="sizes of the input of one convolution")
    what.add_argument("--weight", type=sizes, metavar="CO,CI,KH,KW", help="sizes of its weight")
    what.add_argument(
        "--kind",
        choices=("conv", "linear", "matmul", "conv_tbc"),
        help="what it is (default conv): linear has sizes N,..,K and M,K, a matmul of two activations "
        "N,..,M,K and N,..,K,L, conv_tbc T,N,C and K,C,CO",
    )
    # None where they are absent, so that an option beside a workload or a file can be recognised.
    for name in ("stride", "padding", "dilation", "output-padding"):
        what.add_argument(
            f"--{name}",
            type=sizes,
            metavar="N[,N]",
            help=f"its {name.replace('-', ' ')}, one for all or one each",
        )
    what.add_argument("--groups", type=positive, help="its groups")
    what.add_argument(
        "--transposed", action="store_true", default=None, help="it is a transposed convolution"
    )
    what.add_argument(
        "--mask",
        type=gradients,
        metavar="NAMES",
        help="gradients wanted: input,weight,bias or fewer (default: of a network, as training asks)",
    )
