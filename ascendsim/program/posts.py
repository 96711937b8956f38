"""Posts: on which core of a program an instruction runs, and what it hands over to the other cores.

A program is that of a cube core, or of a vector core alone. The program of a cube core may cover the vector
cores beside it: core 0 is the cube core, 1 and 2 are its vector cores. A pipe goes by its own name on core 0,
and as "AIV0.MTE2" or "AIV1.V" on the others.
"""

from __future__ import annotations

from typing import NamedTuple

from ascendsim.program.places import Slot


class Post(NamedTuple):
    """The core that an instruction runs on, and the slots in GM that it reads and writes for a hand-over."""

    core: int = 0
    reads: tuple[Slot, ...] = ()
    writes: tuple[Slot, ...] = ()


# Vector cores beside a cube core, of the generations that have them apart.
VECTOR_CORES = 2
# Of an instruction of which nothing is said.
HOME = Post()


def pipe_on(core: int, pipe: str) -> str:
    """Return the name of a pipe of one core of a program."""
    return f"AIV{core - 1}.{pipe}" if core else pipe


def core_of(name: str) -> int:
    """Return the number of the core that a pipe belongs to."""
    return int(name[3 : name.index(".")]) + 1 if "." in name else 0


def bare(name: str) -> str:
    """Return the name that a pipe has on its own core."""
    return name.rpartition(".")[2]


def seen_from(core: int, name: str) -> str:
    """Return what one core calls a pipe: its own by their bare names, the cube core's "AIC.FIX"."""
    other = core_of(name)
    if other == core:
        return bare(name)
    return name if other else f"AIC.{name}"
