"""Do imports point one way, and stay heavy libraries where they belong?"""

import ast
import platform
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import ascendsim
from ascendsim.native.process import AWAITED

ROOT = Path(ascendsim.__file__).parent

# What each room may import of ours, type-only imports included. A room is a folder or a file at the top; in
# `ops` one storey lower. A room that is not listed fails, so that its place is a decision.
MACHINE = {"errors", "numerics", "profile", "program"}
LOOPS = MACHINE | {"instructions", "frozen", "ops/plan", "ops/problems"}
CALL = LOOPS | {
    "native",
    "ops/lowering",
    "ops/operands",
    "ops/options",
    "ops/results",
    "ops/running",
    "rules",
}
MAY_IMPORT = {
    "": {
        "errors",
        "rules",
        "ops/checks",
        "ops/convolution_backward",
        "ops/layers",
        "ops/matmul",
        "profile",
    }
    | {"ops/many", "ops/plan", "ops/problems", "ops/schedules", "ops/tiling"},
    "errors": set(),
    "files": {"errors"},
    "frozen": set(),
    "progress": set(),
    "parallel": {"errors"},
    "native": {"errors", "frozen"},
    "numerics": {"errors", "native"},
    "profile": {"errors", "files", "frozen", "native"},
    "rules": {"errors", "files", "frozen", "profile"},
    "workloads": {"errors", "files"},
    "program": {"errors", "frozen", "native", "numerics", "profile"},
    "instructions": MACHINE | {"native"},
    "functional": MACHINE | {"native"},
    "pto": MACHINE | {"instructions", "ops/lowering"},
    "timing": {"errors", "frozen", "native", "profile", "program"},
    "ops": set(),
    "ops/plan": {"errors", "profile"},
    "ops/problems": MACHINE | {"frozen", "instructions"},
    "ops/schedules": LOOPS,
    "ops/tiling": LOOPS | {"files", "native", "ops/schedules", "timing"},
    "ops/lowering": LOOPS | {"ops/operands", "ops/schedules"},
    "ops/operands": {"errors", "numerics", "rules", "ops/problems"},
    "ops/results": {"errors", "native", "ops/plan", "program", "timing"},
    "ops/traffic": MACHINE | {"instructions", "native", "timing", "ops/results"},
    "ops/options": LOOPS | {"rules", "timing", "ops/lowering", "ops/operands", "ops/tiling"},
    "ops/graph_times": {
        "errors",
        "frozen",
        "profile",
        "program",
        "timing",
        "ops/lowering",
        "ops/plan",
        "ops/results",
    },
    "ops/running": LOOPS
    | {
        "functional",
        "native",
        "rules",
        "timing",
        "ops/gradients",
        "ops/lowering",
        "ops/operands",
        "ops/schedules",
    }
    | {"ops/graph_times", "ops/options", "ops/results"},
    "ops/reference": LOOPS | {"native", "ops/lowering", "ops/schedules"},
    "ops/gradients": LOOPS | {"ops/lowering", "ops/operands", "ops/reference", "ops/schedules"},
    "ops/convolution_backward": CALL,
    "ops/checks": CALL | {"ops/reference", "ops/schedules", "timing"},
    "ops/layers": CALL | {"ops/convolution_backward", "ops/matmul", "ops/tiling", "timing"},
    "ops/many": CALL | {"parallel", "progress", "timing", "ops/graph_times", "ops/layers"},
    "ops/matmul": CALL | {"ops/schedules", "timing"},
    "precision": {"errors", "native", "numerics", "studies"},
    "studies": {"errors", "native", "numerics", "parallel", "profile", "rules", "timing"}
    | {"ops/convolution_backward", "ops/many", "ops/lowering", "ops/matmul", "ops/plan", "ops/problems"}
    | {"files", "frozen", "ops/layers", "ops/reference", "ops/results", "ops/schedules", "ops/tiling"}
    | {"ops/traffic"},
    "validate": LOOPS
    | {
        "files",
        "native",
        "parallel",
        "timing",
        "ops/convolution_backward",
        "ops/matmul",
        "ops/results",
        "ops/tiling",
    },
    "torch": {
        "errors",
        "files",
        "frozen",
        "numerics",
        "profile",
        "rules",
        "studies",
        "workloads",
    }
    | {"native", "ops/convolution_backward", "ops/layers", "ops/matmul", "ops/lowering"}
    | {"ops/operands", "ops/options", "ops/problems", "ops/results"},
    "aclnn": CALL | {"ops/tiling", "ops/convolution_backward"},
    "report": MACHINE | {"", "files", "native", "timing", "studies", "validate", "ops/plan", "ops/results"},
    "cli": {"", "aclnn", "errors", "numerics", "profile", "rules", "ops/problems", "workloads", "report"}
    | {
        "files",
        "native",
        "ops/options",
        "ops/plan",
        "ops/schedules",
        "ops/tiling",
        "parallel",
        "progress",
        "studies",
        "validate",
    },
    "__main__": {"cli"},
}
# Libraries with one home.
HOMES = {
    "simpy": {"timing"},
    "ml_dtypes": {"numerics"},
    "numba": {"native", "numerics"},
    "llvmlite": {"native", "numerics"},
    "matplotlib": {"report"},
    "rich": {"report", "progress"},
    "torch": {"torch"},
    "onnx": {"workloads"},
    "sqlite3": {"studies"},
    "distributed": {"studies"},
    "optuna": {"studies"},
    "pyarrow": {"studies"},
    "scipy": {"validate"},
    "jinja2": {"report"},
    "shtab": {"cli"},
    "pydantic": set(),
    "pydantic_core": set(),
    "tomllib": {"files"},
    "csv": {"files", "validate"},
}


def part(path):
    """Name the room that a file belongs to."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    depth = 2 if parts[0] == "ops" and parts[1:] != ("__init__",) else 1
    return "/".join(parts[:depth]).replace("__init__", "")


def is_type_checking(node):
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def imports(path, *, at_load=False):
    """Yield the dotted names that a file imports: all of them, or only those it needs to load."""
    return imports_of(path.read_text(), at_load=at_load)


@cache
def imports_of(source, *, at_load=False):
    """Return the dotted names that a piece of source imports, for type checkers only as well."""
    return tuple(imported(source, at_load=at_load))


def imported(source, *, at_load):
    queue = list(ast.parse(source).body)
    while queue:
        node = queue.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif at_load and (is_type_checking(node) or isinstance(node, ast.FunctionDef)):
            continue
        else:
            queue.extend(ast.iter_child_nodes(node))


def file_of(name):
    """Return the file of the package that a dotted name lives in; None if it is not ours."""
    words = name.split(".")
    if words[0] != ROOT.name:
        return None
    for count in range(len(words), 0, -1):
        place = ROOT.joinpath(*words[1:count])
        if place.with_suffix(".py").is_file() and count > 1:
            return place.with_suffix(".py")
        if (place / "__init__.py").is_file():
            return place / "__init__.py"
    return None


def ours(path):
    """Return the files of the package that a file imports."""
    return {file for name in imports(path) if (file := file_of(name)) is not None} - {path}


FILES = sorted(path for path in ROOT.rglob("*.py") if "configs" not in path.parts)


def test_the_reader_of_imports_sees_all_kinds():
    source = """
import one
from two import name
if TYPE_CHECKING:
    from three import name
class Kind:
    import four
    def method(self):
        try:
            from five import name
        except ImportError:
            pass
"""
    assert set(imports_of(source, at_load=True)) == {"one", "two.name", "four"}
    assert set(imports_of(source)) == {"one", "two.name", "three.name", "four", "five.name"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_one_way(path):
    here = part(path)
    assert here in MAY_IMPORT, f"give {here} a place in the layers"
    assert {part(file) for file in ours(path)} <= MAY_IMPORT[here] | {here}


# What the report may read of the rooms that run something: the modules that only hold records. `validate` has
# records, statistics and the comparison in the same modules still, and stands apart.
RECORDS = {
    "__init__.py",
    "ops/plan.py",
    "ops/results.py",
    "program/instruction.py",
    "program/kernel.py",
    "program/places.py",
    "studies/accounts.py",
    "studies/devices_records.py",
    "studies/hardware/records.py",
    "studies/identify/records.py",
    "studies/modes/choice.py",
    "studies/modes/records.py",
    "studies/records.py",
    "studies/table.py",
    "studies/tuning/records.py",
    "studies/verdicts.py",
    "timing/critical_path.py",
    "timing/l2/__init__.py",
    "timing/timeline.py",
    "timing/times.py",
}
LEAVES = {"errors", "files", "native", "numerics", "profile", "report", "validate"}
EXECUTORS = {"functional.py", "ops/graph_times.py", "ops/running.py", "timing/kernel.py"}


def reached_from(path):
    """Return the files of the package that a file needs, directly or not; the package's own names apart."""
    found, queue = set(), [path]
    while queue:
        new = ours(queue.pop()) - found - {ROOT / "__init__.py"}
        found |= new
        queue.extend(new)
    return found


@pytest.mark.parametrize(
    "path", [path for path in FILES if part(path) == "report"], ids=lambda path: path.stem
)
def test_the_report_runs_nothing(path):
    read = {str(file.relative_to(ROOT)) for file in ours(path) if part(file) not in LEAVES}
    assert read <= RECORDS
    assert {name for name in imports(path) if file_of(name) == ROOT / "__init__.py"} <= {
        "ascendsim.__version__"
    }
    if not any(part(file) == "validate" for file in reached_from(path)):
        assert not {str(file.relative_to(ROOT)) for file in reached_from(path)} & EXECUTORS


def test_the_reader_of_what_is_reached_sees_the_executors():
    reached = {str(file.relative_to(ROOT)) for file in reached_from(ROOT / "ops/convolution_backward.py")}
    assert reached >= EXECUTORS


def test_every_room_that_is_listed_exists():
    assert set(MAY_IMPORT) == {part(path) for path in FILES}


def test_the_rooms_have_an_order():
    assert list(TopologicalSorter(MAY_IMPORT).static_order())[-1] == "__main__"


def test_no_file_imports_itself_in_a_circle():
    # Raises CycleError with the files of a circle, if there is one.
    assert list(TopologicalSorter({path: ours(path) for path in FILES}).static_order())


def test_a_newcomer_takes_in_the_house_at_a_glance():
    # What stands at the top, and what stands in one folder; numerics and rules keep what belongs together.
    # The doors of two other worlds, aclnn and torch, stand beside `ops`, and precision over it.
    top = {path.relative_to(ROOT).parts[0] for path in FILES}
    assert len(top) <= 26, sorted(top)
    folders = Counter(path.parent for path in FILES)
    assert {folder.name: count for folder, count in folders.items() if count > 20} == {}


@pytest.mark.parametrize("library", HOMES)
def test_a_library_has_one_home(library):
    users = {part(path) for path in FILES for name in imports(path) if name.split(".")[0] == library}
    assert users <= HOMES[library]


def test_attributes_that_are_worked_out_once_take_no_lock():
    # That of functools, one for all objects, is held for ever in a child forked while a thread has it.
    assert not [path for path in FILES if {"functools", "functools.cached_property"} & set(imports(path))]


def test_forks_wait_for_all_that_is_imported_by_whoever_computes():
    # The package's own file names all doors, for type checkers.
    files = reached_from(ROOT / "__init__.py")
    later = {name for path in files for name in Counter(imports(path)) - Counter(imports(path, at_load=True))}
    # Type checkers alone import from `collections` later.
    assert {name.split(".")[0] for name in later} - {"collections"} == AWAITED


def test_only_the_store_knows_sqlite():
    users = [path for path in FILES for name in imports(path) if name.split(".")[0] == "sqlite3"]
    assert {str(path.relative_to(ROOT)) for path in users} == {"studies/engine/run.py"}


def climbs(source):
    """Return how many folders above its own a piece of source reaches from `__file__`; None without it."""
    if "__file__" not in source:
        return None
    chains = [
        ast.unparse(node)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute | ast.Subscript) and "__file__" in ast.unparse(node)
    ]
    if any("parents" in chain for chain in chains):
        return 99  # an index of its own; no file needs that
    return max((chain.count(".parent") for chain in chains), default=0) - 1


@pytest.mark.parametrize(
    ("source", "height"),
    [
        ("import json", None),
        ("OWN = Path(__file__).parent", 0),
        ("TOP = Path(__file__).resolve().parent.parent / 'con' 'figs'", 1),
        ("TOP = Path(__file__).parents[1]", 99),
    ],
)
def test_the_reader_of_paths_sees_how_far_they_climb(source, height):
    assert climbs(source) == height


def test_only_the_profile_and_rules_open_configs():
    # The product files lie above the package or at its top, so that others would have to name the folder, to
    # climb from their own, or to ask the profile for it.
    for path in FILES:
        if part(path) not in ("profile", "rules"):
            source = path.read_text()
            tree = ast.parse(source)
            names = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
            assert "configs" not in names, path
            assert (climbs(source) or 0) <= 0, path
            assert not any("configs_directory" in name for name in imports_of(source)), path
            assert "files('ascendsim')" not in ast.unparse(tree), path


def modules_after(code):
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return {name.split(".")[0] for name in done.stdout.split()}


def test_importing_the_package_loads_nothing_else():
    assert not modules_after("import ascendsim") & {"numpy", "pydantic", "simpy", *HOMES}


def test_importing_the_doors_loads_no_engine_and_no_compiler():
    doors = "from ascendsim import ConvProblem, MatmulProblem, convolution_backward, estimate, matmul"
    assert not modules_after(doors) & {"simpy", "ml_dtypes", "numba", "llvmlite", "matplotlib", "rich"}


def test_an_estimate_needs_no_compiler_and_no_plots():
    calls = """
from ascendsim import ConvProblem, MatmulProblem, estimate, estimate_matmul
assert estimate(ConvProblem(input=(1, 16, 8, 8), weight=(16, 16, 3, 3), padding=1), product="910B2").cycles
assert estimate_matmul(MatmulProblem(64, 64, 64), product="910B2").cycles
"""
    heavy = {"ml_dtypes", "numba", "matplotlib", "rich", "pydantic"}
    if (sys.platform, platform.machine()) == ("linux", "x86_64"):  # elsewhere it loads the code
        heavy.add("llvmlite")
    modules_after(calls)  # compiles what is in no cache yet
    assert not modules_after(calls) & heavy


# One storey lower, inside numerics: what each folder and file may import of the others there, and which
# heavy library is its own.
NUMERICS = {
    "dtypes": set(),
    "format_rounding": {"dtypes"},
    "hifloat8": {"dtypes", "format_rounding"},
    "accumulation": {"dtypes"},
    "accumulation_twins": {"dtypes", "accumulation"},
    "factor": {"accumulation"},
    "compiled": {"accumulation", "factor"},
    "casts": {"dtypes", "format_rounding", "hifloat8", "factor", "compiled"},
    "metric_chunks": {"dtypes", "format_rounding", "hifloat8", "casts"},
    "metrics": {"dtypes", "format_rounding", "hifloat8", "casts", "metric_chunks", "compiled"},
}
NUMERICS_HOMES = {"ml_dtypes": "dtypes", "numba": "compiled", "llvmlite": "compiled"}


def numerics_part(path):
    """Name the folder or file of numerics that a file belongs to; the package's own init has no name."""
    return path.relative_to(ROOT / "numerics").with_suffix("").parts[0].replace("__init__", "")


@pytest.mark.parametrize(
    "path",
    [path for path in FILES if part(path) == "numerics" and numerics_part(path)],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_numerics_points_from_kernels_to_definitions_to_formats(path):
    here = numerics_part(path)
    others = {numerics_part(file) for file in ours(path) if part(file) == "numerics"}
    assert others <= NUMERICS[here] | {here, ""}
    heavy = {name.split(".")[0] for name in imports(path)} & set(NUMERICS_HOMES)
    assert {NUMERICS_HOMES[name] for name in heavy} <= {here}


def test_the_map_of_the_compiled_models_names_every_module_in_order():
    # Its docstring promises: each module imports only from lines above its own.
    folder = ROOT / "numerics" / "compiled"
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))
    named = re.findall(r"^ {4}(\w+) {2,}\w", text, re.M)
    order = [folder / f"{name}.py" for name in named]
    assert sorted(order) == sorted(set(folder.glob("*.py")) - {folder / "__init__.py"})
    for index, path in enumerate(order):
        assert {file for file in ours(path) if file.parent == folder} <= set(order[:index])
