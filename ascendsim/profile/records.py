"""Profile: one product as plain frozen values, every one with the figure it came from."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from math import ceil, inf, isfinite
from typing import Any, NamedTuple

from ascendsim.errors import ConfigError, UnsupportedError
from ascendsim.frozen import FrozenMap, cached_property
from ascendsim.native.default_arithmetic import default_floats
from ascendsim.profile.check import hint
from ascendsim.profile.memory import (
    L2,
    Buffer,
    ClockRates,
    Cores,
    Cube,
    CubeRate,
    DataPath,
    Exact,
    FixpipeRates,
    Launch,
    LinkFigures,
    Load2d,
    Load3d,
    Package,
    Scalar,
    Sync,
    Vector,
    plain,
)
from ascendsim.profile.schema import LEVELS, is_figure, leaves


class Generation(NamedTuple):
    """Choices that all products of one npu_arch share; a file in configs/generations holds them.

    inf_nan_formats            formats whose conversions can deliver Inf and NaN; the others saturate
    inf_nan_at_launch          CTRL[48] as a kernel finds it: True delivers Inf and NaN, False saturates
    global_rules_at_launch     CTRL[60] likewise: True lets CTRL[48] decide, False each instruction
    fixpipe_saturated_formats  formats that Fixpipe saturates in any case, if the C-API pages are right
    deterministic_sum          how parts of grad_weight that were kept apart are added: "in order", or "tree"
                               (binary, stride doubling)
    squeezes_groups            True: a float32 grad_weight of a grouped convolution in a 16-bit type goes
                               through float16 on its way out
    half_accumulator           True: a float16 product can be accumulated in float16
    changes_layouts            True: TransData kernels bring tensors into the cube's layouts and back; False:
                               the cube's kernels read and write row after row
    writes_rows_in_3d          True: the kernel of a 16-bit 3-D grad_input writes row by row nevertheless
    loads_ahead                True: kernels of 3-D gradients call for the next tiles of L1 before they read
                               those at hand, and grad_input takes the slots of L1 in turn; False: it counts
    hf32_ties                  how float32 becomes HF32 in the kernels of convolution_backward,
                               convolution_forward (grad_input of a transposed one) and matmul
    """

    inf_nan_formats: tuple[str, ...]
    inf_nan_at_launch: bool
    global_rules_at_launch: bool
    fixpipe_saturated_formats: tuple[str, ...]
    deterministic_sum: str
    squeezes_groups: bool
    half_accumulator: bool
    changes_layouts: bool
    writes_rows_in_3d: bool
    loads_ahead: bool
    hf32_ties: Mapping[str, str]


class Figure(NamedTuple):
    """One hardware figure with its provenance; the unit is in the name it goes by.

    fitted_on    what the ids of the measured rows begin with that it was fitted on; empty if on none
    without      the value that its mechanism has where nothing is known, such as no latency
    """

    value: Any
    source: str
    confidence: str
    range: tuple[Any, ...] | None = None
    note: str = ""
    fitted_on: tuple[str, ...] = ()
    without: Any = None


# Fields of a profile that say where its values are from.
PROVENANCE = ("figures", "sources")


@dataclass(frozen=True, eq=False)
class Profile:
    """One product; compared and hashed by identity, so that it is a cheap cache key.

    `l1_write_bytes_per_cycle` is what MTE2 writes into L1 while MTE1 has to wait (0: both at once).
    """

    product: str
    variant: str
    evidence: str
    core_structure: str
    npu_arch: str
    cores: Cores
    clock: ClockRates
    buffers: Mapping[str, Buffer]
    cube: Cube
    paths: Mapping[str, DataPath]
    load3d: Mapping[str, Load3d]
    load2d: Load2d
    l1_write_bytes_per_cycle: Exact
    fixpipe: FixpipeRates
    links: Mapping[str, LinkFigures]
    l2: L2
    vector: Vector
    sync: Sync
    scalar: Scalar
    queues: Mapping[str, int]
    vector_queues: Mapping[str, int]
    launch: Launch
    package: Package
    accumulation: Mapping[str, str]
    deterministic_default: bool
    generation: Generation
    # Provenance of all of the above, by dotted path, derived figures included.
    figures: Mapping[str, Figure]
    sources: Mapping[str, str]

    @cached_property
    def told(self) -> str:
        """All values as text, without their provenance: equal for profiles with equal values."""
        # All records are plain values, and the text shows all of them.
        values = [getattr(self, field.name) for field in fields(self) if field.name not in PROVENANCE]
        return repr(values)

    @cached_property
    def content(self) -> bytes:
        """A digest of all values, for answers that are kept on disk."""
        # Imported here: it takes longer than to read a product file, and few answers are kept.
        from hashlib import sha256

        return sha256(self.told.encode()).digest()

    def has_path(self, source: str, target: str) -> bool:
        """Return whether bytes can go from one place to another in one instruction."""
        return f"{source}_{target}" in self.paths

    def path(self, source: str, target: str) -> DataPath:
        """Return the path between two places; UnsupportedError where the product has none."""
        try:
            return self.paths[f"{source}_{target}"]
        except KeyError:
            # A kernel asks for a path only if its schedule is wrong for the product: say what there is.
            names = ", ".join(name.replace("_", "->") for name in self.paths)
            raise UnsupportedError(f"{self.variant} has no path {source}->{target}; it has {names}") from None

    @default_floats
    def launch_us(self, cores: int) -> float:
        """Return the microseconds to start a kernel on this many cores; its entry is in its cycles."""
        return self.launch.base_us + self.launch.per_core_us * cores

    def assumed(self) -> dict[str, Figure]:
        """Return the figures that nobody published or measured, by dotted path; each has a range."""
        return {path: figure for path, figure in self.figures.items() if figure.confidence == "assumed"}


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
    # Private in the record: a cube without HF32 has no HF32 bits, and the property says so.
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
        clock=ClockRates(**values["clock"]),
        buffers=_each(Buffer, values["buffers"]),
        cube=Cube(**cube),
        paths=_each(DataPath, values["paths"]),
        load3d=_each(Load3d, laws),
        load2d=Load2d(**values["load2d"]),
        l1_write_bytes_per_cycle=values.get("l1_write_bytes_per_cycle", 0),
        fixpipe=FixpipeRates(**values.get("fixpipe", {})),
        links=_each(LinkFigures, values["links"]),
        l2=L2(**values["l2"]),
        vector=Vector(**vector),
        sync=Sync(**values["sync"]),
        scalar=Scalar(**values["scalar"]),
        # A cube core is timed together with its vector cores, whose pipes need a depth as well.
        queues=FrozenMap(own | queues["cube"]),
        vector_queues=FrozenMap(own),
        launch=Launch(**values["launch"]),
        package=Package(**values.get("package", {})),
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
    """Add the values that are computed from others, each with a `Figure` whose source is the formula."""
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


def _power(base: Any, power: Any) -> float:
    """Return a power of floats: whole numbers of millions of digits would never come to an end."""
    made: float | complex = float(base) ** float(power)
    if isinstance(made, complex):
        raise FloatingPointError("takes a root of a negative number")
    return made


OPERATIONS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: _power,
}
FUNCTIONS: dict[str, Callable[..., Any]] = {"sqrt": lambda value: _power(value, 0.5), "min": min, "max": max}
# What a formula may ask of timed calls.
RESULTS = ("result.time_us", "result.energy_uj", *(f"result.bytes.{level}" for level in LEVELS))
FORM = (
    "figures by their paths, results (result.time_us, result.energy_uj, result.bytes.L2), numbers, + - * / "
    '^ sqrt min max and ( ), such as "cores.cube * 2 + sqrt(l2.capacity_bytes / 1e6)"'
)


@dataclass(frozen=True, slots=True)
class CostFormula:
    """A formula, in a unit that only the user knows.

    Raises   ConfigError for a text that is no formula
    """

    text: str

    def __post_init__(self) -> None:
        """Refuse what cannot be read."""
        self._tree()

    @property
    def results(self) -> frozenset[str]:
        """The results that it asks for, which are there once calls have been timed."""
        found = (ast.unparse(node) for node in ast.walk(self._tree()) if isinstance(node, ast.Attribute))
        return frozenset(found) & frozenset(RESULTS)

    @default_floats
    def of(self, profile: Profile, results: Mapping[str, float] | None = None) -> float:
        """Return the cost of a product.

        results  by the names of `RESULTS`; without them a formula that asks for one is tried with 1
        Raises   ConfigError for a path that is no figure or no number, a division by 0, and a cost that is
                 no finite number
        """
        try:
            value = self._value(
                self._tree(), profile, dict.fromkeys(RESULTS, 1.0) if results is None else results
            )
            cost = float(value)
        except ZeroDivisionError:
            raise ConfigError(f"cost {self.text!r}: divides by 0 on {profile.variant}") from None
        except FloatingPointError as error:
            raise ConfigError(f"cost {self.text!r}: {error} on {profile.variant}") from None
        except OverflowError:
            cost = inf
        if not isfinite(cost):
            raise ConfigError(
                f"cost {self.text!r}: is {cost} on {profile.variant}; it must be a finite number"
            )
        return cost

    def _tree(self) -> ast.expr:
        if "**" in self.text:
            raise ConfigError(f"cost {self.text!r}: '**' is not allowed; expected {FORM}")
        try:
            return ast.parse(self.text.strip().replace("^", "**"), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise ConfigError(f"cost {self.text!r}: expected {FORM}") from None

    def _value(self, node: ast.expr, profile: Profile, results: Mapping[str, float]) -> Any:
        # By hand and not by eval: a formula may come in a file of somebody else's.
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATIONS:
            sides = self._value(node.left, profile, results), self._value(node.right, profile, results)
            return OPERATIONS[type(node.op)](*sides)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -self._value(node.operand, profile, results)
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            return node.value
        if isinstance(node, ast.Attribute | ast.Name):
            path = ast.unparse(node)
            return results[path] if path in results else self._figure(path, profile)
        if isinstance(node, ast.Call) and not node.keywords and isinstance(node.func, ast.Name):
            values = [self._value(each, profile, results) for each in node.args]
            if node.func.id in FUNCTIONS and len(values) == 1 + (node.func.id != "sqrt"):
                return FUNCTIONS[node.func.id](*values)
        raise ConfigError(f"cost {self.text!r}: {ast.unparse(node)!r} is not allowed; expected {FORM}")

    def _figure(self, path: str, profile: Profile) -> float:
        figure = profile.figures.get(path)
        if figure is None:
            near = hint(path, tuple(profile.figures))
            more = near if "did you mean" in near else f"; `ascendsim profiles {profile.variant}` lists them"
            raise ConfigError(f"cost {self.text!r}: no figure {path} of {profile.variant}{more}")
        if isinstance(figure.value, bool | str | list | tuple):
            raise ConfigError(
                f"cost {self.text!r}: {path} of {profile.variant} is {figure.value!r}, no number"
            )
        return float(figure.value)


def ranged_figures(profile: Profile) -> dict[str, Figure]:
    """Return the figures with a range that could move cycles, by path, whatever their confidence.

    A figure that is a text, such as an accumulation model, moves bits and no cycles.
    """
    return {
        path: figure
        for path, figure in profile.figures.items()
        if figure.range is not None and not isinstance(figure.value, str) and not path.startswith("energy.")
    }


def by_source(profile: Profile) -> tuple[dict[str, Figure], ...]:
    """Return the figures with a range, by path, those together that are one number of one source.

    Two are one where they are the same quantity (the last word of their paths) with the same value and range,
    and either have the same text as source, or one's source is "as" the place of the other. "as on the 910B"
    names a figure of another product, for each its own: these stay apart.
    """
    found: dict[Any, dict[str, Figure]] = {}
    for path, figure in ranged_figures(profile).items():
        number = _origin(path, profile.figures), repr(figure.value), repr(figure.range)
        found.setdefault(number, {})[path] = figure
    return tuple(found.values())


def _origin(path: str, figures: Mapping[str, Figure]) -> str:
    """Return a text that all figures of one source have in common."""
    quantity = path.rpartition(".")[2]
    seen = {path}
    while (source := figures[path].source).startswith("as "):
        place = source.removeprefix("as ")
        named = [p for p in (f"paths.{place}.{quantity}", f"{place}.{quantity}") if p in figures]
        if not named or named[0] in seen:
            return path
        path = named[0]
        seen.add(path)
    return f"{quantity}: {source}"
