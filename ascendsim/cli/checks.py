"""The calls that a user wants checked: what a file says, and what the rules answer."""

from __future__ import annotations

import argparse
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ascendsim.cli.request import GRADIENTS, Wrapped, gradients, sizes
from ascendsim.errors import AclnnError, ConfigError, DataError, did_you_mean
from ascendsim.files import parse_json, read_text
from ascendsim.progress import progress
from ascendsim.rules import Call, ConvolutionBackwardCall, ConvTbcBackwardCall, TensorDescription

CONV, TBC = ConvolutionBackwardCall.api, ConvTbcBackwardCall.api
INPUTS = {CONV: ("grad_output", "input", "weight"), TBC: ("grad_output", "input", "weight", "bias")}
# What an attribute is where nobody says it: that of the framework's convolution.
ATTRIBUTES: dict[str, dict[str, Any]] = {
    CONV: {
        "bias_sizes": None,
        "stride": 1,
        "padding": 0,
        "dilation": 1,
        "transposed": False,
        "output_padding": 0,
        "groups": 1,
        "output_mask": (True, True, True),
        "cube_math_type": 0,
    },
    TBC: {"pad": 0, "cube_math_type": 0},
}
# One number stands for every dimension.
SPREAD = ("stride", "padding", "dilation", "output_padding")
KEYS = ("name", "api", "product", "rules", "tensors", "attributes", "outputs", "expect")


@dataclass(frozen=True)
class AskedCall:
    """A call to check, where and by whose rules (none: the command's choice), and the expected status."""

    name: str
    call: Call
    products: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    expected: int | None = None


@dataclass(frozen=True)
class _Told:
    """The part of a call that the command line or a file gives."""

    api: str
    inputs: Mapping[str, TensorDescription | None]
    attributes: Mapping[str, Any]
    outputs: Mapping[str, TensorDescription | None] = field(default_factory=dict)
    output_dtypes: tuple[str | None, str | None, str | None] = (None, None, None)


def call_in_words(arguments: Any) -> AskedCall:
    """Make the call that the options describe; grad_output and the gradients follow from the rest.

    Raises   ConfigError where sizes are missing, or an option belongs to the other interface
    """
    api = TBC if arguments.tbc else CONV
    for name in ("input", "weight"):
        if getattr(arguments, name) is None:
            raise ConfigError(f"--{name} is missing; --input and --weight, or a file, say what to check")
    given = {name: getattr(arguments, name, None) for name in (*ATTRIBUTES[CONV], *ATTRIBUTES[TBC])}
    given["output_mask"] = arguments.mask
    # argparse leaves None where an option is not given; only given values are checked by the interface.
    told = {name: value for name, value in given.items() if value is not None}
    for name in told:
        if name not in ATTRIBUTES[api]:
            option = "mask" if name == "output_mask" else name.replace("_", "-")
            raise ConfigError(f"--{option} goes {'without' if arguments.tbc else 'with'} --tbc")
    told = {k: v[0] if k in SPREAD and len(v) == 1 else v for k, v in told.items()}
    dtypes = arguments.dtype or ("float16",) * 3
    inputs: dict[str, TensorDescription | None] = {}
    for name, dtype in zip(("grad_output", "input", "weight"), dtypes, strict=True):
        if (shape := getattr(arguments, name)) is not None:
            inputs[name] = TensorDescription(shape, dtype, arguments.format)
    call = _made(
        _Told(api, inputs, told, {}, arguments.output_dtype or (None, None, None)), dtypes[0], "the call"
    )
    return AskedCall(_title(call), call)


def calls_in_file(path: Path) -> list[AskedCall]:
    """Read one call or a list of calls.

    Raises   DataError naming the file, the place, and the expected value
    """
    try:
        content = parse_json(read_text(path))
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({error.strerror or error}); name a file of calls in JSON, or give one "
            "call by --input and --weight"
        ) from None
    except UnicodeDecodeError:
        raise DataError(f"{path}: is not JSON text") from None
    except ValueError as error:
        raise DataError(f"{path}: is not JSON: {error}") from None
    # One call or a list of them; only calls of a list are numbered in messages.
    if not isinstance(content, list):
        return [_asked(content, str(path))]
    if not content:
        raise DataError(f"{path}: holds no call")
    return [_asked(entry, f"{path}[{i}]") for i, entry in enumerate(content)]


def _asked(entry: Any, where: str) -> AskedCall:
    _known(entry, KEYS, where)
    api = entry.get("api", CONV)
    if not isinstance(api, str) or api not in INPUTS:
        raise DataError(f"{where}: api is {api!r}; it must be {CONV} or {TBC}")
    tensors, attributes = entry.get("tensors", {}), entry.get("attributes", {})
    _known(tensors, INPUTS[api], f"{where}: tensors")
    _known(attributes, tuple(ATTRIBUTES[api]), f"{where}: attributes")
    for name in ("input", "weight"):
        if name not in tensors:
            raise DataError(f"{where}: tensors has no {name}; write null for a null pointer")
    outputs = entry.get("outputs", {})
    _known(outputs, GRADIENTS, f"{where}: outputs")
    told = _Told(
        api,
        {name: _tensor(value, f"{where}: {name}") for name, value in tensors.items()},
        attributes,
        {name: _tensor(value, f"{where}: {name}") for name, value in outputs.items()},
    )
    # grad_output has the format of the input; where that is a null pointer, the call is refused in any case.
    source = told.inputs["input"] or told.inputs["weight"]
    call = _made(told, source.dtype if source else "float32", where)
    expected = entry.get("expect", {"status": None})
    _known(expected, ("status",), f"{where}: expect")
    status = expected.get("status")
    # JSON's true would be the status 1.
    if status is not None and (not isinstance(status, int) or isinstance(status, bool)):
        raise DataError(f"{where}: expect.status is {status!r}; it must be a number, 0 for success")
    name = entry.get("name")
    return AskedCall(
        _title(call) if name is None else str(name),
        call,
        _several(entry.get("product"), f"{where}: product"),
        _several(entry.get("rules"), f"{where}: rules"),
        status,
    )


def _made(told: _Told, dtype: str, where: str) -> Call:
    """Fill in missing values: attributes, grad_output and bias from the shapes, outputs from inputs."""
    values = {**ATTRIBUTES[told.api], **told.attributes}
    # Only values that follow from the rest are filled in. Given values stay, however wrong: the rules find
    # mistakes.
    inputs = dict(told.inputs)
    if told.api == TBC:
        inputs.setdefault("bias", _tbc_bias(inputs, where))
    else:
        for name in SPREAD:
            shape = inputs["input"].shape if inputs["input"] else ()
            # A truth value is left as it is, for the rules to refuse.
            if isinstance(values[name], int) and not isinstance(values[name], bool):
                values[name] = (values[name],) * max(0, len(shape) - 2)
    if "grad_output" not in inputs:
        shape = _grad_output(told.api, inputs, values, where)
        about = inputs["input"]
        inputs["grad_output"] = TensorDescription(shape, dtype, about.format if about else None)
    kind: Any = ConvTbcBackwardCall if told.api == TBC else ConvolutionBackwardCall
    full: Call = kind(**inputs, **values, **dict.fromkeys(GRADIENTS)).with_usual_outputs(told.output_dtypes)
    # The usual outputs bring the usual bias_sizes, unless somebody wants to try others.
    if told.api == CONV and "bias_sizes" in told.attributes:
        full = replace(full, bias_sizes=told.attributes["bias_sizes"])
    outputs: dict[str, Any] = dict(told.outputs)
    return replace(full, **outputs)


def _grad_output(api: str, inputs: Mapping[str, Any], values: Mapping[str, Any], where: str) -> Any:
    """Return the shape that grad_output must have, if the rest is a convolution."""
    from ascendsim.errors import ShapeError
    from ascendsim.ops.problems.convolution import ConvProblem

    image, weight = inputs["input"], inputs["weight"]
    if image is None or weight is None:
        raise DataError(f"{where}: grad_output is missing and does not follow from a null input or weight")
    try:
        # No record of a TBC problem exists: it is permuted to a 1-D convolution before anything is computed.
        if api == TBC:
            time, batch, _ = image.shape
            taps, _, made = weight.shape
            return time + 2 * values["pad"] + 1 - taps, batch, made
        names = ("stride", "padding", "dilation", "transposed", "output_padding", "groups")
        return ConvProblem(image.shape, weight.shape, *(values[name] for name in names)).grad_output
    except (ShapeError, TypeError, ValueError) as error:
        raise DataError(
            f"{where}: grad_output does not follow from the rest ({error}); give its shape as well"
        ) from None


def _tbc_bias(inputs: Mapping[str, Any], where: str) -> TensorDescription:
    weight = inputs["weight"]
    if weight is None or len(weight.shape) != 3:
        raise DataError(f"{where}: bias is missing and does not follow from weight; give it as well")
    return TensorDescription((weight.shape[2],), weight.dtype, "ND")


def _tensor(value: Any, where: str) -> TensorDescription | None:
    """Read a tensor; the checks judge its fields."""
    if value is None:
        return None
    _known(value, ("shape", "dtype", "format", "strides"), where)
    for key in ("shape", "dtype"):
        if key not in value:
            raise DataError(f"{where}: {key} is missing")
    if not isinstance(value["shape"], list):
        raise DataError(f"{where}: shape is {value['shape']!r}; it must be a list of whole numbers")
    return TensorDescription(tuple(value["shape"]), value["dtype"], value.get("format"), value.get("strides"))


def _several(value: Any, where: str) -> tuple[str, ...]:
    """Read a name, a list of names, or nothing."""
    names = [] if value is None else value if isinstance(value, list) else [value]
    if not all(isinstance(name, str) for name in names):
        raise DataError(f"{where}: got {value!r}; it must be a name or a list of names")
    return tuple(names)


def _known(table: Any, keys: tuple[str, ...], where: str) -> None:
    """Refuse anything that is not a table with some of these keys."""
    if not isinstance(table, dict):
        raise DataError(f"{where}: got {type(table).__name__}; it must be a table of {', '.join(keys)}")
    for key in table:
        if key not in keys:
            hint = did_you_mean(key, keys)
            raise DataError(f"{where}: unknown key {key!r}; {hint}")


def _title(call: Call) -> str:
    """Name a call by its interface and shapes."""
    shapes = [tensor.shape if tensor else None for tensor in (call.input, call.weight)]
    sizes = ["null" if shape is None else "x".join(map(str, shape)) or "scalar" for shape in shapes]
    return f"{call.api}, input {sizes[0]}, weight {sizes[1]}"


ACCEPTED, REFUSED = 0, 1
DEFAULT_RULES = ("documented", "shipped")
Answer = dict[str, Any]


def check(arguments: Any) -> int:
    """Check what was asked for and print the answers.

    Returns  0 if every answer is success or what was expected, 1 if not
    """
    asked = _calls_of(arguments)
    # All names are looked up before the first call is checked: a slip in the last one is reported at once.
    wanted = [
        (place, product, rules)
        for place, call in enumerate(asked)
        for product, rules in _pairs(call, arguments.product or call.products, arguments.rules or call.rules)
    ]
    answers: list[list[Answer]] = [[] for _ in asked]
    with progress(len(wanted)) as advance:
        for place, product, rules in wanted:
            advance(f"{product} {rules}")
            answers[place].append(_answer(asked[place], product, rules))
    every = [answer for own in answers for answer in own]
    if arguments.json:
        print(json.dumps(every, indent=1))
    else:
        from ascendsim.report.terminal import print_answers

        titles = _titles({rules for _, _, rules in wanted})
        chosen = arguments.product or any(call.products for call in asked)
        print_answers(answers, titles, "" if chosen else _left_out(every, titles))
    return ACCEPTED if all(answer["as_expected"] for answer in every) else REFUSED


def _calls_of(arguments: Any) -> list[AskedCall]:

    if arguments.file is None:
        return [call_in_words(arguments)]
    if arguments.input is not None or arguments.weight is not None:
        raise ConfigError("a file and --input or --weight cannot be combined: the file gives the sizes")
    return calls_in_file(arguments.file)


def _pairs(asked: AskedCall, products: Any, rules: Any) -> list[tuple[str, str]]:
    """Return the (product, rule set) to ask: without products, those on which the rules have the operator.

    Raises   ConfigError with near misses for unknown names
    """
    from ascendsim.rules import load_rules

    sets = {name: load_rules(name) for name in _rule_sets(rules or DEFAULT_RULES)}
    for product in products or ():
        _require_known(product)
    part = "tbc" if asked.call.api == TBC else "convolution"
    every = [(product, name) for product in products or _every_product() for name in sets]
    if products:
        return every
    # A user's own rules may have the operator nowhere; then all refuse, which is an answer as well.
    return [pair for pair in every if pair[0] in getattr(sets[pair[1]], part).products] or every


def _every_product() -> tuple[str, ...]:
    from ascendsim.rules import product_names

    return tuple(product.name for product in product_names())


def _rule_sets(names: Any) -> tuple[str, ...]:
    from ascendsim.rules import rule_set_names

    return rule_set_names() if "all" in names else tuple(names)


def _require_known(product: str) -> None:
    """Check the name of a product.

    Raises   ConfigError with near misses
    """
    from ascendsim.profile import load_profile
    from ascendsim.rules import known_product, rule_product

    # The rules know products that no file describes, and a file describes one that no rule names.
    if product.endswith(".toml"):
        load_profile(product)
    else:
        rule_product(known_product(product))


def _answer(asked: AskedCall, product: str, rules: str) -> Answer:
    """Return the interface's answer: success with its decisions, or the status with the reason."""
    from ascendsim.aclnn.interface import first_phase

    answer: Answer = {"call": asked.name, "api": asked.call.api, "product": product, "rules": rules}
    try:
        workspace, executor = first_phase(asked.call, {}, product, rules)
        decision = executor.decision
        answer |= {
            "status": 0,
            "name": "success",
            "compute_dtype": decision.compute_dtype,
            "promoted_dtype": decision.promoted_dtype,
            "empty": decision.empty,
            "workspace_bytes": workspace,
            "warnings": list(decision.warnings),
        }
    except AclnnError as error:
        answer |= {"status": error.status, "name": error.name, "check": error.check, "reason": error.reason}
    answer["expected"] = asked.expected
    answer["as_expected"] = answer["status"] == (asked.expected or 0)
    return answer


def _titles(names: Collection[str]) -> Mapping[str, str]:
    """Return the titles of rule sets by name, the default ones first."""
    from ascendsim.rules import load_rules

    ordered = sorted(names, key=lambda name: (name not in DEFAULT_RULES, name))
    return {name: load_rules(name).title for name in ordered}


def _left_out(answers: list[Answer], names: Collection[str]) -> str:
    """Name the products that were not asked, with the rule sets if others were."""
    asked = {(answer["product"], answer["rules"]) for answer in answers}
    parts = []
    for product in _every_product():
        missing = [name for name in names if (product, name) not in asked]
        if missing:
            parts.append(product if len(missing) == len(names) else f"{product} by {' and '.join(missing)}")
    return ", ".join(parts)


EXAMPLES = """\
examples:
  ascendsim check --input 2,16,14,14 --weight 32,16,3,3 --padding 1 --dtype bfloat16 --cube-math-type 2
  ascendsim check --input 8,16,9,9 --weight 16,32,3,3 --transposed --stride 2 --product 910_95 --rules shipped
  ascendsim check --tbc --input 20,4,8 --weight 3,8,16 --pad 1
  ascendsim check call.json --json

exit status: 0 if every answer is success, or the one that the file expects; 1 if not; 2 for a mistake in the
words or the file
"""


def add_check(choices: Any) -> Any:
    """Add the command to the parser's commands and return its own parser."""
    check = choices.add_parser(
        "check",
        help="would the interface accept a call, on which product, by which rules",
        description="Check a call as aclnnConvolutionBackwardGetWorkspaceSize (with --tbc:\n"
        "aclnnConvTbcBackwardGetWorkspaceSize) would: accepted with compute dtype and workspace,\n"
        "or the status with the reason, for each product and rule set.",
        epilog=EXAMPLES,
        formatter_class=Wrapped,
        allow_abbrev=False,
    )
    check.add_argument(
        "file",
        nargs="?",
        type=Path,
        metavar="FILE",
        help="a file of calls in JSON (docs/interface.md has its form); a layer of a network has no name "
        "here: give its sizes by --input and --weight",
    )
    _add_call(check.add_argument_group("or one call in words"))
    where = check.add_argument_group("where, and by whom")
    where.add_argument(
        "--product",
        action="append",
        metavar="NAME",
        help="product; repeat it for several (default: all that have the operator by the rules)",
    )
    where.add_argument(
        "--rules",
        action="append",
        metavar="NAME",
        help="rule set or path of a .toml file, or all; repeatable (default: documented, what the vendor's "
        "pages promise, and shipped, what the operator's published code accepts)",
    )
    check.add_argument("--json", action="store_true", help="print JSON instead of a table")
    check.set_defaults(command=_check)
    return check


def _add_call(call: Any) -> None:
    """Add the options of one call; nothing is required or bounded, since the command is about refusals."""
    # None and not False where an option is absent: the other interface refuses options that are given.
    call.add_argument("--tbc", action="store_true", default=None, help="conv_tbc: (time, batch, channels)")
    for name, shape in (("input", "N,C,H,W"), ("weight", "CO,CI,KH,KW"), ("grad-output", "N,CO,HO,WO")):
        call.add_argument(f"--{name}", type=sizes, metavar=shape, help=f"sizes of {name.replace('-', '_')}")
    for name in ("stride", "padding", "dilation", "output-padding", "bias-sizes"):
        call.add_argument(f"--{name}", type=sizes, metavar="N[,N]", help=f"its {name.replace('-', ' ')}")
    call.add_argument("--transposed", action="store_true", default=None, help="transposed convolution")
    call.add_argument("--groups", type=int, help="its groups")
    call.add_argument("--pad", type=int, help="padding of conv_tbc")
    call.add_argument("--mask", type=gradients, metavar="NAMES", help="gradients wanted: input,weight,bias")
    call.add_argument("--cube-math-type", type=int, metavar="N", help="cubeMathType, any number (default 0)")
    call.add_argument(
        "--dtype",
        type=names,
        metavar="NAME[,NAME,NAME]",
        help="of all tensors, or of grad_output, input and weight (default float16)",
    )
    call.add_argument(
        "--output-dtype",
        type=names,
        metavar="NAME[,NAME,NAME]",
        help="of all gradients, or of grad_input, grad_weight and grad_bias (default: of their tensors)",
    )
    call.add_argument("--format", metavar="NAME", help="storage format (default: the usual one of the rank)")


def names(text: str) -> tuple[str, str, str]:
    """Read one name, or three."""
    parts = tuple(part.strip() for part in text.split(","))
    if len(parts) == 1:
        return parts[0], parts[0], parts[0]
    if len(parts) != 3 or not all(parts):
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither one name nor three, such as float32,float16,float16"
        )
    return parts[0], parts[1], parts[2]


def _check(arguments: Any) -> int:

    return check(arguments)
