"""What the convolutions of a torch script are simulated with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ascendsim.arguments import whole
from ascendsim.errors import ConfigError
from ascendsim.frozen import FrozenMap
from ascendsim.numerics.formats.dtypes import DTYPES, find
from ascendsim.ops.options.call import Options
from ascendsim.ops.options.keywords import CallOptions, Product, require_known
from ascendsim.profile import Profile
from ascendsim.rules import load_rules

# HF32 is how the cube reads float32: no tensor is stored in it.
OPERANDS = tuple(known for known in DTYPES if not known.name.startswith("hf32"))
# What results have in common with torch's tensors, whatever is asked for.
_TAKEN_OVER = {"output_dtypes": "the formats", "output_strides": "the places"}
# Each once, as a refusal lists them.
_OPTIONS = tuple(name for name in CallOptions.__annotations__ if name not in ("product", *_TAKEN_OVER))
NAMES = ("product", "cube_math_type", "operands", *_OPTIONS)


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Setting:
    """The machine and the arithmetic of a convolution, for both passes.

    product         name of a product or variant, path of a TOML file, or a loaded Profile
    cube_math_type  0 to 3, the interface's cubeMathType
    operands        format into which grad_output, input and weight are rounded before the cube takes them,
                    such as "hifloat8", which torch has not; None: as they are
    options         other keywords of `convolution_backward`: accumulation, rules, tiling, deterministic, ...

    Raises          ConfigError, UnsupportedError for a value without a meaning; TypeError for another keyword
    """

    product: Profile
    cube_math_type: int
    operands: str | None
    options: FrozenMap[str, Any]

    def __init__(
        self,
        product: Product = Options.product,
        cube_math_type: int = 0,
        *,
        operands: str | None = None,
        **options: Any,
    ) -> None:
        for name, what in _TAKEN_OVER.items():
            if name in options:
                raise ConfigError(f"Setting: {name} is not taken; results have {what} of torch's tensors")
        require_known("Setting", options, NAMES)
        if whole(cube_math_type) is None:
            raise ConfigError(f"Setting: cube_math_type is {cube_math_type!r}; it must be 0, 1, 2 or 3")
        checked = Options(product=product, **options)
        load_rules(checked.rules)
        values = {
            "product": checked.profile,
            "cube_math_type": cube_math_type,
            "operands": None if operands is None else find(operands, OPERANDS).name,
            "options": FrozenMap[str, Any](options),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        # A whole profile would fill pages.
        told = {"product": self.product.variant, "cube_math_type": self.cube_math_type}
        told |= {"operands": self.operands} if self.operands else {}
        return f"Setting({', '.join(f'{name}={value!r}' for name, value in (told | self.options).items())})"

    def but(self, **changes: Any) -> Setting:
        """Return the setting with other values for some keywords."""
        known = {"product": self.product, "cube_math_type": self.cube_math_type, "operands": self.operands}
        return Setting(**{**known, **self.options, **changes})
