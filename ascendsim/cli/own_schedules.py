"""Schedules of the user's own on the command line: FILE.py:CLASS."""

from __future__ import annotations

import importlib.util
import sys
from functools import lru_cache
from pathlib import Path
from types import ModuleType

from ascendsim.errors import ConfigError, DataError, did_you_mean


def schedules_of(words: list[str] | None) -> list[str | type] | None:
    """Return what the words after --schedule mean: names as they are, and the classes of files.

    Raises   DataError for a file that cannot be read, ConfigError for one that fails or has no such class
    """
    # Words travel between processes, classes of a file do not: so they are looked up where they are used.
    return None if words is None else [_schedule(word) for word in words]


def _schedule(word: str) -> str | type:
    file, _, name = word.rpartition(":")
    if not file.endswith(".py"):
        return word
    from ascendsim.ops.schedules import Schedule

    module = _module(Path(file).resolve(), file)
    found: dict[str, type] = {
        key: value
        for key, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Schedule) and value.__module__ == module.__name__
    }
    if name in found:
        return found[name]
    hint = did_you_mean(name, found, f"there is {', '.join(found) or 'none'}")
    raise ConfigError(f"{file}: has no schedule {name!r}, a class derived from ascendsim.Schedule; {hint}")


# A file is run once, however many layers and products follow its class.
@lru_cache(maxsize=8)
def _module(path: Path, shown: str) -> ModuleType:
    """Return a file as a module."""
    if not path.is_file():
        raise DataError(f"{shown}: is no file; --schedule takes a name, or FILE.py:CLASS")
    name = f"own_schedule_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None, path
    assert spec.loader is not None, path
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ConfigError(f"{shown}: cannot be run: {type(error).__name__}: {error}") from error
    return module
