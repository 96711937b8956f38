"""The options that say which layer, network, convolution or tensors a command is about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ascendsim.cli.values import gradients, positive, sizes
from ascendsim.workloads import workload_names


def add_problem(command: Any) -> None:
    """Add what says which layer, network, sizes or tensors are meant."""
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
    what.add_argument("--batch", type=positive, help="batch of a layer or network (default 1)")
    what.add_argument("--npz", type=Path, metavar="FILE", help="your own grad_output, input and weight")
    what.add_argument("--input", type=sizes, metavar="N,C,H,W", help="sizes of the input of one convolution")
    what.add_argument("--weight", type=sizes, metavar="CO,CI,KH,KW", help="sizes of its weight")
    # None where they are absent, so that an option beside a workload or a file is told from its default.
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
