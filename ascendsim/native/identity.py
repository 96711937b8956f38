"""What machine code depends on besides its sources: this processor, and the packages that generate code."""

from __future__ import annotations

import os
import platform
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final

# What the system says of a processor, without what changes from core to core or from hour to hour.
_SAID: Final = {
    *("vendor_id", "cpu family", "model", "model name", "stepping", "flags"),
    *("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision", "Features"),
}
_PROCESSORS: Final = "/proc/cpuinfo"
# numba's own variables: who narrows the processor for numba's code means this code too.
_VARIABLES: Final = ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES")


def identity() -> str:
    """Name everything about this processor and its code generator that machine code depends on."""
    # A variable that is empty is not one that is missing: no features, or all that the processor has.
    told = [repr(os.environ.get(name)) for name in _VARIABLES]
    versions = [_version(package) for package in ("llvmlite", "numba")]
    return " ".join([platform.machine(), _processor(), _commands(), *told, *versions])


@cache
def _processor() -> str:
    """Return what the system says of the processor; where it says nothing, what the code generator finds."""
    said = said_of_processor(_read(_PROCESSORS))
    if said:
        return said
    from ascendsim.native.processor import name_and_features

    return name_and_features()


def said_of_processor(text: str) -> str:
    """Return the lines of the system's list of processors that describe the first of them, if any do."""
    first, _, _ = text.partition("\n\n")
    lines = [line.partition(":") for line in first.splitlines()]
    kept = [f"{name.strip()}: {value.strip()}" for name, _, value in lines if name.strip() in _SAID]
    # The commands that it has are what counts; without them the rest says too little.
    has_commands = any(line.startswith(("flags: ", "Features: ")) for line in kept)
    return "\n".join(kept) if has_commands else ""


def _read(path: str) -> str:
    """Return the beginning of a file, up to 16 KiB; nothing if there is none."""
    # A part, as the whole list of a machine with hundreds of cores takes milliseconds.
    try:
        with Path(path).open("rb", buffering=0) as file:
            return file.read(1 << 14).decode(errors="replace")
    except OSError:
        return ""


@cache
def _commands() -> str:
    """Return what numpy has found that the processor can do as this process sees it.

    An emulator, such as valgrind, may do less than the system says of the processor.
    """
    try:
        features: dict[str, bool] = import_module("numpy._core._multiarray_umath").__cpu_features__
    except (ImportError, AttributeError):  # numpy promises neither the module nor the name
        return ""
    return " ".join(sorted(name for name, there in features.items() if there))


@cache
def _version(package: str) -> str:
    """Return what a package says of its version, without importing it if it has a file for that."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        return ""
    own = _read(str(Path(spec.origin).with_name("_version.py")))
    return own or str(import_module(package).__version__)
