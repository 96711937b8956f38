"""Formats of a whole call: tensors as they come in, and gradients as they go out.

Tensors of binary16 may stay as they are stored until they are laid out, and gradients be stored as they are
turned back: what is converted on its way takes no pass of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ascendsim.numerics.quick_casts import HALF, as_carrier, is_stored, rounded, rounded_halves, stored
from ascendsim.ops.lowering.call import Call, vector_overflow
from ascendsim.ops.problems.convolution import as_multiplied

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from ascendsim.numerics.accumulation.models import MathSettings
    from ascendsim.numerics.compiled.gathered.threads import Threads

    Floats = NDArray[np.float32]
    # Carriers, or binary16 as it is stored.
    Values = NDArray[Any]


class Formats:
    """What becomes of the tensors of a call before a product, and of gradients behind it.

    Types    tensors: float32 carriers, or those of binary16 as they are stored, and then gradients in
             binary16 are stored as well
    """

    def __init__(self, call: Call, tensors: Mapping[str, Values], threads: Threads) -> None:
        self._call, self._threads = call, threads
        self._given = {name: np.ascontiguousarray(values) for name, values in tensors.items()}
        self._stores = any(map(is_stored, self._given.values()))
        self._carriers: dict[str, Floats] = {}
        self._operands: dict[tuple[str, str], Floats] = {}

    def operand(self, name: str, math: MathSettings) -> Floats:
        """Return a tensor on the grid that the cube multiplies: cast to its storage format, then to HF32."""
        # Both products read grad_output, as a rule with the same rounding.
        key = name, math.hf32_ties
        if key not in self._operands:
            call = self._call
            values = self.cast(self.carrier(name), call.dtypes[name], call.storage.name)
            multiplied = as_multiplied(values, call.compute_dtype, call.profile, math.hf32_ties)
            self._operands[key] = multiplied
        return self._operands[key]

    def image(self, name: str, math: MathSettings) -> Values:
        """Return the same for what is about to be laid out: binary16 as it is stored."""
        given = self._given[name]
        # In binary16 the cube multiplies the elements as they are.
        as_it_is = is_stored(given) and self._call.compute_dtype == HALF
        return given if as_it_is else self.operand(name, math)

    def carrier(self, name: str) -> Floats:
        """Return a tensor as it is given, as float32."""
        if name not in self._carriers:
            self._carriers[name] = as_carrier(self._given[name], self._threads)
        return self._carriers[name]

    def may_be_halves(self, gradient: str, overflow: str) -> bool:
        """Tell whether a gradient is accumulators that are rounded to binary16 to nearest, stored as that.

        overflow   of the conversion that makes binary16 of them
        """
        return self._stores and self._call.dtypes[gradient] == HALF and overflow == "ieee"

    def overflow(self, target: str) -> str:
        """Return how conversions to a format overflow where no Fixpipe makes them."""
        return vector_overflow(self._call.profile, target)

    def leaving(self, sums: Values, gradient: str, made: str, math: MathSettings) -> Values:
        """Return accumulators as they leave the kernel of the product, in the format that it makes."""
        if is_stored(sums):
            return sums
        if self._is_stored(gradient, made):
            return rounded_halves(sums, math.overflow, self._threads)
        return rounded(sums, made, math.overflow, threads=self._threads)

    def returned(self, gradient: str, values: Values, made: str) -> Values:
        """Return a gradient that was made in one format in the format asked for."""
        asked = self._call.dtypes[gradient]
        if is_stored(values):
            return values
        if not self._stores or asked != HALF:
            return self.cast(values, made, asked)
        if made == HALF:
            return stored(values, HALF, self._threads)  # type: ignore[return-value]
        return rounded_halves(values, self.overflow(HALF), self._threads)

    def cast(self, values: Floats, given: str, target: str) -> Floats:
        """Return what a vector kernel makes of values in another format; there is none for the same one."""
        if target == given:
            return values
        return rounded(values, target, self.overflow(target), threads=self._threads)

    def _is_stored(self, gradient: str, made: str) -> bool:
        """Tell whether a gradient is stored in binary16 as its kernel makes it."""
        return self._stores and made == HALF == self._call.dtypes[gradient]
