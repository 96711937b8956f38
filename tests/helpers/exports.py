"""What is exported: what the package names as public, a document shows, or the command takes."""

import ast
import importlib
import json
from pathlib import Path

import ascendsim

ROOT = Path(ascendsim.__file__).parent
PAGES = ROOT.parent
# Rooms without `__all__` whose functions are called by name from outside: all of them are drawn, those of
# compiled kernels apart, which take memory laid out as they need it.
OPEN = ("numerics", "ops/reference")
KERNELS = "numerics/compiled"
ENTRY = "ascendsim.numerics.compiled.accumulate"
# Rooms that the command and the reports call.
CALLED, CALLERS = ("ascendsim.studies.", "ascendsim.validate."), ("cli", "report")


def name_of(value):
    """Name a callable by where it is defined, so that it has one name from wherever it is imported."""
    return f"{value.__module__}.{value.__qualname__}".removeprefix("ascendsim.")


def exported():
    """Return everything callable that is exported, by name."""
    found = {}
    for module, name in {*_listed(), *_shown(), *_open(), *_taken()}:
        value = getattr(importlib.import_module(module), name, None)  # none: a name for type checkers
        if callable(value) and str(getattr(value, "__module__", "")).startswith("ascendsim."):
            found[name_of(value)] = value
    return found


def shown():
    """Return the names of what documents and examples import from the package."""
    values = (getattr(importlib.import_module(module), name) for module, name in _shown())
    return {name_of(value) for value in values if callable(value)}


def _module_of(path):
    parts = ("ascendsim", *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _listed():
    for path in ROOT.rglob("*.py"):
        if "__all__ = [" in path.read_text():
            module = importlib.import_module(_module_of(path))
            yield from ((module.__name__, name) for name in module.__all__)


def _shown():
    pages = [PAGES / "README.md", *(PAGES / "docs").rglob("*.md"), *(PAGES / "examples").glob("*.py")]
    texts = [path.read_text() for path in pages]
    for path in (PAGES / "examples").glob("*.ipynb"):
        texts += ["".join(cell["source"]) for cell in json.loads(path.read_text())["cells"]]
    for text in texts:
        yield from _imports(text)


def _imports(text):
    """Yield module and name of each import of ours in a text, in which code may be quoted or prompted."""
    lines = iter(line.strip().removeprefix(">>> ") for line in text.splitlines())
    for line in lines:
        if line.startswith("from ascendsim"):
            while "(" in line and ")" not in line:
                line += next(lines)
            node = ast.parse(line.split("#")[0].strip()).body[0]
            yield from ((node.module, alias.name) for alias in node.names)


def _open():
    for room in OPEN:
        for path in (ROOT / room).rglob("*.py"):
            module = _module_of(path)
            if path.is_relative_to(ROOT / KERNELS) and module != ENTRY:
                continue
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                    yield module, node.name


def _taken():
    for room in CALLERS:
        for path in (ROOT / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith(CALLED):
                    yield from ((node.module, alias.name) for alias in node.names)
