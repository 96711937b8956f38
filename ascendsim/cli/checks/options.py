"""Declare the words of `ascendsim check`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ascendsim.cli.values import gradients, sizes

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
        formatter_class=argparse.RawDescriptionHelpFormatter,
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
    """Add what describes one call; nothing is required or bounded, since refusals are what is asked about."""
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
    from ascendsim.cli.checks.check import check

    return check(arguments)
