"""Which control bits decide how a conversion overflows, per generation of the core, as data.

A conversion saturates or delivers Inf and NaN.  Who decides differs: nobody (910, 310P), one bit of the
control register (910B, 910_93), or a switch between that bit and the instruction (910_95).
"""

from dataclasses import dataclass

from ascendsim.errors import UnsupportedError
from ascendsim.numerics.formats.dtypes import DType, dtype

FIXPIPE_PRESETS = ("ctrl48", "c-api-pages")


@dataclass(frozen=True)
class Control:
    """Hold the bits of the control register that conversions read.

    inf_nan       CTRL[48]: True delivers Inf and NaN, False saturates
    keep_nan      CTRL[50]: True lets a saturating fp8 conversion keep NaN (else it becomes 0)
    global_rules  CTRL[60]: True lets CTRL[48] decide, False the instruction's own SAT / NO_SAT
    """

    inf_nan: bool
    keep_nan: bool = False
    global_rules: bool = True


@dataclass(frozen=True)
class OverflowRules:
    """Describe one generation.

    npu_arch        the vendor's number of the generation
    products        the products built on it
    listens         formats whose conversions can deliver Inf and NaN at all
    has_switch      True: CTRL[60] exists
    at_launch       the bits as the runtime and the compilers' prologues leave them
    fixpipe_deaf    formats whose Fixpipe conversion the C-API pages call unable to deliver Inf and NaN
    source          where this is from
    """

    npu_arch: str
    products: tuple[str, ...]
    listens: frozenset[str]
    has_switch: bool
    at_launch: Control
    fixpipe_deaf: frozenset[str]
    source: str


_NARROW = frozenset({"float16", "bfloat16"})
_EIGHT = frozenset({"float8_e4m3fn", "float8_e5m2", "hifloat8"})
_FP8 = frozenset({"float8_e4m3fn", "float8_e5m2"})

OVERFLOW_RULES = (
    OverflowRules(
        "1001",
        ("910",),
        frozenset(),
        False,
        Control(inf_nan=False),
        frozenset(),
        "aclrtFloatOverflowMode page: only the saturation mode",
    ),
    OverflowRules(
        "2002",
        ("310P",),
        frozenset(),
        False,
        Control(inf_nan=False),
        frozenset(),
        "aclrtFloatOverflowMode page: only the saturation mode",
    ),
    OverflowRules(
        "2201",
        ("910B", "910_93"),
        _NARROW,
        False,
        Control(inf_nan=True),
        _NARROW,
        "SetCtrlSpr page (CTRL[48]); aclrtFloatOverflowMode page (default); C-API copy pages (Fixpipe)",
    ),
    OverflowRules(
        "3510",
        ("910_95",),
        _NARROW | _EIGHT,
        True,
        Control(inf_nan=True, global_rules=False),
        frozenset({"bfloat16"}),
        "SetCtrlSpr page (CTRL[48], [50], [60]); shipped compiler prologues; C-API copy pages (Fixpipe)",
    ),
)


def overflow_rules(npu_arch: str) -> OverflowRules:
    """Return the rules of a generation; UnsupportedError for one that is not described."""
    for rules in OVERFLOW_RULES:
        if rules.npu_arch == npu_arch:
            return rules
    known = ", ".join(rules.npu_arch for rules in OVERFLOW_RULES)
    raise UnsupportedError(f"overflow rules: npu_arch '{npu_arch}' is not described; known are {known}")


def conversion_overflow(
    npu_arch: str, target: "str | DType", control: Control | None = None, instruction_saturates: bool = False
) -> str:
    """Return the overflow rule of a conversion to `target`: ieee, saturate or saturate_keep_nan.

    control                the control bits; left out: as they are at launch
    instruction_saturates  SAT on the instruction; read only where CTRL[60] exists and is 0
    float32                never saturates here: nothing is converted
    """
    rules, fmt = overflow_rules(npu_arch), dtype(target)
    bits = control or rules.at_launch
    if fmt.bits == 32:
        return "ieee"
    by_instruction = rules.has_switch and not bits.global_rules
    inf_nan = not instruction_saturates if by_instruction else bits.inf_nan
    if inf_nan and fmt.name in rules.listens:
        return "ieee"
    return "saturate_keep_nan" if bits.keep_nan and rules.has_switch and fmt.name in _FP8 else "saturate"


def fixpipe_overflow(
    npu_arch: str, target: "str | DType", preset: str = "ctrl48", control: Control | None = None
) -> str:
    """Return the overflow rule of Fixpipe's conversion to `target`.

    preset  The vendor's pages disagree.  ctrl48: like every other conversion (framework pages promise Inf and
            NaN in outputs by default).  c-api-pages: the conversions those pages exclude saturate.
    """
    if preset not in FIXPIPE_PRESETS:
        raise UnsupportedError(f"fixpipe overflow: '{preset}' is not one of {', '.join(FIXPIPE_PRESETS)}")
    if preset == "c-api-pages" and dtype(target).name in overflow_rules(npu_arch).fixpipe_deaf:
        return "saturate"
    return conversion_overflow(npu_arch, target, control)
