"""The one reader of the outside test records: files that vary in shape become records of one kind."""

import json
from dataclasses import dataclass
from pathlib import Path

from ascendsim.rules import ConvolutionBackwardCall, ConvTbcBackwardCall, TensorDescription

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
