"""Entries of documents made by hand, as no run would give them: edge cases for tables, pages and words."""

COPIES = {"al1_buffers": 2, "bl1_buffers": 1, "al0_buffers": 2, "bl0_buffers": 2, "cl0_buffers": 1}
BASE = {"base_m": 128, "base_n": 64, "base_k": 32, "step_ka": 2, "step_kb": 4, "used_cores": 2}
PLAN = {"schedule": "dgrad", **BASE, **COPIES, "chosen_by": "search"}
KERNEL = {
    "name": "grad_input",
    "cycles": 1000,
    "time_us": 3.0,
    "launch_us": 1.0,
    "entry_us": 0.5,
    "entry_cycles": 250,
    "core_us": 1.5,
    "blocks": 2,
    "cores_used": 2,
    "cubes_used": 2,
    "cube_utilisation": 0.5,
    "busy": {"S": 0.001, "MTE2": 0.25, "M": 0.5},
    "engine": "compiled",
    "bound_by": "M",
    "occupation": {
        "M": {"entry": 0.25, "busy": 0.5, "waiting": {"MTE2": 0.25}, "idle": 0.0},
        "MTE2": {"entry": 0.25, "busy": 0.25, "waiting": {}, "idle": 0.5},
    },
    "critical_path": {"M": 500, "entry": 250, "MTE2": 250, "flag": 0},
    "macs": 4096,
    "bytes": {"l2_read": 2048, "l2_write": 100, "memory": 0},
    "note": "",
    "plan": PLAN,
}
CAST = KERNEL | {
    "name": "cast",
    "plan": None,
    "macs": 0,
    "cubes_used": 0,
    "cube_utilisation": 0.0,
    "busy": {"V": 1.0},
    "bound_by": "V",
}
VERDICTS = [
    {"standard": "st", "passed": True, "rule": "R"},
    {"standard": "mixed", "passed": False, "rule": "S"},
]
GRADIENT = {
    "name": "grad_weight",
    "shape": [2, 2],
    "stored": "float16",
    "sha256": "0123456789abcdef",
    "mere": 1.5e-4,
    "mare": 0.25,
    "share_above_1e3": 0.125,
    "max_ulp": 2.0,
    "equal_bits_share": 1.0,
    "verdicts": VERDICTS,
}
PRODUCT = {
    "product": "toy",
    "variant": "toy1",
    "core_structure": "split",
    "cores": {"cube": 2, "vector": 4},
    "cube_mhz": 1000,
    "evidence": "",
    "figures": {"measured": 3, "assumed": 1},
    "assumed_figures": {
        "sync.flag_cycles": {"value": 10, "range": [0, 20], "source": "a | guess", "confidence": "assumed"}
    },
    "compute_dtype": "float16",
    "accumulation": "block:16:RNE",
    "order": None,
    "cycles": 1000,
    "time_us": 3.0,
    "launch_us": 1.0,
    "entry_us": 0.5,
    "core_us": 1.5,
    "kernels": [KERNEL],
    "interval": None,
    "gradients": [],
    "notes": [],
}
LAYERS = [
    {"name": "a", "count": 3, "time_us": 3.0, "total_us": 9.0, "share": 0.75, "kernels": [KERNEL, CAST]},
    {"name": "b", "count": 1, "time_us": 3.0, "total_us": 3.0, "share": 0.25, "kernels": [KERNEL]},
]
NETWORK = {key: value for key, value in PRODUCT.items() if key not in ("kernels", "gradients", "interval")}
NETWORK |= {"layers": LAYERS, "time_us": 12.0}


def document(*products, title="a test", **more):
    """A document of these products; columns are defined where a test needs them."""
    head = {"schema": "test 1", "ascendsim": "0", "command": ["run", "x"], "title": title}
    return head | {"problem": {"input": (1, 2)}, "products": list(products), "definitions": {}} | more
