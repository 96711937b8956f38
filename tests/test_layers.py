"""Do imports point one way, and stay heavy libraries where they belong?"""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import ascendsim

ROOT = Path(ascendsim.__file__).parent

# What each part may import of ours when it loads. Imports inside functions are judged by `NEVER` below, those
# for type checkers only by nobody. A part that is not listed fails, so that its place is a decision.
MACHINE = {"errors", "numerics", "program", "cube", "vector"}
MAY_IMPORT = {
    "": set(),
    "errors": set(),
    "numerics": {"errors"},
    "profile": {"errors", "numerics"},
    "rules": {"errors", "numerics"},
    "workloads": {"errors"},
    "program": {"errors"},
    "timeline": {"program"},
    "critical_path": {"program", "timeline"},
    "cube": MACHINE - {"vector"},
    "vector": MACHINE - {"cube"},
    "functional": {"errors", "numerics", "program", "timeline"},
    "costing": {"errors", "program"},
    "l2_stack": {"program"},
    "l2_walk": {"program", "costing", "l2_stack"},
    "l2": {"errors", "program", "costing", "l2_stack", "l2_walk"},
    "links": set(),
    "transfers": {"program", "costing", "l2_walk", "links"},
    "timing": {"errors", "program", "timeline", "costing", "links", "l2", "l2_walk", "transfers"},
    "ops": MACHINE | {"profile", "rules", "timeline", "functional", "timing"},
    "validate": MACHINE | {"profile", "timeline", "timing", "ops"},
    "report": {"", "errors", "numerics", "profile", "program", "timeline", "ops", "workloads"},
    "aclnn": {"errors", "rules"},
    "cli": {"", "errors", "numerics", "profile", "rules", "ops", "workloads", "report"},
    "__main__": {"cli"},
}
# What each part may not import in any way, not even inside a function.
EXECUTORS = {"functional", "timing"}
ABOVE = {"ops", "aclnn", "workloads", "report", "studies", "cli"}
NEVER = {
    "numerics": ABOVE | EXECUTORS | {"program", "profile", "cube", "vector", "timeline"},
    "program": ABOVE | EXECUTORS,
    "cube": ABOVE | EXECUTORS,
    "vector": ABOVE | EXECUTORS,
    "functional": ABOVE | {"timing"},
    "timing": ABOVE | {"functional"},
    "ops": {"aclnn", "workloads", "report", "studies", "cli"},
    "report": {"cli", "studies"},
}
# Libraries with one home.
HOMES = {
    "simpy": {"timing"},
    "ml_dtypes": {"numerics"},
    "numba": {"numerics"},
    "llvmlite": {"numerics"},
    "matplotlib": {"report"},
    "rich": {"report", "cli"},
    "pydantic": {"profile", "rules"},
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
    assert ours(path, at_load=True) <= MAY_IMPORT[here] | {here}
    assert not ours(path, at_load=False) & NEVER.get(here, set())


@pytest.mark.parametrize("library", HOMES)
def test_a_library_has_one_home(library):
    users = {
        part(path) for path in FILES for name in imports(path, at_load=False) if name.split(".")[0] == library
    }
    assert users <= HOMES[library]


def test_only_the_profile_and_rules_open_configs():
    mention = {
        part(path)
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and node.value == "configs"
    }
    assert mention <= {"profile", "rules"}


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
