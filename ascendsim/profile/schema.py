"""Contents of a product file, as a tree whose every leaf is one figure.

A figure is a table `{ value, source, confidence, range?, note?, fitted_on?, without? }`. A library for these
checks takes longer to import than every check of a command: `problems` has them in plain code.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple


class Kind(NamedTuple):
    """Rule for the value of a figure: in words for the user, and as a test.

    fits     whether a value is right, or an item of it if it is a list
    listed   whether the value is a list
    limits   the least and the largest one, of a number
    """

    expected: str
    fits: Callable[[Any], bool]
    listed: bool = False
    limits: tuple[float, float] | None = None


class Each(NamedTuple):
    """A table with the same entry under each of some keys; keys that are not required may be absent."""

    keys: tuple[str, ...]
    required: tuple[str, ...]
    entry: Any


class ByClock(NamedTuple):
    """A table with the same entry under each of some clocks, whole megahertz, which the file chooses."""

    entry: Any


class Maybe(NamedTuple):
    """An entry that may be absent."""

    entry: Any


# Strict everywhere: "20" for 20 or 1 for true would hide a slip of the pen.
def integer(least: int, most: int) -> Kind:
    """Return the rule of a whole number from a least value on, up to a largest one."""
    words = f"an integer from {least} to {most}"
    return Kind(words, lambda value: _is_number(value, int) and least <= value <= most, limits=(least, most))


def power_of_two(least: int, most: int) -> Kind:
    """Return the rule of a power of two from a least one on, up to a largest one."""
    words = f"a power of two from {least} to {most}"
    sizes = [1 << exponent for exponent in range(least.bit_length() - 1, most.bit_length())]
    return Kind(words, lambda value: _is_number(value, int) and value in sizes, limits=(least, most))


def number(least: float, most: float) -> Kind:
    """Return the rule of a number from a least value on, up to a largest one; NaN is none."""
    words = f"a number from {least} to {most}"
    return Kind(
        words, lambda value: _is_number(value, int | float) and least <= value <= most, limits=(least, most)
    )


def word(*choices: str) -> Kind:
    """Return the rule of a text: one of some choices, or any if there are none."""
    if not choices:
        return Kind("a text", lambda value: isinstance(value, str) and value != "")
    return Kind("one of " + ", ".join(choices), lambda value: isinstance(value, str) and value in choices)


def truth() -> Kind:
    """Return the rule of a yes or no."""
    return Kind("true or false", lambda value: isinstance(value, bool))


def listed(items: str, kind: Kind) -> Kind:
    """Return the kind of a list, maybe empty, whose values are of `kind`; messages call them `items`."""
    return Kind(f"a list of {items}", kind.fits, listed=True)


def _is_number(value: Any, kind: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


CONFIDENCES = ("vendor file", "vendor doc", "measured", "paper", "derived", "assumed", "design")
PIPES = ("M", "V", "MTE1", "MTE2", "MTE3", "FIX")
BUFFERS = ("L1", "L0A", "L0B", "L0C", "UB", "BT", "FB")
# Every product has the first five.
PATHS = (
    *("GM_L1", "GM_UB", "UB_GM", "L1_L0A", "L1_L0B", "L0C_GM", "L0C_UB", "L0C_L1"),
    *("L1_UB", "UB_L1", "L1_BT", "L1_FB", "L1_GM", "GM_L0A", "GM_L0B"),
)
CLOCK = "[1-9][0-9]{0,5}"  # in MHz, as a key
# What a file says about itself, beside its figures.
ABOUT_TEXTS = ("product", "series", "variant", "base", "default_variant", "evidence")
ABOUT_TABLES = ("variants", "sources")
# They add up exactly, so that they have no accumulation model.
INTEGER_DTYPES = ("int8",)
CUBE_DTYPES = (
    *("float16", "bfloat16", "float32", "hf32", "float8_e4m3fn", "float8_e5m2", "hifloat8"),
    *INTEGER_DTYPES,
)
# Bytes of an element of each, as it lies in a buffer.
CUBE_BYTES = {
    dtype: 4 if dtype in ("float32", "hf32") else 2 if dtype in ("float16", "bfloat16") else 1
    for dtype in CUBE_DTYPES
}
# Kinds of vector instructions. A product says what a repeat of the first nine costs; of the others if it was
# measured.
REPEATS = (
    *("unary", "binary", "multiply_add", "cast", "divide", "exp", "transpose"),
    *("reduce_add_16bit", "reduce_add_32bit"),
    *("shift", "scalar_integer", "multiply_add_widening", "divide_16bit", "exp_32bit", "reduce_extreme"),
    *("reduce_group_16bit", "reduce_group_32bit", "compare_to_mask", "compare_scalar_to_mask", "sort"),
    *("gather_16bit", "gather_32bit", "gather_block", "filter", "dequantise"),
)


# Every figure has an upper limit, far above any chip, so that what is counted stays within 64 bits and a run
# comes to an end: cores (each gets a program of its own), cycles, bytes of L2, of a buffer and of one access.
MOST_CORES, MOST_CYCLES, MOST_BYTES, MOST_ON_CHIP, MOST_AT_ONCE = 4096, 10**6, 1 << 40, 1 << 26, 1 << 20
COUNT, POSITIVE = integer(0, MOST_CYCLES), integer(1, MOST_CYCLES)
SIZE, CAPACITY = integer(1, MOST_AT_ONCE), integer(1, MOST_BYTES)
# A buffer of a block of data at least: what else is too small, the need of a tile names.
ON_CHIP, SLOT = integer(32, MOST_ON_CHIP), integer(1, 4096)
CYCLES = number(0, MOST_CYCLES)
# Rates are kept in thousandths: anything below would be no rate at all.
RATE, SHARE, MICROSECONDS = number(0.001, 10**6), number(0.01, 1), number(0, 10**6)
# Sides of the cube, and the bytes of the reduction in a row of a fractal: 8 to 64 elements of float16.
CUBE_SIDES, FRACTAL_ROW_BYTES = (8, 64), (16, 128)
STRIDES = listed("integers of at least 1", POSITIVE)
TRUTH = truth()
# Formats that a conversion out of float32 can overflow.
NARROW = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "hifloat8")
FORMATS = listed(", ".join(NARROW), word(*NARROW))
TIES = word("RNE", "RNA", "RZ")
# Energy of an event; levels of the memory, from memory to the cube.
PICOJOULES, VOLTS = number(0, 10**9), number(0.01, 100)
LEVELS = ("memory", "L2", "L1", "L0A", "L0B", "L0C", "UB")
# What one command of load3d makes: a whole matrix, or a line of its fractals.
COVERS = ("matrix", "line")

TREE: dict[str, Any] = {
    # split: cube and vector cores with programs of their own; unified: one core with both units.
    "core_structure": word("split", "unified"),
    "npu_arch": word(),
    "cores": {"cube": integer(1, MOST_CORES), "vector": integer(0, MOST_CORES)},
    "clock": {"cube_mhz": POSITIVE, "vector_mhz": POSITIVE},
    "buffers": Each(BUFFERS, BUFFERS[:5], {"capacity_bytes": ON_CHIP, "alignment_bytes": SLOT}),
    "cube": {
        "m0": power_of_two(*CUBE_SIDES),
        "n0": power_of_two(*CUBE_SIDES),
        "rates": Each(CUBE_DTYPES, ("float16",), {"k0": power_of_two(4, 128), "block_k": SIZE}),
        "mmad_head_cycles": COUNT,
        "mmad_latency_cycles": COUNT,
        "same_l0c_spacing_cycles": COUNT,
        "hf32_mantissa_bits": Maybe(integer(1, 23)),
    },
    "paths": Each(
        PATHS,
        PATHS[:5],
        {
            "pipe": word(*PIPES),
            "bytes_per_cycle": RATE,
            "head_cycles": COUNT,
            "latency_cycles": COUNT,
            "least_cycles": Maybe(POSITIVE),
            "spread_cycles": Maybe(POSITIVE),
            "in_turn_cycles": Maybe(POSITIVE),
            "row_cycles": Maybe(RATE),
            "request_bytes": Maybe(SIZE),
            "request_fixed_share": Maybe(SHARE),
            "buffer_bytes": Maybe(integer(1, MOST_ON_CHIP)),
            "drain_bytes_per_cycle": Maybe(RATE),
            "transposing_bytes_per_cycle": Maybe(RATE),
            "m_stall_share": Maybe(number(0, 1)),
        },
    ),
    "load3d": {
        buffer: {
            "fractal_bytes": SIZE,
            "cycles_per_stride": POSITIVE,
            "cycles_per_row": COUNT,
            "most_cycles": POSITIVE,
            "extra_cycles": COUNT,
            "fast_strides": STRIDES,
            "command_cycles": COUNT,
            "command_covers": word(*COVERS),
            "transposes": Maybe(TRUTH),
            "turned_cycles": Maybe(RATE),
        }
        for buffer in ("L0A", "L0B")
    },
    "l1_write_bytes_per_cycle": Maybe(RATE),
    "load2d": {
        "head_cycles": COUNT,
        "least_cycles": COUNT,
        "issue_cycles": COUNT,
        "turned_block_cycles": Maybe(CYCLES),
    },
    "fixpipe": Maybe(
        {
            "read_bytes_per_cycle": Maybe(RATE),
            "matrix_least_cycles": Maybe(POSITIVE),
            "channel_split_bytes_per_cycle": Maybe(RATE),
            "channel_split_atomic_bytes_per_cycle": Maybe(RATE),
            "unit_flag_bytes": Maybe(SIZE),
        }
    ),
    "links": {
        link: {
            "nominal_tb_per_s": RATE,
            "efficiency": SHARE,
            "per_core_bytes_per_cycle": RATE,
            "per_vector_core_bytes_per_cycle": RATE,
            "per_vector_pair_bytes_per_cycle": Maybe(RATE),
            "vector_tb_per_s": Maybe(RATE),
            "shared_efficiency": Maybe(SHARE),
            "latency_cycles": COUNT,
        }
        for link in ("l2_read", "l2_write", "memory")
    },
    "l2": {
        "capacity_bytes": CAPACITY,
        "line_bytes": SIZE,
        "sector_bytes": SIZE,
        "most_fetches": Maybe(SIZE),
        "operands_handed": Maybe(TRUTH),
    },
    "vector": {
        "bytes_per_cycle": SIZE,
        "head_cycles": COUNT,
        "latency_cycles": COUNT,
        "least_cycles": COUNT,
        "repeat_cycles": Each(REPEATS, REPEATS[:9], POSITIVE),
        "kind_head_cycles": Maybe(Each(REPEATS, (), POSITIVE)),
        "kind_least_cycles": Maybe(Each(REPEATS, (), POSITIVE)),
        "group_repeats": Maybe(Each(REPEATS, (), SIZE)),
        "pixel_block_cycles": Maybe(CYCLES),
        "tap_block_cycles": Maybe(CYCLES),
    },
    "sync": {"flag_cycles": COUNT, "barrier_us": MICROSECONDS},
    "scalar": {"issue_cycles": COUNT, "start_us": MICROSECONDS},
    # A unified core has the queues of "cube" alone.
    "queues": Each(("cube", "vector"), ("cube",), Each(PIPES, (), SIZE)),
    "package": Maybe(
        {"dies": integer(1, MOST_CORES), "link_gb_per_s": Maybe(RATE), "link_latency_us": Maybe(MICROSECONDS)}
    ),
    "launch": {"base_us": MICROSECONDS, "per_core_us": MICROSECONDS},
    # Nothing that moves cycles: read by `studies/traffic.py` alone.
    "energy": Maybe(
        {
            "mac_pj": Maybe(Each(CUBE_DTYPES, (), PICOJOULES)),
            "read_pj_per_byte": Maybe(Each(LEVELS, (), PICOJOULES)),
            "write_pj_per_byte": Maybe(Each(LEVELS, (), PICOJOULES)),
            "vector_pj_per_cycle": Maybe(PICOJOULES),
            "core_pj_per_cycle": Maybe(PICOJOULES),
            "leakage_pj_per_cycle": Maybe(PICOJOULES),
            "nominal_mhz": Maybe(POSITIVE),
            "leakage_exponent": Maybe(integer(0, 8)),
            "voltage_v": Maybe(ByClock(VOLTS)),
        }
    ),
    "accumulation": Each(CUBE_DTYPES, ("float16",), word()),
    "deterministic_default": TRUTH,
    "generation": {
        "inf_nan_formats": FORMATS,
        "inf_nan_at_launch": TRUTH,
        "global_rules_at_launch": TRUTH,
        "fixpipe_saturated_formats": FORMATS,
        "deterministic_sum": word("in order", "tree"),
        "squeezes_groups": TRUTH,
        "half_accumulator": TRUTH,
        "changes_layouts": TRUTH,
        "writes_rows_in_3d": TRUTH,
        "loads_ahead": TRUTH,
        "hf32_ties": {"convolution_backward": TIES, "convolution_forward": TIES, "matmul": TIES},
    },
}


def children(node: Any, given: Iterable[str] | None = None) -> dict[str, tuple[Any, bool]]:
    """Return the children that a table may have, by key, and whether each must be there.

    given   keys that a file has, of which a table by clocks takes all clocks; None: MHZ stands for them
    """
    if isinstance(node, ByClock):
        clocks = ("MHZ",) if given is None else (key for key in given if re.fullmatch(CLOCK, key))
        return dict.fromkeys(clocks, (node.entry, False))
    if isinstance(node, Each):
        return {key: (node.entry, key in node.required) for key in node.keys}
    return {k: (n.entry, False) if isinstance(n, Maybe) else (n, True) for k, n in node.items()}


def is_figure(table: object) -> bool:
    """Return whether a table is a figure, and not a table of figures."""
    # A dict is asked for first: the general question costs ten times as much for each figure.
    return isinstance(table, (dict, Mapping)) and "value" in table


def leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the figures of a tree as they are written, by dotted path.

    The tree need not be checked yet: what is neither figure nor table is left out.
    """
    for key, entry in tree.items():
        if is_figure(entry):
            yield prefix + key, entry
        elif isinstance(entry, (dict, Mapping)):
            yield from leaves(entry, f"{prefix}{key}.")


def child(node: Any, key: str) -> Any:
    """Return the node that the tree expects under a key of a table; None where the key is unknown."""
    if node is None or isinstance(node, Kind):
        return None
    if isinstance(node, ByClock):
        return node.entry
    if isinstance(node, Each):
        return node.entry if key in node.keys else None
    below = node.get(key)
    return below.entry if isinstance(below, Maybe) else below


def node_at(location: tuple[str, ...]) -> Any:
    """Return the node that the tree expects at a location; inside a figure, the figure's kind."""
    node: Any = TREE
    for part in location:
        if isinstance(node, Kind):
            return node
        node = child(node, part)
    return node
