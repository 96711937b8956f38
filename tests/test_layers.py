"""Do imports point one way, and stay heavy libraries where they belong?"""

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import ascendsim

ROOT = Path(ascendsim.__file__).parent

# What each part may import of ours when it loads; imports for type checkers only are judged by nobody. A part
# that is not listed fails, so that its place is a decision.
MACHINE = {"errors", "numerics", "program", "builder"}
MAY_IMPORT = {
    "": set(),
    "errors": set(),
    "numerics": {"errors"},
    "profile": {"errors"},
    "rules": {"errors"},
    "workloads": {"errors"},
    "pieces": set(),
    "program": {"pieces"},
    "kernel": set(),
    "builder": {"errors", "pieces", "program"},
    "timeline": {"kernel", "program"},
    "critical_path": {"kernel", "program", "timeline"},
    "cube": MACHINE,
    "vector": MACHINE,
    "functional": MACHINE | {"kernel", "timeline"},
    "costing": {"errors", "pieces", "program"},
    "l2_stack": {"program"},
    "l2_walk": {"program", "costing", "l2_stack"},
    "l2": {"errors", "kernel", "program", "costing", "l2_stack", "l2_walk"},
    "links": set(),
    "transfers": {"program", "costing", "l2_walk", "links"},
    "timing": {"errors", "kernel", "timeline", "costing", "links", "l2", "l2_walk", "transfers"},
    "ops": MACHINE | {"cube", "vector", "kernel", "profile", "rules", "timeline", "timing"},
    "validate": MACHINE | {"cube", "vector", "kernel", "profile", "timeline", "timing", "ops"},
    "aclnn": {"errors", "rules"},
    "report": {"", "errors", "kernel", "profile", "program", "timeline", "critical_path", "ops", "validate"},
    "cli": {"", "errors", "numerics", "profile", "rules", "ops", "workloads", "report"},
    "__main__": {"cli"},
}
# What it may import besides, inside functions that need it.
LATER = {
    "ops": {"functional"},
    "aclnn": {"numerics", "ops", "profile"},
    "cli": {"aclnn", "validate"},
}
# Libraries with one home.
HOMES = {
    "simpy": {"timing"},
    "ml_dtypes": {"numerics"},
    "numba": {"numerics"},
    "llvmlite": {"numerics"},
    "matplotlib": {"report"},
    "rich": {"report", "cli"},
    "pydantic": set(),
    "pydantic_core": {"profile", "rules"},
    "tomllib": {"profile", "rules", "workloads"},
}


def part(path):
    """Name the part of the package that a file belongs to: its folder, or its own name at the top."""
    relative = path.relative_to(ROOT)
    return relative.parts[0].removesuffix(".py").replace("__init__", "")


def is_type_checking(node):
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def imports(path, *, at_load):
    """Yield the dotted names that a file imports: all of them, or only those it needs to load."""
    return imports_of(path.read_text(), at_load=at_load)


def imports_of(source, *, at_load):
    """Yield the dotted names that a piece of source imports."""
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
        elif is_type_checking(node):
            queue.extend(node.orelse)
        else:
            queue.extend(ast.iter_child_nodes(node))


def ours(path, *, at_load):
    """Return the parts of the package that a file imports."""
    parts = set()
    for name in imports(path, at_load=at_load):
        top, _, rest = name.partition(".")
        if top == "ascendsim":
            second = rest.partition(".")[0]
            known = (ROOT / second).is_dir() or (ROOT / f"{second}.py").is_file()
            parts.add(second if known else "")
    return parts


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
    assert set(imports_of(source, at_load=False)) == {"one", "two.name", "four", "five.name"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_one_way(path):
    here = part(path)
    assert here in MAY_IMPORT, f"give {here} a place in the layers"
    allowed = MAY_IMPORT[here] | {here}
    assert ours(path, at_load=True) <= allowed
    assert ours(path, at_load=False) <= allowed | LATER.get(here, set())


def test_every_part_that_is_listed_exists():
    assert set(MAY_IMPORT) == {part(path) for path in FILES}


def test_the_list_itself_has_no_circle():
    order = TopologicalSorter({here: below | LATER.get(here, set()) for here, below in MAY_IMPORT.items()})
    assert list(order.static_order())[-1] == "__main__"


@pytest.mark.parametrize("library", HOMES)
def test_a_library_has_one_home(library):
    users = {
        part(path) for path in FILES for name in imports(path, at_load=False) if name.split(".")[0] == library
    }
    assert users <= HOMES[library]


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
            names = [node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)]
            assert "configs" not in names, path
            assert (climbs(source) or 0) <= 0, path
            assert not any("configs_directory" in name for name in imports_of(source, at_load=False)), path
            assert "files('ascendsim')" not in ast.unparse(ast.parse(source)), path


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
