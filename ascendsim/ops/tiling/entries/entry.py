"""One entry of a tuned layer, and the entries of a file as plans that calls take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ascendsim.errors import ConfigError, UnsupportedError
from ascendsim.numerics.formats.dtypes import dtype as dtype_named
from ascendsim.ops.plan import Plan
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.hf32 import stored_name
from ascendsim.ops.tiling.entries.layers import layer_values
from ascendsim.ops.tiling.entries.tilings import STREAM_TYPES, tiling_values
from ascendsim.ops.tiling.partial import LayerPlans, PartialPlan
from ascendsim.ops.tiling.vendor.layer import Layer, ceil_div
from ascendsim.ops.tiling.vendor.names import entry_plan

# The one generation of which entries are known.
ARCH = "3510"


@dataclass(frozen=True)
class Entry:
    """The tiling of one gradient of one layer, in the vendor's names.

    where    the place that a message names
    layer    what the entry is for; its layouts are not compared
    values   the fields of its tiling, by the vendor's names
    """

    where: str
    gradient: str
    layer: Layer
    values: Mapping[str, Any]

    def plan(self) -> PartialPlan:
        """Return what the entry says of a plan; the product's rules give the rest.

        Raises   ConfigError, UnsupportedError as `entry_plan`
        """
        part = entry_plan(self.gradient, self.values, self.where)
        kind = self.values.get("streamkType")
        if not kind:
            return part
        axis = next((axis for axis, number in STREAM_TYPES.items() if number == kind), None)
        if axis is None:
            raise UnsupportedError(
                f"{self.where}: streamkType is {kind}, a cut of the last round that no known entry has; "
                "say k_split and stream_axis in our names"
            )
        rows, images = self.layer.output[1], self.layer.batch * self.layer.output[0]
        whole, name = (rows, "singleCoreHo") if axis == "height" else (images, "singleCoreBatchDout")
        parts = ceil_div(whole, self.values.get(name) or whole)
        return PartialPlan({**part.fields, "k_split": parts, "stream_axis": axis}, part.schedule)


@dataclass(frozen=True)
class LayerEntries(LayerPlans):
    """The entries of one gradient; a call takes that of its layer, and the product's rules without one.

    As a device does: its operator asks its file of entries first, by the layer.
    """

    entries: tuple[Entry, ...]

    def of(self, problem: ConvProblem, compute_dtype: str) -> PartialPlan | None:
        """Return what the first entry for a layer says; None where there is none."""
        if problem.transposed:
            return None
        layer = Layer.of(problem, compute_dtype)
        return next((entry.plan() for entry in self.entries if entry.layer == layer), None)

    def has_layer(self, problem: ConvProblem) -> bool:
        """Tell whether there is an entry for a layer in some format."""
        return any(self.of(problem, compute) for compute in ("float16", "hf32", "float32"))


def entry_values(
    gradient: str, problem: ConvProblem, compute_dtype: str, plan: Plan, arch: str
) -> dict[str, dict[str, Any]]:
    """Return the entry of a plan: its layer and its tiling, as `entries_in` reads them.

    compute_dtype   what the cube multiplies: "hf32" for float32 that it rounds
    arch            npu_arch of the product

    Raises   UnsupportedError for a generation, layer or plan of which no entries are known
    """
    if arch != ARCH:
        raise UnsupportedError(
            f"entry of {gradient}: entries are known of npu_arch {ARCH} (910_95) alone, and this product has "
            f"{arch}; keep the file of the plan"
        )
    stored = stored_name(compute_dtype)
    layer = Layer.of(problem, compute_dtype)
    if dtype_named(stored).itemsize not in (2, 4) or problem.transposed:
        what = "a transposed convolution" if problem.transposed else f"the format {stored}"
        raise ConfigError(f"entry of {gradient}: no entry of {what} is known; keep the file of the plan")
    return {
        "info_dict": layer_values(gradient, layer, stored),
        "knowledge": tiling_values(gradient, layer, plan),
    }
