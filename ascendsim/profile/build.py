"""Turn a checked tree of figures into a Profile, and derive what follows from them."""

from collections.abc import Mapping
from fractions import Fraction
from math import ceil
from typing import Any

from ascendsim.frozen import FrozenMap
from ascendsim.profile.generation import Generation
from ascendsim.profile.memory import L2, DataPath, Exact, LinkFigures, plain
from ascendsim.profile.records import Figure, Profile
from ascendsim.profile.schema import is_figure, leaves
from ascendsim.profile.units import (
    Buffer,
    Clock,
    Cores,
    Cube,
    CubeRate,
    Fixpipe,
    Launch,
    Load2d,
    Load3d,
    Scalar,
    Sync,
    Vector,
)

# What is derived, and from which figures of a file.
DERIVED = {
    "macs_per_cycle": "block_k",
    "total_bytes_per_cycle": "nominal_tb_per_s and efficiency",
    "vector_total_bytes_per_cycle": "vector_tb_per_s, or nominal_tb_per_s and efficiency",
    "barrier_cycles": "barrier_us",
    "start_cycles": "start_us",
}


def exact(value: float) -> Exact:
    """Turn a figure into an exact number in thousandths, an int where it is whole."""
    # Through text, since the float 0.1 is no tenth: shares of a rate must stay exact.
    return plain(Fraction(round(Fraction(str(value)) * 1000), 1000))


def build_profile(names: Mapping[str, str], tree: Mapping[str, Any], sources: Mapping[str, str]) -> Profile:
    """Make a Profile of a checked tree of figures; `names` holds product, variant and evidence."""
    figures = {path: _figure(entry) for path, entry in leaves(tree)}
    values = _values(tree)
    _derive(values, figures)
    cube = dict(values["cube"])
    # Private in the record: a cube without HF32 has no such bits, and the property says so.
    cube["_hf32_mantissa_bits"] = cube.pop("hf32_mantissa_bits", 0)
    cube["rates"] = _each(CubeRate, cube["rates"])
    queues = values["queues"]
    # A unified core has one set of queues for both kinds of programs.
    own = queues.get("vector", queues["cube"])
    laws = {
        name: law | {"fast_strides": tuple(law["fast_strides"])} for name, law in values["load3d"].items()
    }
    # The last three tables may be missing: then no kind has figures of its own.
    tables = ("repeat_cycles", "kind_head_cycles", "kind_least_cycles", "group_repeats")
    vector = values["vector"] | {table: FrozenMap(dict(values["vector"].get(table, {}))) for table in tables}
    return Profile(
        **names,
        core_structure=values["core_structure"],
        npu_arch=values["npu_arch"],
        cores=Cores(**values["cores"]),
        clock=Clock(**values["clock"]),
        buffers=_each(Buffer, values["buffers"]),
        cube=Cube(**cube),
        paths=_each(DataPath, values["paths"]),
        load3d=_each(Load3d, laws),
        load2d=Load2d(**values["load2d"]),
        l1_write_bytes_per_cycle=values.get("l1_write_bytes_per_cycle", 0),
        fixpipe=Fixpipe(**values.get("fixpipe", {})),
        links=_each(LinkFigures, values["links"]),
        l2=L2(**values["l2"]),
        vector=Vector(**vector),
        sync=Sync(**values["sync"]),
        scalar=Scalar(**values["scalar"]),
        # A cube core is timed together with its vector cores, whose pipes need a depth as well.
        queues=FrozenMap(own | queues["cube"]),
        vector_queues=FrozenMap(own),
        launch=Launch(**values["launch"]),
        accumulation=FrozenMap(values["accumulation"]),
        deterministic_default=values["deterministic_default"],
        generation=_generation(values["generation"]),
        figures=FrozenMap(figures),
        sources=FrozenMap(sources),
    )


def _generation(values: dict[str, Any]) -> Generation:
    formats = {name: tuple(values[name]) for name in ("inf_nan_formats", "fixpipe_saturated_formats")}
    return Generation(**values | formats | {"hf32_ties": FrozenMap(values["hf32_ties"])})


def _each(record: Any, table: Mapping[str, Any]) -> Mapping[str, Any]:
    return FrozenMap({key: record(**entry) for key, entry in table.items()})


def _figure(entry: Mapping[str, Any]) -> Figure:
    lists = {name: tuple(entry[name]) for name in ("range", "fitted_on") if name in entry}
    return Figure(**{**entry, **lists})


def _values(tree: Mapping[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, entry in tree.items():
        if not is_figure(entry):
            values[key] = _values(entry)
        # Rates divide bytes into cycles: a binary fraction would round differently on another path. So would
        # cycles that come in parts.
        elif key.endswith(("bytes_per_cycle", "_block_cycles")):
            values[key] = exact(entry["value"])
        else:
            values[key] = entry["value"]
    return values


def _derive(values: dict[str, Any], figures: dict[str, Figure]) -> None:
    """Add what follows from other figures, each with a figure that says how."""
    cube, mhz = values["cube"], values["clock"]["cube_mhz"]

    def derived(path: str, value: Any, how: str) -> Any:
        figures[path] = Figure(value, how, "derived")
        return value

    # An m0 x n0 block of results takes block_k products each in a cycle.
    for dtype, rate in cube["rates"].items():
        rate["macs_per_cycle"] = derived(
            f"cube.rates.{dtype}.macs_per_cycle",
            cube["m0"] * cube["n0"] * rate["block_k"],
            "m0 x n0 x block_k",
        )
    for name, link in values["links"].items():
        # TB/s over MHz is 10^6 bytes a cycle; rounded down to thousandths so that shares of it stay exact.
        # The efficiency is in the total, so that nobody who divides a link has to know of it.
        reached = Fraction(str(link["nominal_tb_per_s"])) * Fraction(str(link["efficiency"]))
        how = vector_how = "nominal_tb_per_s x efficiency"
        # Copies by vector cores were measured apart only on some products.
        vector = reached
        if "vector_tb_per_s" in link:
            vector, vector_how = Fraction(str(link.pop("vector_tb_per_s"))), "vector_tb_per_s"
        for which, tb_per_s, product in (("total", reached, how), ("vector_total", vector, vector_how)):
            link[f"{which}_bytes_per_cycle"] = derived(
                f"links.{name}.{which}_bytes_per_cycle",
                plain(Fraction(int(tb_per_s * 10**9 / mhz), 1000)),
                f"{product} / clock.cube_mhz, rounded down to thousandths",
            )
    # Sources give microseconds. Rounded up, so that no wait is shorter than the time it stands for.
    for group, stem in (("sync", "barrier"), ("scalar", "start")):
        cycles = ceil(Fraction(str(values[group].pop(f"{stem}_us"))) * mhz)
        how = f"{stem}_us x clock.cube_mhz, rounded up"
        values[group][f"{stem}_cycles"] = derived(f"{group}.{stem}_cycles", cycles, how)
