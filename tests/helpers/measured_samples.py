"""Measured rows for tests: one of every kernel, as cells of a table and as records."""

import csv

from ascendsim.validate.schema import COLUMNS, read_row

# The columns that every kernel has beside those of `KINDS`.
ABOUT = {"id": "mine", "variant": "910B1", "source": "a table"}
SQUARE = {"kernel": "matmul", "compute_dtype": "float16", "m": 256, "k": 256, "n": 256, "measured_us": 10}
LAYER = {"compute_dtype": "float16", "input_shape": "2x32x12x10", "weight_shape": "48x32x3x3"} | {
    "padding": "1x1x1x1",
    "measured_us": 20,
}
# 8 rows of 4 tiles over 20 cores: 12 of them take two.
TILES = {"kernel": "matmul", "variant": "910B3", "compute_dtype": "float16", "out_dtype": "float16"} | {
    "m": 1024,
    "k": 128,
    "n": 1024,
    "base_m": 128,
    "base_n": 256,
    "base_k": 128,
    "used_cores": 20,
    "single_core_m": 128,
    "single_core_n": 256,
    "bl0_buffers": 1,
    "pipe": "M",
    "tiles_on_core": 2,
    "measured_us": 1.2,
}
# One row of every kind that a table may have; each is compared as it stands.
KINDS = {
    "move": {"kernel": "move", "path": "GM_L1", "bytes": 1024, "measured_cycles": 173},
    "load": {"kernel": "load", "path": "L1_L0A", "repeats": 2, "in_a_row": "yes", "measured_cycles": 9},
    "vector": {"kernel": "vector", "vector_kind": "binary", "repeats": 2, "measured_cycles": 9},
    "mmad": {"kernel": "mmad", "compute_dtype": "float16", "m": 16, "k": 16, "n": 16, "measured_cycles": 25},
    "copy_and_wait": {"kernel": "copy_and_wait", "path": "GM_UB", "bytes": 4096, "measured_us": 0.2},
    "stream": {"kernel": "stream", "variant": "950DT_9582", "path": "GM_UB", "cores": 1, "bytes": 1 << 22}
    | {"moved_bytes": 1 << 24, "measured_us": 130},
    "matmul": SQUARE | {"blocks": 4, "m_us": 3, "mte2_us": 5},
    "plan": SQUARE | {"base_m": 64, "base_n": 64, "base_k": 64, "used_cores": 16},
    "tiles": TILES,
    "grad_input": LAYER | {"kernel": "grad_input"},
    "grad_weight": LAYER | {"kernel": "grad_weight"},
    "forward": LAYER | {"kernel": "forward"},
    "transdata": {"kernel": "transdata", "compute_dtype": "float16", "input_shape": "2x32x12x10"}
    | {"change": "NCHW->NC1HWC0", "measured_us": 5, "v_us": 1, "mte3_us": 2},
    "grad_bias": {"kernel": "grad_bias", "compute_dtype": "float16", "input_shape": "2x32x12x10"}
    | {"measured_us": 6},
    "grad_input_call": LAYER | {"kernel": "grad_input_call", "l2_start": "chained"},
    "grad_weight_call": LAYER | {"kernel": "grad_weight_call", "l2_start": "chained"},
}


def cells(kind, **changes):
    """Return the cells of a row of a kind, as texts; None takes one away."""
    made = ABOUT | KINDS[kind] | changes
    return {column: str(value) for column, value in made.items() if value is not None}


def made(kind, **changes):
    """Return a row of a kind as it is read."""
    return read_row(cells(kind, **changes))


def write_table(path, *rows, columns=tuple(COLUMNS)):
    """Write a table of rows given as cells and return its path."""
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, columns, restval="")
        table.writeheader()
        table.writerows(rows)
    return path
