"""The readers of outside records: cases, measured rows, tilings and plans of the vendor."""

import csv
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from ascendsim import ConvProblem
from ascendsim.errors import ShapeError
from ascendsim.ops.tiling.vendor.layer import LayerSizes, Layouts, Machine
from ascendsim.profile import load_profile
from ascendsim.rules import ConvolutionBackwardCall, ConvTbcBackwardCall, TensorDescription
from ascendsim.validate.schema import COLUMNS, read_row

# --- The one reader of the outside test records: files that vary in shape become records of one kind. --

FILES = (
    *("atk_conv", "atk_tbc", "examples", "gtest_conv", "gtest_tbc"),
    *("ttk_aclnn_csv", "ttk_kernel_csv", "whitelist_shapes"),
)
# What a record that fixes no product is tried on: those that every operator version of the records supports.
ANY_PRODUCT = ("910B", "910_93", "910_95")
INPUTS = ("grad_output", "input", "weight", "bias")
OUTPUTS = ("grad_input", "grad_weight", "grad_bias")
ATTRIBUTES = (
    *("bias_sizes", "stride", "padding", "dilation", "transposed", "output_padding", "groups"),
    *("output_mask", "cube_math_type"),
)


@dataclass(frozen=True)
class CaseRecord:
    """One outside case.

    call        the arguments, for `ascendsim.rules`
    products    to try it on
    kernel      "" for a call of the interface; for a record of a bare kernel its name, where grad_weight is
                float32 whatever the inputs are
    status      expected: 0, an error status, or None where the record expects nothing
    active      False for cases that their authors have switched off
    consistent  whether the shapes are those of a convolution; None where nobody says
    macs        multiply-adds of all gradients asked for; None where the record says none
    ranges      name of an input -> (low, high) of its values, uniform
    tolerances  (relative, share of misses) for each output, or one for all; () where none is given
    """

    id: str
    file: str
    call: ConvolutionBackwardCall | ConvTbcBackwardCall
    products: tuple
    kernel: str
    status: int | None
    active: bool
    consistent: bool | None
    macs: int | None
    ranges: dict
    tolerances: tuple

    def __str__(self):
        return self.id

    @property
    def is_interface(self):
        """Whether it is a call of the interface, not of a bare kernel."""
        return not self.kernel

    def expected_gradients(self, most_macs=50_000_000):
        """Tell whether the gradients of this case are to be computed and compared."""
        if self.kernel:
            return self.macs is not None and self.macs < most_macs
        small = self.macs is not None and self.macs < most_macs
        return self.active and self.status == 0 and self.consistent is True and small


def case_records(data_dir):
    """Read every record of the folder, in the order of the files."""
    folder = Path(data_dir) / "cases"
    return [_record(name, raw) for name in FILES for raw in json.loads((folder / f"{name}.json").read_text())]


def cube_math_rows(data_dir):
    """Read the table of cubeMathType: (product, promoted dtype, cube_math_type, status, compute dtype)."""
    rows = []
    for raw in json.loads((Path(data_dir) / "cases" / "cube_math_table.json").read_text()):
        compute = "hf32" if raw["hf32"] else raw["matmul_input_dtype"]
        for soc in raw["soc"].split("/"):
            product = soc if soc.startswith("Ascend") else f"Ascend{soc}"
            status = _status(raw["status"])
            rows.append((product, raw["promoted_dtype"], raw["cube_math_type"], status, compute))
    return rows


def _record(file, raw):
    analysis, kernel = raw["analysis"], raw["api"].removeprefix("kernel:")
    return CaseRecord(
        id=raw["id"],
        file=file,
        call=_call(raw),
        products=ANY_PRODUCT if raw["soc"].startswith("any") else (raw["soc"],),
        kernel=kernel if raw["api"].startswith("kernel:") else "",
        status=_status(raw["expect"]["status"]),
        active=raw.get("active", True),
        consistent=analysis.get("consistent"),
        macs=analysis.get("macs_total"),
        ranges=_ranges(raw),
        tolerances=tuple(
            tuple(pair)
            for key in ("tolerance_pairs_per_output", "tolerance_pairs")
            for pair in raw["expect"].get(key, ())
        ),
    )


def _call(raw):
    tensors = {name: _tensor(raw[name]) for name in INPUTS if name in raw}
    outputs = {name: _tensor(raw["outputs"][name]) for name in OUTPUTS}
    if "pad" in raw:
        return ConvTbcBackwardCall(**tensors, pad=raw["pad"], cube_math_type=raw["cube_math_type"], **outputs)
    return ConvolutionBackwardCall(**tensors, **{name: raw[name] for name in ATTRIBUTES}, **outputs)


def _tensor(raw):
    return None if raw is None else TensorDescription(tuple(raw["shape"]), raw["dtype"], raw["format"])


def _status(value):
    """Return 0, a number, or None for "unspecified"."""
    known = {"SUCCESS": 0, "unspecified": None}
    assert value in known or isinstance(value, int), value
    return known.get(value, value) if isinstance(value, str) else value


def _ranges(raw):
    """Return (low, high) for every input; records without a range mean (-1, 1)."""
    given, names = raw.get("value_range"), [name for name in INPUTS if name in raw]
    if given is None:
        return dict.fromkeys(names, (-1.0, 1.0))
    if isinstance(
        given, list
    ):  # one pair for all tensors, or one for each in the kernel's own order: equal ones
        (pair,) = {tuple(pair) for pair in given}
        return dict.fromkeys(names, pair)
    if "all" in given:
        value = float(given["all"].removeprefix("constant "))
        return dict.fromkeys(names, (value, value))
    return {name: tuple(given[name]) for name in names}


# --- Measured rows for tests: one of every kernel, as cells of a table and as records. -----------------

# The columns that every kernel has beside those of `KINDS`.
ABOUT = {"id": "mine", "variant": "910B1", "source": "a table"}
SQUARE = {"kernel": "matmul", "compute_dtype": "float16", "m": 256, "k": 256, "n": 256, "measured_us": 10}
LAYER = {"compute_dtype": "float16", "input_shape": "2x32x12x10", "weight_shape": "48x32x3x3"} | {
    "padding": "1x1x1x1",
    "measured_us": 20,
}
# 8 rows of 4 tiles over 20 cores: 12 of them take two.
TILES = {"kernel": "matmul", "variant": "910B3", "compute_dtype": "float16", "out_dtype": "float16"} | {
    "m": 1024,
    "k": 128,
    "n": 1024,
    "base_m": 128,
    "base_n": 256,
    "base_k": 128,
    "used_cores": 20,
    "single_core_m": 128,
    "single_core_n": 256,
    "bl0_buffers": 1,
    "pipe": "M",
    "tiles_on_core": 2,
    "measured_us": 1.2,
}
# One row of every kind that a table may have; each is compared as it stands.
KINDS = {
    "move": {"kernel": "move", "path": "GM_L1", "bytes": 1024, "measured_cycles": 173},
    "load": {"kernel": "load", "path": "L1_L0A", "repeats": 2, "in_a_row": "yes", "measured_cycles": 9},
    "vector": {"kernel": "vector", "vector_kind": "binary", "repeats": 2, "measured_cycles": 9},
    "mmad": {"kernel": "mmad", "compute_dtype": "float16", "m": 16, "k": 16, "n": 16, "measured_cycles": 25},
    "copy_and_wait": {"kernel": "copy_and_wait", "path": "GM_UB", "bytes": 4096, "measured_us": 0.2},
    "stream": {"kernel": "stream", "variant": "950DT_9582", "path": "GM_UB", "cores": 1, "bytes": 1 << 22}
    | {"moved_bytes": 1 << 24, "measured_us": 130},
    "matmul": SQUARE | {"blocks": 4, "m_us": 3, "mte2_us": 5},
    "plan": SQUARE | {"base_m": 64, "base_n": 64, "base_k": 64, "used_cores": 16},
    "tiles": TILES,
    "grad_input": LAYER | {"kernel": "grad_input"},
    "grad_weight": LAYER | {"kernel": "grad_weight"},
    "forward": LAYER | {"kernel": "forward"},
    "transdata": {"kernel": "transdata", "compute_dtype": "float16", "input_shape": "2x32x12x10"}
    | {"change": "NCHW->NC1HWC0", "measured_us": 5, "v_us": 1, "mte3_us": 2},
    "grad_bias": {"kernel": "grad_bias", "compute_dtype": "float16", "input_shape": "2x32x12x10"}
    | {"measured_us": 6},
    "grad_input_call": LAYER | {"kernel": "grad_input_call", "l2_start": "chained"},
    "grad_weight_call": LAYER | {"kernel": "grad_weight_call", "l2_start": "chained"},
}


def cells(kind, **changes):
    """Return the cells of a row of a kind, as texts; None takes one away."""
    made = ABOUT | KINDS[kind] | changes
    return {column: str(value) for column, value in made.items() if value is not None}


def made(kind, **changes):
    """Return a row of a kind as it is read."""
    return read_row(cells(kind, **changes))


def write_table(path, *rows, columns=tuple(COLUMNS)):
    """Write a table of rows given as cells and return its path."""
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, columns, restval="")
        table.writeheader()
        table.writerows(rows)
    return path


# --- The vendor's unit tests of tilings, as layers, machines and what is expected of them. -------------

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
    return LayerSizes(
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


# --- Layers with every field of their plan, computed from the operators' written rules. ----------------
# The outside data has two files of them: `plan_vectors.json` (the operators of volumes and of 910_95) and
# `plan_vectors_2d.json` (the library that plans a 2-D grad_weight of the 910B).

# Fields of both operators beside those of `FIELDS`, the vendor's names by ours.
MORE = {
    "al0_buffers": "al0Pbuffer",
    "bl0_buffers": "bl0Pbuffer",
    "cl0_buffers": "cl0Pbuffer",
}


def vectors(data_dir, op, arch):
    """Return the records of one operator, each with its number in the file."""
    found = json.loads((data_dir / "plan_vectors.json").read_text())["records"]
    return [(at, one) for at, one in enumerate(found) if (one["op"], one["arch"]) == (op, arch)]


def vectors_2d(data_dir):
    """Return the 2-D records, each with its number in the file."""
    return list(enumerate(json.loads((data_dir / "plan_vectors_2d.json").read_text())["records"]))


def told(plan, op):
    """Return what a plan says, by the vendor's names: our own fields, and what no nest reads of it."""
    ours = {**FIELDS, **MORE, **FURTHER[op]}
    return {theirs: int(getattr(plan, name)) for name, theirs in ours.items()} | dict(plan.host)


def differences(plan, record):
    """Return the fields in which a plan is not what the record says: name: (ours, the record's).

    A field that the plan does not know counts as different.
    """
    if plan is None:
        return {"plan": (None, record["strategy"])}
    found = {"block_dim": plan.used_cores, "strategy": plan.strategy, **told(plan, record["op"])}
    said = {"block_dim": record["block_dim"], "strategy": record["strategy"], **record["expected"]}
    return {name: (found.get(name), value) for name, value in said.items() if found.get(name) != value}
