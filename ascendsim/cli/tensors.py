"""The tensors of a functional run: synthetic normal data, or the user's own from an .npz file."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ascendsim.errors import DataError, UnsupportedError
from ascendsim.numerics.dtypes import dtype as lookup_dtype

if TYPE_CHECKING:
    from ascendsim.ops.conv_problem import ConvProblem

TENSORS = ("grad_output", "input", "weight")
ATTRIBUTES = (
    *("stride", "padding", "dilation", "transposed", "output_padding", "groups"),
    "output_mask",
)


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
        names = tuple(
            lookup_dtype(tensor.dtype).name for tensor in (self.grad_output, self.input, self.weight)
        )
        return names[0] if len(set(names)) == 1 else names


def normal_tensors(problem: ConvProblem, dtype: str, seed: int) -> Tensors:
    """Draw standard normal tensors and round them to a format; the same seed gives the same bits.

    Raises   UnsupportedError for an unknown format
    """
    require_tensor_dtype(dtype)
    random = np.random.default_rng(seed)
    shapes = (problem.grad_output, problem.input, problem.weight)
    grad_output, image, weight = (
        stored(random.standard_normal(shape, dtype=np.float32), dtype) for shape in shapes
    )
    return Tensors(grad_output, image, weight, f"standard normal, seed {seed}")


def require_tensor_dtype(dtype: str) -> None:
    """Check that tensors can have this format.

    Raises   UnsupportedError with near misses
    """
    fmt = lookup_dtype(dtype)
    if fmt.storage_name is None:
        raise UnsupportedError(f"--dtype {dtype}: the operator does not take {dtype} tensors yet")
    if fmt.name.startswith("hf32"):
        raise UnsupportedError(
            f"--dtype {dtype}: tensors are not stored in it, the cube reads float32 tensors so; "
            "take --dtype float32 --cube-math-type 1"
        )


def stored(values: Any, dtype: str) -> Any:
    """Round float32 values to a format and return them as it is stored."""
    from ascendsim.numerics.casts import encode, round_to

    return encode(round_to(values, dtype), lookup_dtype(dtype))


def read_npz(path: Path) -> dict[str, Any]:
    """Return the arrays of a user's file by name, never unpickling anything.

    Raises   DataError saying what is wrong with it
    """
    try:
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            if not isinstance(loaded, np.lib.npyio.NpzFile):
                raise DataError(f"{path}: holds one array; an .npz with {', '.join(TENSORS)} is needed")
            arrays = {name: loaded[name] for name in loaded.files}
    except DataError:
        raise
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error
    except (ValueError, KeyError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(
            f"{path}: is not an .npz file of plain arrays ({_brief(error)}); write it with "
            "numpy.savez(file, grad_output=..., input=..., weight=...)"
        ) from error
    _check_names(path, arrays)
    return arrays


def npz_attributes(path: Path, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of the convolution that the file gives, as plain Python values.

    Raises   DataError naming the one that is not of whole numbers
    """
    found: dict[str, Any] = {}
    for name in ATTRIBUTES:
        if name not in arrays:
            continue
        array = arrays[name]
        wanted = "biu" if name not in ("transposed", "output_mask") else "b"
        if array.dtype.kind not in wanted or array.ndim > 1:
            kind = "true or false" if wanted == "b" else "whole numbers"
            raise DataError(f"{path}: {name} must be {kind}, not {array.dtype} of shape {array.shape}")
        value = array.tolist()
        found[name] = tuple(value) if isinstance(value, list) else value
    return found


def tensor_dtypes(arrays: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return the formats of a user's arrays, nothing where there are none.

    Raises   UnsupportedError for formats that are not ours
    """
    return tuple(lookup_dtype(arrays[name].dtype).name for name in TENSORS) if arrays else ()


def npz_tensors(path: Path, arrays: Mapping[str, Any], dtype: str | None) -> Tensors:
    """Return the tensors of a user's file, rounded to `dtype` if one is asked for.

    Raises   DataError for element types other than float16 and float32
    """
    if dtype is not None:
        require_tensor_dtype(dtype)
    made = []
    for name in TENSORS:
        array = arrays[name]
        if array.dtype.kind != "f" or array.dtype.itemsize > 4:
            hint = ", then name their format with --dtype" if array.dtype.kind == "V" else ""
            raise DataError(
                f"{path}: {name} holds {array.dtype}; store tensors as float16 or float32{hint} "
                f"(bfloat16 and 8-bit values fit into float32 exactly)"
            )
        made.append(array if dtype is None else stored(array.astype(np.float32), dtype))
    about = f"{path.name}" + (f", rounded to {dtype}" if dtype else "")
    return Tensors(made[0], made[1], made[2], about)


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
    near = get_close_matches(name, names, n=1)
    return f" (did you mean {near[0]}?)" if near else ""


def _brief(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
