"""Micro-benchmarks of one instruction, and copies by many cores, as columns."""

import re
from typing import Any

from ascendsim.profile import load_profile
from prose.chips import vector_kind
from prose.raw import Raw, SkipError

GIB, MIB = 1 << 30, 1 << 20
FRACTAL_BYTES = 512
SAMPLE_BYTES = 12288 * 12288 * 2  # what the copies of the vendor's sample move: its 301.99 MB
# The tile of the sample's unaligned case is not told; it is the last of the aligned ones.
UNALIGNED_TILE = 64, 256
UNTOLD = "what its copies move is not told"

Cells = dict[str, Any]


def instruction_cells(raw: Raw, variant: str) -> Cells:
    """Return the columns of a micro-benchmark of one instruction."""
    kind, _, name = raw.op.partition(" ")
    measured = {"measured_cycles": _cycles(raw, load_profile(variant).clock.cube_mhz)}
    if kind == "MMAD":
        # The table of the 910B3 times each product alone, the others time them in a row.
        alone = variant == "910B3"
        cells = {size.lower(): raw.sizes.get(size) for size in "MKN"} | {"compute_dtype": raw.dtype}
        return measured | cells | {"in_a_row": not alone, "group": f"Mmad {'alone' if alone else 'in a row'}"}
    if kind == "VEC":
        cells = {"vector_kind": vector_kind(name), "repeats": raw.sizes.get("repeat")}
        return measured | cells | {"in_a_row": True, "group": "vector repeats"}
    name = name.removeprefix("repeat ")
    shown, path = name.replace("_TO_", "->"), name.replace("_TO_", "_").removesuffix("_TRANS")
    if kind == "LOAD":
        cells = {"path": path, "repeats": raw.sizes.get("repeat"), "in_a_row": True}
        return measured | cells | {"group": f"load repeats {shown}"}
    return measured | {
        "path": path,
        "bytes": _bytes(raw),
        "relayout": name.endswith("_TRANS"),
        # Copies between GM and a core are timed one by one, with the wait for each.
        "in_a_row": not path.startswith("GM") and path != "UB_GM",
        "group": shown,
    }


def _cycles(raw: Raw, mhz: int) -> float:
    """Return what was measured for one instruction, in cycles of the chip's clock.

    Cycles per transfer if the source derived them, else bytes over the rate at the clock, else its cycles.
    """
    derived, rate = (raw.counters.get(key) for key in ("cycles_per_transfer_derived", "GiB_per_s"))
    if derived is not None:
        return derived
    if rate:
        return _bytes(raw) / (rate * GIB) * mhz * 1e6
    if raw.cycles is None:
        raise SkipError("gives neither cycles nor a rate")
    return raw.cycles


def _bytes(raw: Raw) -> Any:
    return raw.sizes["bytes"] if "bytes" in raw.sizes else raw.sizes["repeat"] * FRACTAL_BYTES


def stream_cells(raw: Raw, variant: str) -> Cells:
    """Return the columns of copies by one core or by many."""
    if raw.us is not None and "bytes" in raw.sizes:
        path = "GM_UB" if "GM->UB" in raw.op else "UB_GM"
        wait = {"kernel": "copy_and_wait", "group": "one copy and its wait"}
        return wait | {"path": path, "bytes": raw.sizes["bytes"], "measured_us": raw.us}
    cores = load_profile(variant).cores
    if raw.id.startswith("kir-950dt-ws"):
        cells = _working_set(raw, cores.vector)
    elif raw.id.startswith(("kir-950dt-GM_UB", "kir-950dt-UB_GM")):
        working = raw.sizes["working_set_MiB"] * MIB
        # 2 GiB in all, and 4 GiB where the working set alone is 2, as the source says.
        moved = max(working, 2048 * MIB) * (2 if working >= 2048 * MIB else 1)
        path = "GM_UB" if "GM_UB" in raw.op else "UB_GM"
        cells = {"path": path, "cores": raw.sizes["cores"], "bytes": working, "moved_bytes": moved}
    elif raw.id.startswith("ad-dc"):
        cells = _sample(raw, cores.cube, cores.vector)
    else:
        raise SkipError(UNTOLD)
    if raw.us is None:
        raise SkipError("gives no time")
    return cells | {"measured_us": raw.us, "group": "streams"}


def _working_set(raw: Raw, cores: int) -> Cells:
    moved = int(raw.counters["TB_per_s"] * 1e6 * (raw.us or 0))
    cells = {"path": "UB_GM" if "write" in raw.op else "GM_UB", "cores": cores, "moved_bytes": moved}
    return cells | {"bytes": int(raw.sizes["working_set_MiB"] * MIB), "shared": "shared" in raw.id}


def _sample(raw: Raw, cube: int, vector: int) -> Cells:
    """Return the copies of the vendor's sample; half precision, tiles of 64 rows."""
    text = str(raw.sizes.get("desc", ""))
    l1: Cells = {"path": "GM_L1", "cores": cube, "bytes": SAMPLE_BYTES, "moved_bytes": SAMPLE_BYTES}
    ub = l1 | {"path": "GM_UB", "cores": vector}
    tile = re.search(r"tile ([0-9]+)x([0-9]+)", text)
    if tile:
        rows, columns = (int(side) for side in tile.groups())
        return l1 | {"tile_bytes": 2 * rows * columns, "tile_rows": rows}
    if "unaligned" in text and "L1" in raw.op:
        rows, columns = UNALIGNED_TILE
        return l1 | {"tile_bytes": 2 * rows * columns, "tile_rows": rows, "aligned": False}
    if text == "small tile":
        return ub | {"tile_bytes": 128}
    if text == "best tile":
        return ub
    if "4x re-read" in raw.op:
        return (l1 if "L1" in raw.op else ub) | {"moved_bytes": 4 * SAMPLE_BYTES}
    raise SkipError(UNTOLD)
