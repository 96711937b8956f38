"""The noun that lowering, the reference and users share: a loop nest bound to what it computes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ascendsim.errors import ConfigError, close_matches, shown
from ascendsim.frozen import cached_property
from ascendsim.numerics.accumulation import MathSettings
from ascendsim.ops.plan import WHOLE, Tiling, require_obeyed
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.profile import Profile
from ascendsim.program.kernel import Core, CoreWork, Deferred, Phase
from ascendsim.program.places import GmTensor
from ascendsim.program.program import NestProgram, Program
from ascendsim.program.waits import HAZARDS

if TYPE_CHECKING:
    pass


# The fields of a tiling that every loop nest over base blocks reads. A nest adds those that it reads besides;
# any other field is refused, since a user who sets it would believe that it had been obeyed.
TILES = frozenset(WHOLE)
# What every nest of a gradient obeys without looking: the product that it is given has its groups merged.
GIVEN = frozenset({"group_merge"})


@dataclass(frozen=True)
class Schedule(ABC):
    """A loop nest under one tiling on one product: which core makes which tasks, and by which program.

    gemm     the product that it computes (`ops/problems/products.py`)
    sums     how parts of a reduction are added that different cores make: "atomic", as they arrive, or kept
             apart and then "in order" or as a "tree". The bits of float32 sums depend on it
    hazards  the classes of waits that its programs get; all, but in tests of what a missing class does

    name     under which a plan calls it; a class that says none goes by its own, not by that of its base
    makes    "grad_input", "grad_weight" or "matmul"
    reads    the fields of a tiling that it obeys
    fixed    those of them that have one value here; another nest means something else by its sizes

    Raises   ConfigError if the tiling sets a field that it does not read; when its work is asked for, if
             tasks are dealt to more cores than there are, or base blocks not once each
    """

    gemm: Any
    tiling: Tiling
    profile: Profile
    sums: str = "in order"
    hazards: frozenset[str] = HAZARDS

    name: ClassVar[str]
    makes: ClassVar[str]
    reads: ClassVar[frozenset[str]] = TILES
    fixed: ClassVar[Mapping[str, int]] = {}

    def __init_subclass__(cls) -> None:
        """Leave a name and a signature that are inherited to the class that they were made for."""
        super().__init_subclass__()
        # Reports would call another nest's cycles those of the base.
        if "name" not in vars(cls):
            cls.name = cls.__name__
        # An inherited signature describes another program.
        if "program" in vars(cls) and "signature" not in vars(cls):
            cls.signature = Schedule.signature  # type: ignore[method-assign]

    def __post_init__(self) -> None:
        """Refuse a tiling that would be obeyed in part."""
        require_obeyed(self.makes, self.name, self.tiling, self.obeyed())

    @classmethod
    def obeyed(cls) -> frozenset[str]:
        """Return the fields of a tiling that take effect: those that it reads, and those of its product."""
        return cls.reads if cls.makes == "matmul" else cls.reads | GIVEN

    def __getstate__(self) -> dict[str, Any]:
        """Return the pickled state: the fields, without what follows from them, such as tasks or loop nests.

        But tensors are compared by identity: one that has been made is in use, in the kernel for instance.
        """
        own = {field.name for field in fields(self)}
        kept = vars(self).items()
        return {name: value for name, value in kept if name in own or isinstance(value, GmTensor)}

    @property
    @abstractmethod
    def tensors(self) -> tuple[GmTensor, ...]:
        """The tensors in GM that it touches, inputs first, then the output and its workspace."""

    @property
    def canonical(self) -> Tiling:
        """The tiling that means the same, and whose blocks and tiles are as long as those that run.

        That of a nest which does not say so is the one that it was given.
        """
        return self.tiling

    @abstractmethod
    def dealt(self) -> Sequence[Any]:
        """Return the tasks of each core, in the order in which it makes them."""

    @abstractmethod
    def program(self, tasks: Any) -> Program:
        """Return the program of a core with these tasks."""

    @abstractmethod
    def order(self) -> Any:
        """Return the order of the additions, which the reference computation reads."""

    def signature(self, tasks: Any) -> Hashable:
        """Return a key of the cost of these tasks: cores with equal signatures are timed as one.

        As it stands it is read off the program, whatever that is. A class that says it in terms of its tasks
        saves building every program; one with a `program` of its own does not inherit what another says.
        """
        program = self.program(tasks)
        if isinstance(program, NestProgram):
            # Without a signature nothing vouches for the axes of the nest.
            program.nest.check_axes()
        return program.digest(self._signatures)

    @cached_property
    def _signatures(self) -> dict[Hashable, int]:
        return {}

    @property
    def relaid(self) -> Mapping[str, GmTensor]:
        """The operands whose layout the kernel's own vector cores change first, and the tensors they make."""
        return {}

    def macs_of(self, problem: ConvProblem) -> int:
        """Return the multiply-adds that make the gradient, without what fills up tiles."""
        return problem.macs

    @property
    def casts_sums(self) -> bool:
        """Whether vector cores make the output from float32 sums, rather than the way out of L0C."""
        return False

    @property
    def launched(self) -> int:
        """Blocks of the launch: the cores of the plan, with work or without."""
        return self.tiling.used_cores

    @property
    def cleared_apart(self) -> bool:
        """Whether a kernel before this one (MemSet) must set its output to zero."""
        return False

    def compute(self) -> Phase:
        """Return the phase in which the cores run their programs."""
        # Deferred: a call that is only lowered, for its workspace say, deals no tasks and builds no program.
        return Phase("compute", Deferred(self._work))

    def phases(self) -> tuple[Phase, ...]:
        """Return all phases of the kernel."""
        return (self.compute(),)

    def phases_under(self, math: MathSettings) -> tuple[Phase, ...]:
        """Return all phases under an arithmetic, under which some may do their work at once."""
        del math
        return self.phases()

    def _work(self) -> tuple[CoreWork, ...]:
        # A program is built when an executor asks for it: all programs of a large kernel would not fit.
        return tuple(
            CoreWork(Core("cube", index), self.signature(tasks), partial(self.program, tasks))
            for index, tasks in enumerate(self._checked())
            if len(tasks)  # a core without work takes no part, and no share of the links
        )

    def _checked(self) -> Sequence[Any]:
        """Return the tasks of each core; refuse tasks for more cores than the product has."""
        dealt, cores = self.dealt(), self.profile.cores.cube
        if len(dealt) > cores:
            raise ConfigError(
                f"schedule {self.name} deals tasks to {len(dealt)} cores; {self.profile.variant} has {cores}"
            )
        return dealt


# By name: the module and the class. One is imported when it is first asked for, as a call takes one or two.
SCHEDULES: Final[Mapping[str, tuple[str, str]]] = {
    "dgrad": ("dgrad.nest", "Dgrad"),
    "dgrad_columns_outer": ("dgrad.nest", "DgradColumnsOuter"),
    "dgrad_shares": ("dgrad.shares", "DgradShares"),
    "dgrad_split": ("dgrad.split", "DgradSplit"),
    "dgrad_c04": ("dgrad.shares", "DgradC04"),
    "dgrad_passes": ("dgrad.split", "DgradPasses"),
    "wgrad": ("wgrad.nest", "Wgrad"),
    "wgrad_fractals": ("wgrad.shares", "WgradFractals"),
    "wgrad_shares": ("wgrad.shares", "WgradShares"),
    "wgrad_stream": ("wgrad.stream", "WgradStream"),
    "wgrad_taps": ("wgrad.taps", "WgradTaps"),
    "wgrad_winograd": ("winograd", "WgradWinograd"),
    "matmul": ("matmul", "Matmul"),
}


def schedule_named(name: str | type) -> type[Schedule]:
    """Return a schedule by its name; a class of the user's own stands for itself.

    Raises   ConfigError, with near misses
    """
    # A class needs no entry: a user's own nest is passed as it is, and no registry has to know it.
    if isinstance(name, type) and issubclass(name, Schedule):
        if not hasattr(name, "makes"):
            raise ConfigError(
                f'schedule {name.__name__} does not say what it makes; give it makes = "grad_input", '
                "or derive it from Dgrad or Wgrad"
            )
        return name
    if isinstance(name, str) and name in SCHEDULES:
        return _imported(name)
    near = close_matches(shown(name), SCHEDULES, n=1)
    if near:
        hint = f"did you mean {near[0]}? A class derived from ascendsim.Schedule is taken as well"
    else:
        hint = f"it must be one of {', '.join(SCHEDULES)}, or a class derived from ascendsim.Schedule"
    raise ConfigError(f"schedule is {shown(name)}; {hint}")


@cache
def _imported(name: str) -> type[Schedule]:
    module, kind = SCHEDULES[name]
    found: type[Schedule] = getattr(import_module(f"ascendsim.ops.schedules.{module}"), kind)
    return found
