"""Make or read the tensors of a run: synthetic normal data, or the user's own from an .npz file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ascendsim import files
from ascendsim.errors import DataError, UnsupportedError, close_matches
from ascendsim.numerics.dtypes import dtype as lookup_dtype

if TYPE_CHECKING:
    from ascendsim.ops.problems.layers import LayerProblem

TENSORS = ("grad_output", "input", "weight")
ATTRIBUTES = (*("stride", "padding", "dilation", "transposed", "output_padding", "groups"), "output_mask")


@dataclass(frozen=True, slots=True)
class Tensors:
    """grad_output, input and weight as they are stored, and a sentence on where they come from."""

    grad_output: Any
    input: Any
    weight: Any
    about: str

    @property
    def dtype(self) -> str | tuple[str, ...]:
        """Name of their format, or the three names where they differ."""
        tensors = (self.grad_output, self.input, self.weight)
        return _one_if_equal(tuple(lookup_dtype(tensor.dtype).name for tensor in tensors))


def normal_tensors(problem: LayerProblem, dtype: str, seed: int) -> Tensors:
    """Draw standard normal tensors and round them to a format; the same seed gives the same bits.

    Raises   UnsupportedError for an unknown format
    """
    # Before anything is drawn: large tensors take seconds. In the order in which a reader lists them, since
    # each draw continues the one before and the bits of a seed must stay what they are.
    require_tensor_dtype(dtype)
    random = np.random.default_rng(seed)
    shapes = (problem.grad_output, problem.input, problem.weight)
    grad_output, image, weight = (
        stored(random.standard_normal(shape, dtype=np.float32), dtype) for shape in shapes
    )
    return Tensors(grad_output, image, weight, f"standard normal, seed {seed}")


def bias_like(grad_output: Any, weight: Any) -> Any:
    """Return the bias of a conv_tbc, of which its interface reads shape and format alone."""
    return stored(np.zeros(weight.shape[2:], np.float32), lookup_dtype(grad_output.dtype).name)


def require_tensor_dtype(dtype: str) -> None:
    """Check that tensors can have this format.

    Raises   UnsupportedError with near misses
    """
    # HF32 is known to the formats, so that the lookup itself would accept it.
    if lookup_dtype(dtype).name.startswith("hf32"):
        raise UnsupportedError(
            f"--dtype {dtype}: tensors are not stored in it, the cube reads float32 tensors so; "
            "take --dtype float32 --cube-math-type 1"
        )


def stored(values: Any, dtype: str) -> Any:
    """Round float32 values to a format and return them as it is stored."""
    # Here and not above: ml_dtypes is not loaded where no tensor is made.
    from ascendsim.numerics.casts import encode, round_to

    return encode(round_to(values, dtype), lookup_dtype(dtype))


def read_npz(path: Path) -> dict[str, Any]:
    """Return the arrays of a user's file by name, never unpickling anything.

    Raises   DataError naming the mistake
    """
    try:
        arrays = {name: _member(path, name, value) for name, value in files.read_npz(path).items()}
    except DataError:
        raise
    except MemoryError as error:
        raise DataError(
            f"{path}: does not fit into memory{_detail(error)}; {memory_advice(npz=True)}"
        ) from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error
    except ValueError as error:
        raise DataError(
            f"{path}: is not an .npz file of plain arrays ({_brief(error)}); write it with "
            "numpy.savez(file, grad_output=..., input=..., weight=...)"
        ) from error
    _check_names(path, arrays)
    return arrays


def memory_advice(*, npz: bool) -> str:
    """Advise how to need less memory: a user's file is read whole, whatever is computed from it."""
    if npz:
        return "give the sizes instead (--input, --weight, --cycles-only), or a file with fewer images"
    return "take a smaller batch, or --cycles-only, which needs no tensors"


def npz_attributes(path: Path, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of the convolution that the file gives, as plain Python values.

    Raises   DataError naming the one that is not of whole numbers
    """
    found: dict[str, Any] = {}
    for name in ATTRIBUTES:
        if name not in arrays:
            continue
        array = arrays[name]
        # numpy's kinds: b a truth value, i and u whole numbers. `groups = True` is 1 to Python, and taken so.
        wanted = "biu" if name not in ("transposed", "output_mask") else "b"
        if array.dtype.kind not in wanted or array.ndim > 1:
            kind = "true or false" if wanted == "b" else "whole numbers"
            raise DataError(f"{path}: {name} must be {kind}, not {array.dtype} of shape {array.shape}")
        value = array.tolist()
        found[name] = tuple(value) if isinstance(value, list) else value
    return found


def npz_dtypes(path: Path, arrays: Mapping[str, Any], dtype: str | None) -> str | tuple[str, ...]:
    """Return the format in which a user's arrays are taken, or the three where they differ.

    Raises   DataError for element types that are none of ours
    """
    for name in TENSORS:
        if not _holds_codes(arrays[name], dtype):
            _require_values(path, name, arrays[name])
    return _one_if_equal(tuple(dtype or arrays[name].dtype.name for name in TENSORS))


def npz_tensors(path: Path, arrays: Mapping[str, Any], dtype: str | None) -> Tensors:
    """Return the tensors of a user's file in format `dtype`, or as they are stored if none is named.

    Types    float16 and float32 values, which are rounded to `dtype`; or codes of `dtype`: elements of as
             many bits that are uint8, uint16 or what numpy makes of another library's types (V1, V2)
    Raises   DataError for element types that are none of these
    """
    if dtype is not None:
        require_tensor_dtype(dtype)
    npz_dtypes(path, arrays, dtype)
    # Each tensor by itself: a file may hold codes of one and float32 values of another.
    coded = [dtype is not None and _holds_codes(arrays[name], dtype) for name in TENSORS]
    made = []
    for name, codes in zip(TENSORS, coded, strict=True):
        array = arrays[name]
        if dtype is not None:
            array = _from_codes(array, dtype) if codes else stored(array.astype(np.float32), dtype)
        made.append(array)
    how = "" if dtype is None else f", codes of {dtype}" if all(coded) else f", rounded to {dtype}"
    return Tensors(made[0], made[1], made[2], f"{path.name}{how}")


def _one_if_equal(names: tuple[str, ...]) -> str | tuple[str, ...]:
    return names[0] if len(set(names)) == 1 else names


def _member(path: Path, name: str, array: Any) -> Any:
    """Return one array of an archive in this machine's order of bytes."""
    if not isinstance(array, np.ndarray):  # numpy gives the bytes of what it cannot tell to be an array
        raise DataError(f"{path}: {name} is no array; write the file with numpy.savez")
    # A file from a machine of the other byte order holds the same values in other bytes.
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _holds_codes(array: Any, dtype: str | None) -> bool:
    """Return whether elements are bare bits, as wide as those of a format that numpy itself has not."""
    if dtype is None or dtype in ("float16", "float32"):
        # numpy has these formats: whole numbers in their place are a mistake and no codes.
        return False
    bare = array.dtype in (np.uint8, np.uint16) or (array.dtype.kind == "V" and array.dtype.names is None)
    return bare and array.dtype.itemsize == lookup_dtype(dtype).itemsize


def _from_codes(array: Any, dtype: str) -> Any:
    """Take bare bits as elements of a format."""
    fmt = lookup_dtype(dtype)
    if fmt.storage is not None:
        return array.view(fmt.storage)
    from ascendsim.numerics.hifloat8 import HiFloat8Array

    return HiFloat8Array(array.view(np.uint8))


def _require_values(path: Path, name: str, array: Any) -> None:
    # float64 is refused rather than rounded: the user would look for the error in the simulator.
    if array.dtype.kind == "f" and array.dtype.itemsize <= 4:
        return
    raise DataError(
        f"{path}: {name} holds {array.dtype}; store tensors as float16 or float32 values (bfloat16 and 8-bit "
        "ones fit into float32 exactly), or as the codes of the format that --dtype names (uint8, uint16)"
    )


def _check_names(path: Path, arrays: Mapping[str, Any]) -> None:
    for name in TENSORS:
        if name not in arrays:
            raise DataError(
                f"{path}: has no array {name}{_near(name, list(arrays))}; it holds "
                f"{', '.join(arrays) or 'nothing'} and needs {', '.join(TENSORS)}"
            )
    known = (*TENSORS, *ATTRIBUTES)
    for name in arrays:
        if name not in known:
            raise DataError(
                f"{path}: array {name} is not known{_near(name, known)}; it may hold {', '.join(known)}"
            )


def _near(name: str, names: Any) -> str:
    near = close_matches(name, names, n=1)
    return f" (did you mean {near[0]}?)" if near else ""


def _brief(error: Exception) -> str:
    """Return the first line of an error, without numpy's advice to unpickle the file."""
    text = str(error).strip()
    # numpy's advice for this file is allow_pickle=True, which runs whatever code the file brings.
    if "pickle" in text:
        return "it is no archive, or holds Python objects, which are not read"
    return text.splitlines()[0] if text else type(error).__name__


def _detail(error: MemoryError) -> str:
    return f" ({error})" if str(error) else ""
