"""The former tiling of matrix products, kept for one release."""

from __future__ import annotations

import warnings
from typing import Any

from ascendsim.ops.plan import Tiling

# The order of its positional arguments.
_FIELDS = (
    *("base_m", "base_n", "base_k", "step_ka", "step_kb", "single_core_m", "single_core_n"),
    *("al1_buffers", "bl1_buffers", "al0_buffers", "bl0_buffers", "cl0_buffers"),
    *("swizzle", "used_cores", "panels", "keep_pieces", "unit_flag"),
)


class MatmulTiling:
    """A call makes a `Tiling`, which replaces it: the same fields, `keep_pieces` is now `reuse_l1`."""

    # No record of its own: what it makes is a Tiling, so that no other place need know of two kinds.
    def __new__(cls, *values: Any, **fields: Any) -> Tiling:  # type: ignore[misc]
        """Return the `Tiling` with the same meaning."""
        warnings.warn(
            "MatmulTiling goes with the next release; use ascendsim.Tiling, where keep_pieces is reuse_l1",
            DeprecationWarning,
            stacklevel=2,
        )
        twice = set(_FIELDS[: len(values)]) & set(fields)
        if len(values) > len(_FIELDS) or twice:
            raise TypeError(f"MatmulTiling() got too many values, or some twice: {sorted(twice)}")
        given = dict(zip(_FIELDS, values, strict=False)) | fields
        if "keep_pieces" in given:
            given["reuse_l1"] = given.pop("keep_pieces")
        return Tiling(**given)
