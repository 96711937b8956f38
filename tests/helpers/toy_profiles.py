"""Tiny products with round figures, for tests: edge cases stay small enough to count by hand.

`toy_split()` has 2 cube cores with 2 vector cores each and Fixpipe to GM; `toy_unified()` has 2 cores where
results leave through L0C->UB->GM. Any figure can be changed: `toy_split(cube__mmad_head_cycles=0)` or
`toy_split(**{"paths.GM_L1.bytes_per_cycle": 64})`; a whole path goes with `without=("L0C_L1",)`.
"""

from ascendsim.profile import Profile, profile_from_tree

KIB = 1024
BUFFERS = {
    "L1": (8 * KIB, 32),
    "L0A": (2 * KIB, 512),
    "L0B": (2 * KIB, 512),
    "L0C": (4 * KIB, 64),
    "UB": (4 * KIB, 32),
}
# k0 and k per cycle
RATES = {"float16": (16, 16), "bfloat16": (16, 16), "float32": (8, 4), "hf32": (8, 8), "int8": (32, 32)}
FAST_STRIDES = [1, 2, 4, 8]
# pipe, bytes per cycle, head, latency
SPLIT_PATHS = {
    "GM_L1": ("MTE2", 64, 4, 100),
    "GM_UB": ("MTE2", 64, 4, 100),
    "UB_GM": ("MTE3", 64, 4, 50),
    "L1_L0A": ("MTE1", 256, 2, 10),
    "L1_L0B": ("MTE1", 128, 2, 10),
    "L0C_GM": ("FIX", 64, 8, 40),
    "L0C_L1": ("FIX", 64, 8, 10),
}
UNIFIED_PATHS = {name: SPLIT_PATHS[name] for name in ("GM_L1", "GM_UB", "UB_GM", "L1_L0A", "L1_L0B")} | {
    "L0C_UB": ("V", 128, 8, 10),
    "L1_UB": ("MTE1", 64, 4, 10),
    "UB_L1": ("MTE3", 64, 4, 10),
}


def toy_split(*, without=(), **changes) -> Profile:
    """Make the toy product with split cores."""
    paths = {name: path for name, path in SPLIT_PATHS.items() if name not in without}
    tree = _common(paths) | {
        "core_structure": "split",
        "npu_arch": "toy-split",
        "cores": {"cube": 2, "vector": 4},
        "queues": {
            "cube": {"M": 4, "MTE1": 4, "MTE2": 4, "MTE3": 4, "FIX": 4},
            "vector": {"V": 4, "MTE2": 4, "MTE3": 4},
        },
        "fixpipe": {},
    }
    return _make(tree, "toy_split", changes)


def toy_unified(*, without=(), **changes) -> Profile:
    """Make the toy product with unified cores."""
    paths = {name: path for name, path in UNIFIED_PATHS.items() if name not in without}
    tree = _common(paths) | {
        "core_structure": "unified",
        "npu_arch": "toy-unified",
        "cores": {"cube": 2, "vector": 0},
        "queues": {"cube": {"M": 4, "V": 4, "MTE1": 4, "MTE2": 4, "MTE3": 4}},
    }
    return _make(tree, "toy_unified", changes)


def _common(paths: dict) -> dict:
    names = ("pipe", "bytes_per_cycle", "head_cycles", "latency_cycles")
    return {
        "clock": {"cube_mhz": 1000, "vector_mhz": 1000},
        "buffers": {
            b: {"capacity_bytes": size, "alignment_bytes": unit} for b, (size, unit) in BUFFERS.items()
        },
        "cube": {
            "m0": 16,
            "n0": 16,
            "rates": {dtype: {"k0": k0, "block_k": block_k} for dtype, (k0, block_k) in RATES.items()},
            "mmad_head_cycles": 2,
            "mmad_latency_cycles": 20,
            "same_l0c_spacing_cycles": 10,
            "hf32_mantissa_bits": 11,
        },
        "paths": {name: dict(zip(names, path, strict=True)) for name, path in paths.items()},
        "load2d": {"head_cycles": 2, "least_cycles": 0, "issue_cycles": 0},
        "load3d": {"L0A": _load3d(extra=0), "L0B": _load3d(extra=2)},
        # 128, 128 and 64 bytes a cycle for the chip: 0.128 TB/s at 1000 MHz is 128 bytes a cycle
        "links": {"l2_read": _link(0.128), "l2_write": _link(0.128), "memory": _link(0.064, latency=200)},
        "l2": {"capacity_bytes": 1024 * KIB, "line_bytes": 512, "sector_bytes": 128},
        "vector": {
            "bytes_per_cycle": 256,
            "head_cycles": 2,
            "latency_cycles": 10,
            "least_cycles": 0,
            "repeat_cycles": {
                "unary": 1,
                "binary": 2,
                "multiply_add": 4,
                "cast": 1,
                "divide": 4,
                "exp": 4,
                "transpose": 1,
                "reduce_add_16bit": 7,
                "reduce_add_32bit": 3,
            },
        },
        "sync": {"flag_cycles": 10, "barrier_us": 1.0},
        "scalar": {"issue_cycles": 1, "start_us": 0.0},
        "launch": {"base_us": 1.0, "per_core_us": 0.5},
        "accumulation": {
            "float16": "block:16:RNE",
            "bfloat16": "block:16:RNE",
            "float32": "block:4:RNE",
            "hf32": "block:8:RNE",
        },
        "deterministic_default": False,
    }


def _load3d(*, extra: int) -> dict:
    return {
        "fractal_bytes": 512,
        "cycles_per_stride": 2,
        "cycles_per_row": 1,
        "most_cycles": 16,
        "extra_cycles": extra,
        "fast_strides": FAST_STRIDES,
        "command_cycles": 0,
        "command_covers": "matrix",
    }


def _link(tb_per_s: float, latency: int = 0) -> dict:
    return {
        "nominal_tb_per_s": tb_per_s,
        "efficiency": 1.0,
        "per_core_bytes_per_cycle": 64,
        "per_vector_core_bytes_per_cycle": 32,
        "latency_cycles": latency,
    }


def _make(tree: dict, name: str, changes: dict) -> Profile:
    for path, value in changes.items():
        *groups, last = path.replace("__", ".").split(".")
        below = tree
        for group in groups:
            below = below[group]
        below[last] = value  # the reader of profiles refuses a figure that no profile has
    # An AI core of split products is one cube core with two vector cores.
    if tree["core_structure"] == "split" and "cores.cube" in changes and "cores.vector" not in changes:
        tree["cores"]["vector"] = 2 * tree["cores"]["cube"]
    return profile_from_tree(_as_figures(tree), name)


def _as_figures(tree):
    if isinstance(tree, dict):
        return {key: _as_figures(entry) for key, entry in tree.items()}
    return {"value": tree, "source": "toy figure", "confidence": "derived"}
