"""Measure gradients against float64 ones of the same stored tensors."""

from __future__ import annotations

from dataclasses import asdict
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ascendsim.numerics.formats.casts import decode
from ascendsim.numerics.formats.dtypes import dtype as lookup_dtype
from ascendsim.numerics.metric_columns import METRIC_COLUMNS, METRIC_SYMBOLS, MetricColumn
from ascendsim.numerics.metrics import error_metrics
from ascendsim.ops.reference.float64 import gradients_float64
from ascendsim.report.record import GRADIENTS, Record, gradient_record

if TYPE_CHECKING:
    from ascendsim.cli.request import Mask
    from ascendsim.cli.tensors import Tensors
    from ascendsim.ops.problems.convolution import ConvProblem

ERROR_COLUMNS = (MetricColumn("symbols", "", "", METRIC_SYMBOLS), *METRIC_COLUMNS)
_SHOWN = ("mere", "mare", "share_above_1e3", "max_ulp", "equal_bits_share", "verdicts")
SHOWN_COLUMNS = tuple(column for column in METRIC_COLUMNS if column.name in _SHOWN)


class Judge:
    """Holds the float64 gradients of one problem; they are computed once, when first asked for."""

    def __init__(self, problem: ConvProblem, tensors: Tensors, mask: Mask) -> None:
        self._problem = problem
        self._tensors = tensors
        self._mask = mask

    @cached_property
    def _references(self) -> dict[str, Any]:
        tensors = (self._tensors.grad_output, self._tensors.input, self._tensors.weight)
        carriers = [decode(tensor, lookup_dtype(tensor.dtype)) for tensor in tensors]
        made = gradients_float64(self._problem, carriers[0], carriers[1], carriers[2], self._mask)
        return dict(zip(GRADIENTS, made, strict=True))

    def gradients(self, result: Any) -> tuple[Record, ...]:
        """Describe each gradient of a result with its errors."""
        made = []
        for name in GRADIENTS:
            gradient = getattr(result, name)
            if gradient is None:
                continue
            # The accuracy of HF32 is that of its operands, whatever the tensors are stored as.
            in_hf32 = name != "grad_bias" and result.compute_dtype.startswith("hf32")
            kind = lookup_dtype(result.compute_dtype if in_hf32 else gradient.dtype)
            errors = asdict(error_metrics(gradient, self._references[name], kind))
            made.append(gradient_record(name, gradient, errors))
        return tuple(made)
