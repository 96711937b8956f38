"""Kernels as data: which core runs which program, phase after phase, and the teams of equal cores.

Inside a phase each core runs its own program (`program.py`), or a cube core shares one with the vector cores
beside it, and all cores finish one phase before the next. Cores with equal signatures
promise equal costs, and make a team.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from ascendsim.errors import ProgramError
from ascendsim.program.instruction import Command
from ascendsim.program.places import VECTOR_CORES, GmTensor
from ascendsim.program.program import Program
from ascendsim.program.races import first_race

if TYPE_CHECKING:
    from ascendsim.numerics.accumulation import MathSettings
    from ascendsim.profile import Profile
    from ascendsim.program.places import CoreMemory


class Core(NamedTuple):
    """One core of the chip: `kind` is "cube" (also a unified core) or "vector"."""

    kind: str
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here

    def beside(self, number: int) -> Core:
        """Return a core of a program that runs here: this one, or number 1 or 2 of its vector cores."""
        return Core("vector", VECTOR_CORES * self.index + number - 1) if number else self


class CoreWork(NamedTuple):
    """The work of one core in a phase.

    `build` makes the program when an executor asks for it, so that a large kernel need not hold all of them
    at once. Equal `signature`s promise programs that cost the same (same pipes, shapes and waits, other
    data); the timing executor may then run one of them for all. `beside` is how many of the vector cores
    beside a cube core its program covers.
    """

    core: Core
    signature: Hashable
    build: Callable[[], Program]
    beside: int = 0

    @property
    def cores(self) -> tuple[Core, ...]:
        """All cores that the program covers, its own first."""
        if not self.beside:
            return (self.core,)
        return tuple([self.core.beside(number) for number in range(1 + self.beside)])


class Deferred(Sequence[CoreWork]):
    """Work that is worked out when somebody looks at it: a large kernel is described faster than planned."""

    __slots__ = ("_made", "_make")

    def __init__(self, make: Callable[[], Sequence[CoreWork]]) -> None:
        # Cutting a call of thousands of tasks takes a while, and who wants only names or bytes need not wait.
        self._make = make
        self._made: Sequence[CoreWork] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle how the work is worked out, not the work."""
        return Deferred, (self._make,)

    def _all(self) -> Sequence[CoreWork]:
        if self._made is None:
            self._made = self._make()
        return self._made

    def __len__(self) -> int:
        return len(self._all())

    def __getitem__(self, index: Any) -> Any:
        return self._all()[index]

    def __iter__(self) -> Iterator[CoreWork]:
        return iter(self._all())


class Phase(NamedTuple):
    """Work of all cores between two barriers.

    `at_once`, where there is one, does to the tensors in GM what all programs of the phase do together,
    without instructions. It is there for results only, and must give the bits of the programs. `apart`
    promises that no two transfers of the phase name one slice, so that slices need no comparison.
    `recipe` promises that phases of one product with equal recipes take the same cycles, and move the same
    bytes, in all kernels that miss nothing in L2; None promises nothing.
    """

    name: str
    work: Sequence[CoreWork]
    at_once: Callable[[CoreMemory], None] | None = None
    apart: bool = False
    recipe: Hashable = None

    def teams(self) -> Iterator[tuple[CoreWork, ...]]:
        """Yield the work of all cores of one kind with one signature, team after team."""
        # Kinds are apart even with equal signatures: cube and vector cores have other queues and links.
        teams: dict[tuple[str, Hashable], list[CoreWork]] = {}
        for work in self.work:
            teams.setdefault((work.core.kind, work.signature), []).append(work)
        for team in teams.values():
            yield tuple(team)

    def folded(self) -> Iterator[tuple[CoreWork, tuple[Core, ...]]]:
        """Yield one representative for each signature and kind of core, with all the cores it stands for."""
        for team in self.teams():
            yield team[0], tuple(work.core for work in team)


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Kernel:
    """The work of the device in one launch.

    `tensors` are all tensors in global memory that it uses, by name; `math` is how its arithmetic rounds;
    `macs` are the multiply-adds the problem asks for, without padding or inserted zeros (0: a vector kernel);
    `note` says in words what a reader of the report must know about it; `op_type` is what CANN calls it.
    `recipe` promises that kernels of one product with equal recipes, and tensors that differ in their names
    alone, take the same cycles; None promises nothing. `launched` are the blocks that its plan launches; 0:
    as many as have work.
    """

    name: str
    phases: tuple[Phase, ...]
    tensors: Mapping[str, GmTensor]
    math: MathSettings
    macs: int = 0
    compute_dtype: str = ""
    note: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    op_type: str = ""
    recipe: Hashable = None
    launched: int = 0

    @property
    def blocks(self) -> int:
        """Blocks of the launch (`blocks_on`)."""
        return self.blocks_on({work.core for phase in self.phases for work in phase.work})

    def blocks_on(self, cores: Collection[Core]) -> int:
        """Return the blocks of the launch: those of the plan, though some get no work or wait for a core.

        Of a kernel without a plan as many as have work: cube cores, each with its vector cores; vector
        cores where no cube works.

        cores   those that have work in at least one phase
        """
        # The device counts blocks by AI cores: the two vector cores beside a cube core come with its block.
        cubes = sum(core.kind == "cube" for core in cores)
        # A schedule of the user's own may deal its tasks to more cores than its tiling speaks of.
        return max(self.launched, cubes) or len(cores)

    @property
    def cores_used(self) -> int:
        """Cores that have work in at least one phase."""
        return len({core for phase in self.phases for work in phase.work for core in work.cores})


def unknown_costs(kernel: Kernel, profile: Profile) -> str:
    """Return the names of a kernel's costs that nobody has published, as for its `note`; "" for none."""
    found: dict[str, None] = {}
    for phase in kernel.phases:
        for work, _ in phase.folded():
            made = [each for each, _ in work.build().counted() if isinstance(each, Command)]
            found.update(dict.fromkeys(each.cost_unknown(profile) for each in made))
    said = dict.fromkeys(part for each in found for part in each.split("; ") if part)
    return f"not published: {'; '.join(said)}" if said else ""


Taken = TypeVar("Taken")


class Team(NamedTuple, Generic[Taken]):
    """Cores of one phase that promise equal costs, with one program for all or one for each."""

    cores: tuple[Core, ...]
    programs: tuple[Taken, ...]

    def each(self) -> list[tuple[tuple[Core, ...], Taken]]:
        """Return the cores that run as one, with their program."""
        if len(self.programs) == 1:
            return [(self.cores, self.programs[0])]
        return [((core,), program) for core, program in zip(self.cores, self.programs, strict=True)]


def teams_of(phase: Phase, folded: bool, take: Callable[[Program, str], Taken]) -> list[Team[Taken]]:
    """Build the programs of a phase, each as `take(program, kind of core)` makes it for an engine.

    folded   one program for each team: equal cores have equal rates on every link and equal outcomes in L2,
             so one of them run with the weight of all takes exactly their cycles

    Raises   ProgramError for a phase that breaks the rules below; a RuntimeWarning tells of a race
    """
    require_apart(phase)
    teams = []
    for works in phase.teams():
        programs = [work.build() for work in (works[:1] if folded else works)]
        cores = tuple([work.core for work in works])
        if len(programs) > 1:
            require_alike(phase.name, cores, [len(program) for program in programs])
        for program in programs:
            require_covered(phase.name, works[0], program)
            if found := first_race(program):
                warnings.warn(f"cycles of a race: phase {phase.name}: {found}", RuntimeWarning, stacklevel=2)
        teams.append(Team(cores, tuple([take(program, works[0].core.kind) for program in programs])))
    return teams


def require_alike(phase: str, cores: Sequence[Core], lengths: Sequence[int]) -> None:
    """Refuse cores with equal signatures and programs of different lengths.

    Folded there is one program and nothing to compare.

    Raises   ProgramError
    """
    for core, length in zip(cores, lengths, strict=False):
        if length != lengths[0]:
            raise ProgramError(
                f"phase {phase}: cores {cores[0]} and {core} have equal signatures, but "
                f"{lengths[0]} and {length} instructions; a signature must "
                "tell all that the cost of a program depends on"
            )


def require_apart(phase: Phase) -> None:
    """Refuse two programs on one core; the vector cores that a program covers count.

    Raises   ProgramError
    """
    taken: set[Core] = set()
    for work in phase.work:
        for core in work.cores:
            if core in taken:
                raise ProgramError(
                    f"two programs of phase {phase.name} run on {core}; one of them may cover it beside its "
                    "cube core (CoreWork.beside)"
                )
            taken.add(core)


def named(core: Core) -> str:
    """Return a core in words."""
    return f"{core.kind} core {core.index}"


def require_cores(phase: str, cores: Iterable[Core], profile: Profile) -> None:
    """Refuse a core that the product does not have.

    Raises   ProgramError
    """
    have = {"cube": profile.cores.cube, "vector": profile.cores.vector}
    for core in cores:
        if not 0 <= core.index < have.get(core.kind, 0):
            kinds = 'kinds are "cube" (AIC, also a unified core) and "vector" (AIV)'
            do = "deal the work to fewer cores" if core.kind in have else kinds
            counts = " and ".join(f"{count} {kind} cores" for kind, count in have.items())
            raise ProgramError(
                f"phase {phase}: a program runs on {named(core)}; {profile.variant} has {counts}, numbered "
                f"from 0: {do}"
            )


def require_covered(phase: str, work: CoreWork, program: Program) -> None:
    """Refuse a program on more vector cores than its work says.

    Raises   ProgramError
    """
    beside = program.cores - 1
    if work.core.kind == "cube" and beside > work.beside:
        raise ProgramError(
            f"phase {phase}: the program of {work.core} covers {beside} vector cores beside it, but its work "
            f"says {work.beside}; set CoreWork.beside"
        )
