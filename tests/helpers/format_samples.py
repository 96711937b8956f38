"""Values, modes and calls on which the arithmetic goes wrong, and how results are compared."""

import ctypes
import platform
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from ascendsim.native.default_arithmetic import accessors, control_word
from ascendsim.native.elf import load
from ascendsim.native.processor import emit
from ascendsim.numerics.casts import as_carrier, is_stored
from ascendsim.numerics.dtypes import dtype, positive_values
from ascendsim.ops.gradients.call import Gradients
from ascendsim.ops.plan import Plan
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.tiling.legal_tilings import legal_tilings
from tests.helpers.conv_cases import (
    DATA,
    GRADIENTS,
    SPLIT,
    UNIFIED,
    assert_same_bits,
    call_of,
    run,
    tensors_of,
)
from tests.helpers.conv_cases import MODES as MATH_MODES

# --- Values at which casts go wrong, and how results are compared; shared by the tests of the formats. -


def random_patterns(count, seed=0):
    """Return float32 values with uniformly random bits: every exponent, subnormals, Inf, NaN."""
    return np.random.default_rng(seed).integers(0, 2**32, count, dtype=np.uint32).view(np.float32)


def positive_grid(name):
    """Return the positive finite values of a format of at most 16 bits, rising, from its definition."""
    fmt = dtype(name)
    if fmt.tapered:
        return np.array(positive_values())
    fields = np.arange(1, 1 << (fmt.bits - 1))
    fraction = fields & ((1 << fmt.mantissa_bits) - 1)
    exponent = fields >> fmt.mantissa_bits
    significand = fraction + ((exponent > 0) << fmt.mantissa_bits)
    values = np.ldexp(significand.astype(np.float64), np.maximum(exponent, 1) - fmt.bias - fmt.mantissa_bits)
    return values[values <= fmt.max_finite]


def neighbourhood(name):
    """Return zero, every value, every midpoint, the first values beyond the end; each also one ulp off."""
    grid = np.concatenate([[0.0], positive_grid(name)])
    beyond = grid[-1] + (grid[-1] - grid[-2]) * np.array([0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0, 1e3])
    points = np.concatenate([grid, (grid[:-1] + grid[1:]) / 2, beyond])
    with np.errstate(over="ignore"):
        exact = points.astype(np.float32)
    around = np.concatenate(
        [exact, np.nextafter(exact, np.float32(np.inf)), np.nextafter(exact, np.float32(0))]
    )
    both = np.concatenate([around, -around])
    return np.concatenate([both, np.array([np.inf, -np.inf, np.nan, 0.0, -0.0], np.float32)])


def hf32_ties(mantissa_bits):
    """Return ties at that width, with their ulps, in every exponent incl. subnormals, and the carries."""
    drop = 23 - mantissa_bits
    field = np.arange(255, dtype=np.uint32)[:, None] << np.uint32(23)
    kept = np.array([0, 1, 2, 3, (1 << mantissa_bits) - 2, (1 << mantissa_bits) - 1], np.uint32) << np.uint32(
        drop
    )
    tie = (field | kept | np.uint32(1 << (drop - 1))).reshape(-1)
    patterns = np.concatenate([tie - 1, tie, tie + 1, (field | kept).reshape(-1)])
    special = np.array([0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FFFFFFF, 0x00000001, 0x007FFFFF], np.uint32)
    patterns = np.concatenate([patterns, special])
    return np.concatenate([patterns, patterns | np.uint32(0x80000000)]).view(np.float32)


def widen(values):
    """Return float32 values as float64; numpy warns about signalling NaNs, which random bits contain."""
    with np.errstate(invalid="ignore"):
        return values.astype(np.float64)


def assert_same(got, expected):
    """Compare bits; any NaN equals any NaN."""
    expected = np.asarray(expected, np.float32)
    nan = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(got), nan)
    np.testing.assert_array_equal(got[~nan].view(np.uint32), expected[~nan].view(np.uint32))


# --- Set the floating-point modes of the calling thread, as a library or a caller may have done. -------

# The bits to change in the default word.
_X86 = {
    "ftz": 0x8000,
    "daz": 0x40,
    "ftz and daz": 0x8040,
    "down": 0x2000,
    "up": 0x4000,
    "toward zero": 0x6000,
}
_ARM = {"ftz and daz": 1 << 24, "up": 1 << 22, "down": 2 << 22, "toward zero": 3 << 22}
MODES = {"x86_64": _X86, "AMD64": _X86, "aarch64": _ARM, "arm64": _ARM}.get(platform.machine(), {})


@cache
def _loaded() -> tuple[Callable[[], int], Callable[[int], None], object]:
    word = control_word()
    assert word is not None
    code = load(emit("read", accessors(word)))
    read = ctypes.CFUNCTYPE(ctypes.c_int64)(code.address("read"))
    return read, ctypes.CFUNCTYPE(None, ctypes.c_int64)(code.address("write")), code


def modes_set() -> int:
    """Return the bits of this thread's control word that are modes, not what has happened so far."""
    word = control_word()
    assert word is not None
    return _loaded()[0]() & word.mask


@contextmanager
def mode(name: str) -> Iterator[None]:
    """Set a mode of `MODES` in this thread for a while."""
    word = control_word()
    assert word is not None
    write = _loaded()[1]
    write(word.default | MODES[name])
    try:
        yield
    finally:
        write(word.default)


# --- Make operand tiles that are hard to accumulate, on the grid of each operand format. ---------------
# Everything is a float32 array; a grid is given by its significand bits and exponents alone, so that these
# data depend on no code under test.


@dataclass(frozen=True)
class Grid:
    """Values s * 2^e: significand bits, exponents of the smallest and largest normal."""

    bits: int
    low: int
    high: int

    @property
    def smallest(self) -> int:
        """Exponent of the smallest positive value."""
        return self.low - self.bits + 1


GRIDS = {
    "fp16": Grid(11, -14, 15),
    "bf16": Grid(8, -126, 127),
    "hf32_11": Grid(12, -126, 127),
    "hf32_10": Grid(11, -126, 127),
    "e4m3": Grid(4, -6, 8),
    "hif8": Grid(4, -19, 15),
    "fp32": Grid(24, -126, 127),
}


@dataclass(frozen=True)
class Probe:
    """One accumulator and the products of one block of 16; products that are not listed are zero."""

    c: float
    listed: tuple[tuple[float, float], ...]

    @property
    def products(self) -> tuple[tuple[float, float], ...]:
        """All 16 operand pairs."""
        return self.listed + ((0.0, 0.0),) * (16 - len(self.listed))


PROBES = {
    "V1": Probe(2.0**24, ((1.0, 1.0),) * 16),
    "V3": Probe(-(2.0**24), ((4096.0, 4096.0), *((0.0, 0.0),) * 14, (1.0, 1.0))),
    "V4": Probe(0.0, ((4096.0, 4096.0), (1.0, 1.0), (-4096.0, 4096.0))),
    "V5": Probe(1.0, ((2.0**-12, 2.0**-12), (2.0**-15, 2.0**-15))),
    "V6": Probe(1.0, ((1.5 * 2.0**-12, 2.0**-12),)),
    "V8": Probe(1.0, ((2.0**-12, 2.0**-13),) * 8),
    "V9": Probe(1.0, ((2.0**-12, 2.0**-12),) * 4),
}


def snap(values: np.ndarray, grid: Grid) -> np.ndarray:
    """Round values to a grid, staying finite where they are; infinities and NaN pass."""
    x = np.asarray(values, np.float64)
    finite = np.where(np.isfinite(x), x, 0.0)
    ulp = np.maximum(np.frexp(finite)[1] - 1, grid.low) - grid.bits + 1
    largest = np.ldexp(2.0 - 2.0 ** (1 - grid.bits), grid.high)
    snapped = np.clip(np.ldexp(np.rint(np.ldexp(finite, -ulp)), ulp), -largest, largest)
    return np.where(np.isfinite(x), np.copysign(snapped, x), x).astype(np.float32)


def _normal(rng, _grid, m, k, n):
    return rng.standard_normal((m, k)), rng.standard_normal((k, n)), 4 * rng.standard_normal((m, n))


def _spread(rng, grid, shape):
    """Random signs, exponents over the whole grid and random significands."""
    exponents = rng.integers(grid.smallest, grid.high + 1, shape)
    return np.ldexp(rng.uniform(1, 2, shape), exponents) * rng.choice([-1.0, 1.0], shape)


def _wide(rng, grid, m, k, n):
    middle = Grid(grid.bits, max(grid.low, -40), min(grid.high, 40))
    return tuple(_spread(rng, middle, s) for s in ((m, k), (k, n), (m, n)))


def _bits(rng, grid, m, k, n):
    """Random bit patterns: every exponent, and now and then zero, infinity or NaN."""

    def draw(shape):
        special = rng.choice([0.0, -0.0, np.inf, -np.inf, np.nan], shape)
        return np.where(rng.random(shape) < 0.02, special, _spread(rng, grid, shape))

    c = rng.integers(0, 2**32, (m, n), dtype=np.uint32).view(np.float32)
    return draw((m, k)), draw((k, n)), c


def _subnormal(rng, grid, m, k, n):
    """Products around and below the smallest binary32 (or the smallest the grid can make)."""
    low = Grid(grid.bits, grid.low, grid.low + 3)
    b = _spread(rng, low, (k, n)) if grid.low > -60 else _spread(rng, Grid(grid.bits, -16, -1), (k, n))
    return _spread(rng, low, (m, k)), b, np.ldexp(rng.integers(-40, 41, (m, n)).astype(float), -149)


def _ties(rng, grid, m, k, n):
    """Powers of two whose products are halves and quarters of an ulp of c, which is odd or even."""
    low = max(grid.smallest, -12)

    def powers(shape):
        return np.ldexp(rng.choice([-1.0, 0.0, 1.0, 1.0], shape), low + rng.integers(0, 2, shape))

    c = np.ldexp((2**23 + rng.integers(0, 64, (m, n))) * rng.choice([-1.0, 1.0], (m, n)), 2 * low + 2)
    return powers((m, k)), powers((k, n)), c


def _hairs(rng, grid, m, k, n):
    """Few products, each a hair off half an ulp of c: on wide grids more bits than a double has."""
    low, unit = max(grid.low, -12), 2.0 ** (1 - grid.bits)

    def near_one(shape):
        return np.ldexp(1 + unit * rng.choice([-1.0, 1.0], shape), low)  # (1 + u)(1 - u) = 1 - u^2

    c = np.ldexp((2**23 + rng.integers(0, 64, (m, n))) * rng.choice([-1.0, 1.0], (m, n)), 2 * low + 1)
    return (
        near_one((m, k)) * (rng.random((m, k)) < 2 / k) * rng.choice([-1.0, 1.0], (m, k)),
        near_one((k, n)),
        c,
    )


def _scattered(rng, grid, m, k, n):
    """Terms on scales so far apart that not even two doubles hold a sum; large ones may cancel."""
    far = max(grid.low, -100)
    a = np.ldexp(rng.choice([-1.0, 1.0], (m, k)), rng.choice([0, far], (m, k)))
    a[:, 1::2] = -a[:, 0 : 2 * (k // 2) : 2]
    b = np.ldexp(rng.choice([1.0, 3.0], (k, n)), rng.choice([max(grid.low, -25), far], (k, n)))
    return a, b, np.where(rng.random((m, n)) < 0.7, 1 + 2.0**-23, 2.0**-24)


def _wild_c(rng, _grid, m, k, n):
    """Tame operands, any bit pattern in c."""
    c = rng.integers(0, 2**32, (m, n), dtype=np.uint32).view(np.float32)
    special = rng.choice(np.array([np.inf, -np.inf, np.nan, 1e30, 1e-40, -0.0], np.float32), (m, n))
    return (
        rng.standard_normal((m, k)),
        rng.standard_normal((k, n)),
        np.where(rng.random((m, n)) < 0.3, special, c),
    )


def _infinite_c(rng, _grid, m, k, n):
    """Tame operands and accumulators, some of these infinite."""
    c = np.where(rng.random((m, n)) < 0.2, rng.choice([-np.inf, np.inf], (m, n)), rng.standard_normal((m, n)))
    return rng.standard_normal((m, k)), rng.standard_normal((k, n)), c


def _integers(rng, _grid, m, k, n):
    return (rng.integers(-15, 16, s).astype(float) for s in ((m, k), (k, n), (m, n)))


def _cancellation(rng, grid, m, k, n):
    """Neighbouring products cancel but for their last bits."""
    a, b = 2.0 ** rng.integers(-4, 5, (m, k)) * rng.uniform(1, 2, (m, k)), rng.uniform(1, 2, (k, n))
    a[:, 1::2] = -a[:, 0 : 2 * (k // 2) : 2]
    b[1::2] = b[0 : 2 * (k // 2) : 2] * (1 + rng.integers(-1, 2, (k // 2, n)) * 2.0 ** (1 - grid.bits))
    c = -snap(a[:, :1], grid) * snap(b[:1], grid) * rng.integers(0, 2, (m, n))
    return a, b, c


def _sparse(rng, _grid, m, k, n):
    def draw(shape):
        return rng.standard_normal(shape) * (rng.random(shape) < rng.uniform(0.2, 0.5))

    return draw((m, k)), draw((k, n)), draw((m, n))


def _overflow(rng, grid, m, k, n):
    """Products and accumulators at the edge of binary32, or as near as the grid gets."""
    top = min(grid.high, 64)
    near = np.ldexp(2.0 - 2.0**-23 * rng.integers(1, 4, (m, n)), 127) * rng.choice([-1.0, 1.0], (m, n))
    a = np.ldexp(rng.uniform(1, 2, (m, k)), top - rng.integers(0, 2, (m, k)))
    b = np.ldexp(rng.uniform(1, 2, (k, n)), top - rng.integers(0, 26, (k, n)))
    return a * rng.choice([-1.0, 1.0], (m, k)), b, np.where(rng.random((m, n)) < 0.7, near, 0.0)


def _zeros(rng, grid, m, k, n):
    """Zeros of both signs and few others: the sign of a zero sum is the question."""
    one = 2.0 - 2.0 ** (1 - grid.bits)
    return (rng.choice([0.0, -0.0, -0.0, one, -one], s, p=[0.3, 0.3, 0.3, 0.05, 0.05]) for s in
            ((m, k), (k, n), (m, n)))  # fmt: skip


Maker = Callable[[np.random.Generator, Grid, int, int, int], object]
CLASSES: dict[str, Maker] = {
    "normal": _normal,
    "wide": _wide,
    "bits": _bits,
    "subnormal": _subnormal,
    "ties": _ties,
    "hairs": _hairs,
    "scattered": _scattered,
    "wild_c": _wild_c,
    "infinite_c": _infinite_c,
    "integers": _integers,
    "cancellation": _cancellation,
    "sparse": _sparse,
    "overflow": _overflow,
    "zeros": _zeros,
}


def tile(kind: str, grid: str, m: int, k: int, n: int, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Return a (m, k) and b (k, n) on the grid and a binary32 c (m, n), all C-contiguous float32."""
    rng = np.random.default_rng([seed, m, k, n, *map(ord, kind + grid)])
    with np.errstate(all="ignore"):
        a, b, c = CLASSES[kind](rng, GRIDS[grid], m, k, n)
        c32 = np.asarray(c).astype(np.float32) if np.asarray(c).dtype != np.float32 else c
    return snap(a, GRIDS[grid]), snap(b, GRIDS[grid]), np.ascontiguousarray(c32)


def same_bits(x: np.ndarray, y: np.ndarray) -> bool:
    """Compare bit for bit; any NaN equals any NaN."""
    return bool(np.all((x.view(np.uint32) == y.view(np.uint32)) | (np.isnan(x) & np.isnan(y))))


# --- Random calls for the gradients without instructions: problems, plans, models and data. ------------

# A machine that adds the parts of a deterministic grad_weight as a tree, and one that adds them in order.
TREE = replace(SPLIT, generation=SPLIT.generation._replace(deterministic_sum="tree"))
KINDS = (
    "seq:{r}",
    "seq-muladd:{r}",
    "block:{k}:{r}",
    "block:{k}:{r}",
    "block-add:{k}:{r}:{s}",
    "tree:{t}:adjacent:{r}",
    "tree:{t}:halves:{r}",
    "align:{k}:F{f}:{r}:acc",
    "align:{k}:F{f}:{r}",
    "fp16-acc(block:{k}:{r})",
    "fp16-acc(seq:{r})",
    "exact-mmad:{r}",
)
SWITCHES = ("", "", "", "+split3", "+ftz-in", "+ftz-acc", "+saturate", "+ftz-in+ftz-acc+saturate")


def some_model(rng):
    """Draw an accumulation model of any kind that is followed, with its switches."""
    text = rng.choice(KINDS).format(
        r=rng.choice(("RNE", "RNE", "RNA", "RZ")),
        s=rng.choice(("RNE", "RZ")),
        k=rng.choice((1, 3, 4, 7, 8, 16, 32, 48, "cube_k")),
        t=rng.choice((2, 4, 8, 16)),
        f=rng.choice((10, 24, 25)),
    )
    return text + rng.choice(SWITCHES)


def some_problem(rng):
    """Draw a small convolution of any rank, with groups, transposed or not."""
    rank = rng.choice((1, 2, 2, 2, 3))
    transposed, groups = rng.random() < 0.4, rng.choice((1, 1, 1, 2, 3))
    axes = []
    for _ in range(rank):
        kernel, stride, dilation = rng.randint(1, 4), rng.randint(1, 3), rng.randint(1, 2)
        padding, span = rng.randint(0, 3), dilation * (kernel - 1) + 1
        least = max(1, -(-(2 * padding + 1 - span) // stride) + 1 if transposed else span - 2 * padding)
        spare = rng.randint(0, max(stride, dilation) - 1) if transposed else 0
        axes.append((least + rng.randint(0, (30, 9, 3)[rank - 1]), kernel, stride, padding, dilation, spare))
    sizes, kernels, strides, paddings, dilations, spares = zip(*axes, strict=True)
    batch, inputs, outputs = rng.randint(1, 4), rng.choice((1, 3, 17, 33)), rng.choice((1, 2, 16, 37))
    weight = (inputs * groups, outputs) if transposed else (outputs * groups, inputs)
    shape = (batch, inputs * groups, *sizes)
    return ConvProblem(shape, (*weight, *kernels), strides, paddings, dilations, transposed, spares, groups)


def some_call(rng):
    """Draw a call with plans of any kind: nests, tilings, parts of the reductions and their sums."""
    problem, (dtype, cube_math_type) = some_problem(rng), rng.choice(MATH_MODES)
    profile = rng.choice((SPLIT, SPLIT, TREE, UNIFIED))
    call = call_of(
        problem,
        dtype,
        cube_math_type,
        profile=profile,
        deterministic=rng.random() < 0.5,
        accumulation=some_model(rng),
    )
    plans = {}
    for gradient in GRADIENTS[:2]:
        legal = legal_tilings(problem, gradient, profile, call.compute_dtype)
        (tiling,) = legal.sample(1, seed=rng.randrange(10**6))
        name = rng.choice(("dgrad", "dgrad_columns_outer")) if gradient == "grad_input" else "wgrad"
        if tiling.has_grid and gradient == "grad_input":
            name = "dgrad"  # the other one deals no cells
        plans[gradient] = Plan(name, tiling)
    return replace(call, plans=plans), tensors_of(problem, dtype, rng.choice(DATA), rng.randrange(10**6))


def check_against_the_executor(seed):
    """Compare all gradients of a random call with those of its instructions."""
    call, tensors = some_call(random.Random(seed))
    gradients = Gradients(call, tensors, "program")
    assert gradients.possible((True, True, True)) == (True, True, True)
    made = gradients.make((True, True, True))
    want, _ = run(call, tensors)
    for name in GRADIENTS:
        assert_same_bits(
            made[name], want[name], f"{name} of {call.problem}, {call.accumulation}, {call.plans}"
        )
    check_as_stored(call, tensors, want)


def check_as_stored(call, tensors, want):
    """Give those tensors of a call that are binary16 as they are stored, and compare its gradients again."""
    given = {
        name: values.astype(np.float16) if call.dtypes[name] == "float16" else values
        for name, values in tensors.items()
    }
    made = Gradients(call, given, "program").make((True, True, True))
    stores = any(map(is_stored, given.values()))
    for name, values in made.items():
        assert is_stored(values) == (stores and call.dtypes[name] == "float16")
        assert_same_bits(as_carrier(values), want[name], f"{name} as stored of {call.problem}, {call.plans}")
