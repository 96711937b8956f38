"""Calls of the interface as they come, before anything is checked: shapes and attributes, no values.

The records take anything, because the first thing the rules do is to look at every field; a field that is not
what it should be is reported by the checks, never by the record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, ClassVar, TypeVar


class CubeMathType(IntEnum):
    """What the cube may compute in, under the interface's names."""

    KEEP_DTYPE = 0
    ALLOW_FP32_DOWN_PRECISION = 1
    USE_FP16 = 2
    USE_HF32 = 3


GRADIENTS = ("grad_input", "grad_weight", "grad_bias")
# Formats that frameworks give tensors of these ranks.
USUAL_FORMATS = {3: "NCL", 4: "NCHW", 5: "NCDHW"}


@dataclass(frozen=True)
class TensorDescription:
    """One tensor of a call without its values.

    shape     extents of the view
    dtype     "float32", "float16", "bfloat16", "hifloat8", "float8_e4m3fn", ...; the vendor's spelling
              (FLOAT, BFLOAT16) means the same
    format    storage format: NCL, NCHW, NCDHW, ND, ...; None: the usual one of the rank (3, 4, 5; else ND)
    strides   distance between neighbours along each axis, in elements; None: contiguous
    """

    shape: Any
    dtype: Any
    format: Any = None
    strides: Any = None


@dataclass(frozen=True)
class ConvolutionBackwardCall:
    """The arguments of aclnnConvolutionBackwardGetWorkspaceSize, in its order; None is a null pointer."""

    grad_output: TensorDescription | None
    input: TensorDescription | None
    weight: TensorDescription | None
    bias_sizes: Sequence[int] | None
    stride: Sequence[int] | None
    padding: Sequence[int] | None
    dilation: Sequence[int] | None
    transposed: bool
    output_padding: Sequence[int] | None
    groups: int
    output_mask: Sequence[bool] | None
    cube_math_type: int
    grad_input: TensorDescription | None = None
    grad_weight: TensorDescription | None = None
    grad_bias: TensorDescription | None = None

    api: ClassVar[str] = "aclnnConvolutionBackward"
    tensors: ClassVar[tuple[str, ...]] = ("grad_output", "input", "weight", *GRADIENTS)

    def with_usual_outputs(
        self,
        dtypes: Sequence[str | None] = (None, None, None),
        strides: Sequence[Sequence[int] | None] = (None, None, None),
    ) -> ConvolutionBackwardCall:
        """Return the call with the outputs and bias_sizes that a caller without buffers would have made.

        Missing outputs get the shape and format of their own tensor, grad_bias (channels of grad_output,).
        A dtype of None is that of input, weight and grad_output; a missing input leaves its output missing.
        Strides of None are those of a contiguous tensor.
        """
        sources = (self.input, self.weight, self.grad_output)
        usual = [_like(*one) for one in zip(sources, dtypes, strides, strict=True)]
        # The gradient of the bias has one value for each channel, whatever the rank of grad_output.
        channels = _channels(self.grad_output)
        if usual[2] is not None:
            # ND whatever grad_output is: the pages accept no other format for it.
            usual[2] = TensorDescription(channels, usual[2].dtype, "ND", usual[2].strides)
        return _filled(self, bias_sizes=channels, **dict(zip(GRADIENTS, usual, strict=True)))


@dataclass(frozen=True)
class ConvTbcBackwardCall:
    """The arguments of aclnnConvTbcBackwardGetWorkspaceSize, in its order; None is a null pointer.

    Shapes   grad_output (the vendor's `self`) (T_out, B, Cout), input (T, B, Cin), weight (K, Cin, Cout),
             bias (Cout,); T_out = T + 2 pad + 1 - K
    """

    grad_output: TensorDescription | None
    input: TensorDescription | None
    weight: TensorDescription | None
    bias: TensorDescription | None
    pad: int
    cube_math_type: int
    grad_input: TensorDescription | None = None
    grad_weight: TensorDescription | None = None
    grad_bias: TensorDescription | None = None

    api: ClassVar[str] = "aclnnConvTbcBackward"
    tensors: ClassVar[tuple[str, ...]] = ("grad_output", "input", "weight", "bias", *GRADIENTS)

    def with_usual_outputs(
        self,
        dtypes: Sequence[str | None] = (None, None, None),
        strides: Sequence[Sequence[int] | None] = (None, None, None),
    ) -> ConvTbcBackwardCall:
        """Return the call with each missing output like its own tensor: input, weight, bias."""
        sources = (self.input, self.weight, self.bias)
        usual = [_like(*one) for one in zip(sources, dtypes, strides, strict=True)]
        return _filled(self, **dict(zip(GRADIENTS, usual, strict=True)))


Call = ConvolutionBackwardCall | ConvTbcBackwardCall
SomeCall = TypeVar("SomeCall", bound=Call)


def _filled(call: SomeCall, **usual: Any) -> SomeCall:
    """Return the call with a usual value for each argument that is None."""
    return replace(call, **{name: value for name, value in usual.items() if getattr(call, name) is None})


def _like(
    source: object, dtype: str | None, strides: Sequence[int] | None = None
) -> TensorDescription | None:
    """Describe a tensor like `source`, contiguous without strides; nothing, where that is no tensor."""
    if not isinstance(source, TensorDescription):
        return None
    # An output that the caller did not make is contiguous, even where its tensor is a view.
    return replace(source, dtype=source.dtype if dtype is None else dtype, strides=strides)


def _channels(grad_output: TensorDescription | None) -> Any:
    """Return (grad_output.shape[1],), None where there is no grad_output."""
    if not isinstance(grad_output, TensorDescription):
        return None
    try:
        return (grad_output.shape[1],)
    except Exception:
        # Without such an axis grad_output is refused: of it, and not of outputs that nobody passed.
        return (0,)
