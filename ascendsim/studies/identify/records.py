"""Findings about a device's accumulation model: frozen records of plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Evidence:
    """The candidates that one question alone leaves.

    route, question   which call, and what its sums ask (`vectors`)
    sums              how many were compared
    left              candidates that agree with all of them under some cut of the reduction
    """

    route: str
    question: str
    sums: int
    left: int


@dataclass(frozen=True, slots=True)
class Agreeing:
    """A candidate that agrees with every answer, and the least that must be assumed of the kernels for it.

    mmad    route -> products in each Mmad, the largest number under which it agrees
    parts   route -> parts of the reduction that are added in float32
    """

    model: str
    mmad: Mapping[str, int]
    parts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Near:
    """A candidate and the share of all sums in which it agrees, under its best cut."""

    model: str
    share: float


@dataclass(frozen=True, slots=True)
class Identification:
    """The findings from the answers in one format.

    format      of the operands
    routes      calls that were answered
    candidates  models that were asked about
    readings    route -> how the cube reads float32 where HF32 is allowed: width and ties; else empty
    left        candidates that agree with every answer, those first that assume nothing of the kernels; more
                than one: a class that these sums cannot split
    nearest     candidates by the share of sums in which they agree, for when none is left
    evidence    what each question leaves
    classes     those that are left, in classes: random sums in float32, of operands in this format and in
                one Mmad, separate the classes; nothing that was tried separates members of a class
    """

    format: str
    routes: tuple[str, ...]
    candidates: int
    readings: Mapping[str, str]
    left: tuple[Agreeing, ...]
    nearest: tuple[Near, ...]
    evidence: tuple[Evidence, ...]
    classes: tuple[tuple[str, ...], ...]
