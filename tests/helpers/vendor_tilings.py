"""The vendor's unit tests of tilings, as layers, machines and what is expected of them."""

import json
from collections import Counter

from ascendsim import ConvProblem
from ascendsim.errors import ShapeError
from ascendsim.ops.tiling.vendor.layer import Layer, Layouts, Machine
from ascendsim.profile import load_profile

GRADIENTS = {"dX": "grad_input", "dW": "grad_weight"}
PRODUCTS = {"arch22": "910B2", "arch35": "950PR_9599"}
# Our names of the fields that the records have under the vendor's.
FIELDS = {
    "base_m": "baseM",
    "base_n": "baseN",
    "base_k": "baseK",
    "step_ka": "stepKa",
    "step_kb": "stepKb",
    "step_m": "stepM",
    "step_n": "stepN",
    "al1_buffers": "al1Pbuffer",
    "bl1_buffers": "bl1Pbuffer",
    "cl0_buffers": "cl0Pbuffer",
}
FURTHER = {
    "dX": {
        "single_core_m": "singleCoreM",
        "single_core_n": "singleCoreCin",
        "single_core_d": "singleCoreDin",
        "group_merge": "enlarge",
        "k_segment": "kSegment",
        "through_gm": "kSUseWorkSpace",
        "transpose_first": "enableVecTrans",
        "zero_first": "initOutputFlag",
    },
    "dW": {
        "single_core_m": "singleCoreM",
        "single_core_n": "singleCoreN",
        "single_core_k": "singleCoreK",
    },
}
GATED = ("base_m", "base_n", "base_k", "used_cores")


def records(data_dir, op, arch, kind="unit_test"):
    """Return the records of one operator that are whole in themselves, successful ones and others."""
    found = json.loads((data_dir / "tilings.json").read_text())["records"]
    return [
        record
        for record in found
        if (record["op"], record["arch"], record["kind"]) == (op, arch, kind) and not record.get("validation")
    ]


def shapes_of(record):
    """Return the shapes of input, weight and grad_output."""
    return tuple(record["ncdhw"].values())


def problem_of(record):
    """Return the record as a convolution; ShapeError says what no convolution of ours can be."""
    input, weight, grad_output = shapes_of(record)
    stride, dilation, pads = record["stride_dhw"], record["dilation_dhw"], record["pads"]
    last = record.get("data_format") == "NDHWC"
    batch, *rest = record.get("strides_attr", [1, 1, *stride])
    if (batch, rest[-1 if last else 0]) != (1, 1):
        raise ShapeError(f"strides {batch, *rest} step over batch or channels")
    if min(pads) < 0:
        raise ShapeError(f"padding {pads} is negative")
    if grad_output is None or min(*input, *weight, *grad_output) < 1:
        raise ShapeError(f"a tensor is empty: {input} {weight} {grad_output}")
    flat = input[2] == weight[2] == 1 and pads[:2] == [0, 0]
    if not flat and (pads[::2] != pads[1::2]):
        raise ShapeError(f"padding {pads} differs before and after an axis of three")
    cut = (lambda shape: [*shape[:2], *shape[3:]]) if flat else list
    problem = ConvProblem(
        cut(input),
        cut(weight),
        stride[1:] if flat else stride,
        pads[2:] if flat else pads[::2],
        dilation[1:] if flat else dilation,
        groups=record["groups"],
    )
    problem.check_grad_output(tuple(cut(grad_output)))
    return problem


def layouts_of(record):
    """Return how the tensors of a record lie; on arch22 they are packed before the kernel runs."""
    names = {"x": "input", "y": "input", "filter": "weight", "filter(y)": "weight"}
    names["out_backprop"] = "grad_output"
    formats = {names[name]: one["format"] for name, one in record.get("shapes", {}).items()}
    plain = {"NCDHW", "NDHWC", "DHWCN"}
    return Layouts(**{name: form for name, form in formats.items() if form in plain})


def layer_of(record):
    """Return the layer of a record, whether a convolution of ours can say it or not."""
    input, weight, grad_output = shapes_of(record)
    pads, groups = record["pads"], record["groups"]
    itemsize = {"hifloat8": 1, "float32": 4}.get(record["dtype"], 2)
    return Layer(
        *(input[0], groups, weight[1], weight[0] // groups),
        *map(tuple, (input[2:], grad_output[2:], weight[2:], record["stride_dhw"], record["dilation_dhw"])),
        pads=tuple(zip(pads[::2], pads[1::2], strict=True)),
        itemsize=itemsize,
        true_fp32=record["dtype"] == "float32" and not record["hf32"],
        layouts=layouts_of(record),
    )


def overrides_of(record):
    """Return what a profile needs to have the buffers and cores of a record."""
    hw = record["hw"]
    changed = {
        f"buffers.{name}.capacity_bytes": hw[f"{name}_SIZE"] for name in ("L1", "L0A", "L0B", "L0C", "UB")
    }
    return {**changed, "cores.cube": hw["CORE_NUM"]}


def profile_of(record):
    """Return a product with the buffers and cores of a record."""
    return load_profile(PRODUCTS[record["arch"]], overrides_of(record))


def machine_of(record):
    """Return the same as planning sees it."""
    return Machine.of(profile_of(record))


def gated(plan):
    """Return what must be equal in a plan."""
    return tuple(getattr(plan, name) for name in GATED)


def expected(record):
    """Return what must be equal in the record."""
    return *(record["expected"][FIELDS[name]] for name in GATED[:3]), record["block_dim"]


def agreement(pairs):
    """Count by field how many plans say what their records say, and how many records say anything."""
    counts = Counter()
    for plan, record in pairs:
        for ours, theirs in {**FIELDS, **FURTHER[record["op"]]}.items():
            # A record of a kernel without shares of tasks says 0 there.
            if theirs in record["expected"] and (
                record["expected"][theirs] or not theirs.startswith("single")
            ):
                counts[ours, "said"] += 1
                counts[ours, "equal"] += getattr(plan, ours) == record["expected"][theirs]
    return {name: (counts[name, "equal"], counts[name, "said"]) for name, _ in counts}
