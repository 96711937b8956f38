"""`ascendsim profiles`: the products, and every figure of one with its source."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ascendsim.errors import ConfigError


def profiles(arguments: Any) -> int:
    """List products and variants, or the figures of one."""
    from ascendsim.profile import list_products, load_profile
    from ascendsim.report.document import profile_entry, variant_entry

    if arguments.new is not None:
        return new_profile(arguments.new, arguments.like)
    if arguments.like is not None:
        raise ConfigError(f"--like {arguments.like}: names the model of a new file; add --new FILE.toml")
    if arguments.name is not None:
        profile = load_profile(arguments.name)
        if arguments.json:
            print(json.dumps(profile_entry(profile), indent=1))
        else:
            from ascendsim.report.terminal import print_profile

            print_profile(profile)
        return 0
    rows = [
        variant_entry(product, load_profile(variant))
        for product in list_products()
        for variant in product.variants or (product.name,)
    ]
    if arguments.json:
        print(json.dumps(rows, indent=1))
    else:
        from ascendsim.report.terminal import print_products

        print_products(rows)
    return 0


def new_profile(path: Path, like: str | None) -> int:
    """Write the file of a chip that does not exist yet; one that is there stays."""
    from ascendsim.files import write_text
    from ascendsim.profile.new import CHECK, DECIDE, FILL_IN, new_product
    from ascendsim.report.terminal import print_line

    if path.suffix != ".toml":
        raise ConfigError(f"--new {path}: a product file ends in .toml, such as {path.name}.toml")
    if path.exists():
        raise ConfigError(f"--new {path}: is there already; name another file, or remove it")
    text = new_product(like)
    write_text(path, text)
    marks = {mark: text.count(f"  # {mark}") for mark in (FILL_IN, DECIDE, CHECK)}
    counted = ", ".join(f"{count} marked {mark}" for mark, count in marks.items() if count)
    begin = "" if like else "; --like 910B, or another product, begins with its figures instead"
    print_line(f"{path}: {counted}{begin}; then `ascendsim run --product {path}`")
    return 0


def add_probe(choices: Any) -> dict[str, Any]:
    """Add both commands to a parser's choices, and return them by name."""
    made = choices.add_parser(
        "probe",
        help="sums whose results differ between accumulation models, to be run on a device",
        description="Write matrix products and convolution backwards whose results differ between "
        "accumulation models, and a script that runs them on a device through torch.",
        allow_abbrev=False,
    )
    made.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to write")
    made.add_argument(
        "--dtype",
        action="append",
        metavar="FORMAT",
        help="float16, bfloat16, float32 or hf32 (float32 with HF32 allowed); more than "
        "once: several (default: all)",
    )
    made.add_argument(
        "--simulate",
        metavar="MODEL",
        help="also write outputs.npz, as a device would: the simulator's answers under this accumulation "
        "model, such as block:16:RNE, for who has no device at hand and wants to try `identify`",
    )
    made.add_argument(
        "--product", default="910B", metavar="NAME", help="with --simulate, the product that answers (910B)"
    )
    made.set_defaults(command=probe)
    read = choices.add_parser(
        "identify",
        help="the accumulation models that agree with what a device answered",
        description="Read what a device answered to a probe, and say which accumulation models are left.",
        allow_abbrev=False,
    )
    read.add_argument("folder", type=Path, metavar="DIR", help="folder of a probe with outputs.npz")
    read.add_argument("--json", action="store_true", help="print records as JSON")
    read.set_defaults(command=identify)
    return {"probe": made, "identify": read}


def probe(arguments: Any) -> int:
    """Write a probe, and the simulator's answers if they are asked for."""
    from ascendsim.report.terminal import print_line
    from ascendsim.studies.identify.folder import OUTPUTS, SCRIPT_NAME, write_outputs, write_probe
    from ascendsim.studies.identify.vectors import FORMATS, simulated

    folder, model = arguments.out, arguments.simulate
    cases = write_probe(folder, tuple(dict.fromkeys(arguments.dtype or FORMATS)))
    if model is not None:
        write_outputs(folder, {case: simulated(case, arguments.product, model) for case in cases})
    print_line(
        f"{len(cases)} calls in {folder}; run `python {SCRIPT_NAME}` there on a machine with the device"
    )
    if model is not None:
        print_line(f"{OUTPUTS} holds what {arguments.product} answers under {model}, simulated")
    return 0


def identify(arguments: Any) -> int:
    """Read answers, and print which models are left, format by format."""
    from ascendsim.report.terminal import identification_lines, print_line
    from ascendsim.studies.identify.folder import read_outputs
    from ascendsim.studies.identify.judge import identify_outputs
    from ascendsim.studies.identify.vectors import DEPTH

    found = identify_outputs(read_outputs(arguments.folder))
    if arguments.json:
        print(json.dumps([asdict(one) for one in found], indent=1))
    else:
        for line in (line for one in found for line in identification_lines(one, DEPTH)):
            print_line(line)
    return 0
