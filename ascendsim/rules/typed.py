"""Check 0: every argument is of the type that the interface declares.

C's types leave no other choice, so the vendor checks no types; Python needs a check, and it comes first. None
stays None wherever the interface takes a pointer: null pointers are for check 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from operator import index
from typing import Any, ClassVar, NamedTuple, TypeVar

from ascendsim.errors import LONGEST, AclnnError, shown


class CubeMathType(IntEnum):
    """Formats in which the cube may compute, under the interface's names."""

    KEEP_DTYPE = 0
    ALLOW_FP32_DOWN_PRECISION = 1
    USE_FP16 = 2
    USE_HF32 = 3


INPUTS = ("grad_output", "input", "weight")
GRADIENTS = ("grad_input", "grad_weight", "grad_bias")
# Formats that frameworks give tensors of these ranks.
USUAL_FORMATS = {3: "NCL", 4: "NCHW", 5: "NCDHW"}


@dataclass(frozen=True)
class TensorDescription:
    """One tensor of a call without its values.

    shape     extents of the view
    dtype     "float32", "float16", "bfloat16", "hifloat8", "float8_e4m3fn", ...; the vendor's spelling
              (FLOAT, BFLOAT16) is accepted too
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
    tensors: ClassVar[tuple[str, ...]] = (*INPUTS, *GRADIENTS)

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
    tensors: ClassVar[tuple[str, ...]] = (*INPUTS, "bias", *GRADIENTS)

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
    """Describe a tensor shaped as `source`, contiguous unless it has strides; None if that is no tensor."""
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
        # Without this axis the error names grad_output, and not outputs that nobody passed.
        return (0,)


CHECK = "0 (argument types)"
# No dtype or format has a name half as long; a message should stay short.
LONGEST_NAME = 40
# Bits beside the sign. groups is a C int in the interface; the other numbers are taken as int64_t.
INT64 = 63
INT32 = 31
# The vendor's enum, numpy and torch spell the same formats differently.
DTYPE_SYNONYMS = {
    "float": "float32",
    "fp32": "float32",
    "half": "float16",
    "fp16": "float16",
    "bf16": "bfloat16",
    "hif8": "hifloat8",
    "double": "float64",
}


# No dataclass of its own: it has the fields of descriptions, and to make one takes a while.
class Tensor(TensorDescription):
    """A description whose every field is of its type: tuples of int, names in the simulator's spelling."""

    shape: tuple[int, ...]
    dtype: str
    format: str
    strides: tuple[int, ...] | None = None

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def is_empty(self) -> bool:
        """True if it has no elements."""
        return 0 in self.shape

    @property
    def is_contiguous(self) -> bool:
        """True if its elements lie row after row without gaps."""
        # Along an axis of one element nothing is stepped over, and without elements there is no gap.
        step = 1
        for extent, stride in zip(reversed(self.shape), reversed(self.strides or ()), strict=False):
            if extent > 1 and stride != step:
                return self.is_empty
            step *= extent
        return True


def typed(call: SomeCall) -> SomeCall:
    """Return the call with tuples of int, bools and `Tensor`s, or refuse it.

    Raises   AclnnError 161002, check 0
    """
    values: dict[str, Any] = {}
    for entry in fields(call):
        name, given = entry.name, getattr(call, entry.name)
        # Fields are distinguished by name, since the records take anything.
        if name in call.tensors:
            values[name] = None if given is None else _tensor(name, given)
        elif name == "transposed":
            values[name] = _bool(name, given)
        elif name == "cube_math_type":
            values[name] = _cube_math_type(given)
        elif name in ("groups", "pad"):
            values[name] = _int(name, given, INT32 if name == "groups" else INT64)
        elif given is not None:
            values[name] = flags(name, given) if name == "output_mask" else numbers(name, given)
    return replace(call, **values)


def dtype_name(value: Any) -> str | None:
    """Return the simulator's spelling of a dtype: of a name, also the vendor's, or of a numpy dtype."""
    if not isinstance(value, str):
        try:
            value = value.__name__ if isinstance(value, type) else value.name
        except Exception:  # whatever a foreign object does when it is asked
            return None
        if not isinstance(value, str):
            return None
    plain = value.strip().lower()
    for prefix in ("acl_", "dt_", "torch."):
        plain = plain.removeprefix(prefix)
    return DTYPE_SYNONYMS.get(plain, plain)


def cube_math_number(given: Any) -> Any:
    """Return the number of a cubeMathType that is given by its name, in any case; anything else as it is."""
    name = given.strip().upper() if isinstance(given, str) else ""
    return CubeMathType[name] if name in CubeMathType.__members__ else given


def format_name(value: Any, rank: int) -> str | None:
    """Return the plain name of a storage format; of None, the usual one of the rank."""
    if value is None:
        return USUAL_FORMATS.get(rank, "ND")
    if not isinstance(value, str):
        return None
    return value.strip().upper().removeprefix("ACL_").removeprefix("FORMAT_")


def _cube_math_type(given: Any) -> int:
    number = cube_math_number(given)
    if isinstance(number, str):
        names = ", ".join(CubeMathType.__members__)
        raise _refusal("cube_math_type", given, f"an integer, or one of {names}")
    return _int("cube_math_type", number)


def _tensor(name: str, given: Any) -> Tensor:
    if not isinstance(given, TensorDescription):
        raise _refusal(name, given, "a tensor or None")
    shape = numbers(f"{name}.shape", given.shape)
    # Extents of 0 are for the checks of empty tensors; below that nothing makes sense.
    if min(shape, default=0) < 0:
        raise _refusal(f"{name}.shape", shape, "extents of 0 or more")
    dtype = dtype_name(given.dtype)
    if dtype is None or len(dtype) > LONGEST_NAME:
        raise _refusal(f"{name}.dtype", given.dtype, "the name of a dtype")
    layout = format_name(given.format, len(shape))
    if layout is None or len(layout) > LONGEST_NAME:
        raise _refusal(f"{name}.format", given.format, "the name of a format, such as NCHW")
    strides = given.strides
    if strides is not None:
        strides = numbers(f"{name}.strides", strides)
        if len(strides) != len(shape):
            raise _refusal(f"{name}.strides", strides, f"one for each of the {len(shape)} axes")
    return Tensor(shape, dtype, layout, strides)


def _items(name: str, given: Any) -> list[Any]:
    """Return the items of an array argument, reading no more of it than could be meant."""
    expected = "a list of numbers"
    # They have a length and items, but "12" is not [1, 2], and a set has no order.
    if isinstance(given, (str, bytes, dict, set, frozenset)):
        raise _refusal(name, given, expected)
    try:
        count = len(given)
        if count > LONGEST:
            raise AclnnError(161002, CHECK, f"{name} has {count} items; no array of the interface is so long")
        # By place, not by iteration: an endless iterator with a short length cannot hang the check.
        return [given[place] for place in range(count)]
    except AclnnError:
        raise
    except Exception:  # likewise
        raise _refusal(name, given, expected) from None


def numbers(name: str, given: Any) -> tuple[int, ...]:
    """Return the whole numbers of an array argument.

    Raises   AclnnError 161002, check 0
    """
    return tuple(_int(f"{name}[{i}]", item) for i, item in enumerate(_items(name, given)))


def _int(name: str, given: Any, bits: int = INT64) -> int:
    try:
        # True is 1 for Python, but a stride of True is a mistake.
        if isinstance(given, bool):
            raise TypeError
        number = index(given)
    except Exception:  # likewise
        raise _refusal(name, given, "an integer") from None
    if not -(1 << bits) <= number < 1 << bits:
        raise AclnnError(161002, CHECK, f"{name} does not fit into {bits + 1} bits")
    return number


def flags(name: str, given: Any) -> tuple[bool, ...]:
    """Return the truth values of an array argument.

    Raises   AclnnError 161002, check 0
    """
    return tuple(_bool(f"{name}[{i}]", item) for i, item in enumerate(_items(name, given)))


def _bool(name: str, given: Any) -> bool:
    """Return a truth value: Python's, numpy's, or 0 and 1."""
    try:
        # numpy's bool has no index: it is asked for its truth value instead.
        number = index(given) if not type(given).__name__.startswith("bool") else int(bool(given))
        if number in (0, 1):
            return bool(number)
    except Exception:  # likewise
        pass
    raise _refusal(name, given, "true or false")


def _refusal(name: str, given: Any, expected: str) -> AclnnError:
    """Make the error for an argument of a wrong type."""
    return AclnnError(161002, CHECK, f"{name} is {shown(given)}; it must be {expected}")


class Decision(NamedTuple):
    """State how an accepted call is computed.

    api             "aclnnConvolutionBackward" or "aclnnConvTbcBackward"
    product         family that the rules know: 910_95, 910_93, 910B, 310P, 910
    rules           name of the rule set
    promoted_dtype  common dtype of the three inputs
    compute_dtype   what the cube multiplies: float32, hf32, float16, bfloat16, hifloat8, float8_...
    dtypes          storage dtype of every tensor of the call that is not null, outputs included
    wanted          which of grad_input, grad_weight, grad_bias are asked for
    output_padding  value for each spatial axis that the shapes imply (they rule, not the argument); zeros
                    where the convolution is not transposed
    determinism     of the sums of grad_weight: "off" or "product" (a switch: off, or as the product's figures
                    say, until somebody sets it), or "fixed" (one order in any case)
    empty           a tensor is empty: no kernel computes, the gradients are what `empty_grad_bias` says
    empty_grad_bias "zeros", "sum" (of grad_output) or "count" (terms of the sum, whatever their values);
                    the other gradients of an empty call are zeros
    warnings        sentences that the operator would log
    direct_outputs  every gradient leaves the core in its own format; otherwise as `RuleSet` says
    """

    api: str
    product: str
    rules: str
    promoted_dtype: str
    compute_dtype: str
    dtypes: Mapping[str, str]
    wanted: tuple[bool, bool, bool]
    # Implied, not the argument: the operator takes the size of the big side from its tensor as well.
    output_padding: tuple[int, ...] = ()
    determinism: str = "product"
    empty: bool = False
    empty_grad_bias: str = "zeros"
    warnings: tuple[str, ...] = ()
    direct_outputs: bool = False

    @property
    def wanted_gradients(self) -> tuple[str, ...]:
        """Names of the gradients that are asked for."""
        return tuple(name for name, wanted in zip(GRADIENTS, self.wanted, strict=True) if wanted)
