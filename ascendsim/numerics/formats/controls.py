"""Overflow of a conversion: what the control bits of a core and the vendor's pages decide.

A conversion saturates or delivers Inf and NaN. Who decides differs by generation: nobody (910, 310P), one bit
of the control register (910B, 910_93), or a switch between that bit and the instruction (910_95). The caller
says what the generation of a product has; its profile knows.
"""

from collections.abc import Collection
from typing import NamedTuple

from ascendsim.errors import UnsupportedError
from ascendsim.numerics.formats.dtypes import DType, dtype

FIXPIPE_PRESETS = ("ctrl48", "c-api-pages")
FP8 = frozenset({"float8_e4m3fn", "float8_e5m2"})


class Control(NamedTuple):
    """Hold the bits of the control register that conversions read.

    inf_nan       CTRL[48]: True delivers Inf and NaN, False saturates
    keep_nan      CTRL[50]: True lets a saturating fp8 conversion keep NaN (else it becomes 0)
    global_rules  CTRL[60]: True lets CTRL[48] decide, as on cores without it; False the instruction's own
                  SAT / NO_SAT
    """

    inf_nan: bool
    keep_nan: bool = False
    global_rules: bool = True


class OverflowRules(NamedTuple):
    """Describe the conversions of one generation.

    inf_nan_formats            formats whose conversions can deliver Inf and NaN at all
    fixpipe_saturated_formats  formats whose Fixpipe conversion the C-API pages call unable to
    at_launch                  the bits as the runtime and the compilers' prologues leave them
    """

    inf_nan_formats: Collection[str]
    fixpipe_saturated_formats: Collection[str]
    at_launch: Control

    def conversion(
        self, target: "str | DType", control: Control | None = None, instruction_saturates: bool = False
    ) -> str:
        """Return the overflow rule of a conversion to `target`: ieee, saturate or saturate_keep_nan.

        control                the control bits; None: as they are at launch
        instruction_saturates  SAT on the instruction; read only where CTRL[60] is 0
        """
        fmt, bits = dtype(target), control or self.at_launch
        # Sums are float32 already: there is nothing to convert, and so nothing to saturate.
        if fmt.bits == 32:
            return "ieee"
        inf_nan = bits.inf_nan if bits.global_rules else not instruction_saturates
        # A core without a mode for the format saturates, whatever the bits say.
        if inf_nan and fmt.name in self.inf_nan_formats:
            return "ieee"
        # The page shows CTRL[50] for e4m3fn; that e5m2 follows it as well is our reading.
        return "saturate_keep_nan" if bits.keep_nan and fmt.name in FP8 else "saturate"

    def fixpipe(self, target: "str | DType", preset: str = "ctrl48", control: Control | None = None) -> str:
        """Return the overflow rule of Fixpipe's conversion to `target`.

        preset  The vendor's pages disagree.  ctrl48: like every other conversion (framework pages promise Inf
                and NaN in outputs by default).  c-api-pages: the conversions those pages exclude saturate.
        """
        if preset not in FIXPIPE_PRESETS:
            raise UnsupportedError(f"fixpipe overflow: '{preset}' is not one of {', '.join(FIXPIPE_PRESETS)}")
        if preset == "c-api-pages" and dtype(target).name in self.fixpipe_saturated_formats:
            return "saturate"
        return self.conversion(target, control)
