"""Runs that take no instruction's word: each is held to what it says of slots, slices, sizes and formats.

What an instruction says decides its cycles, what it does decides results. A checked run looks at both, so
that a program cannot give right results in wrong cycles. It refuses

- a slot that is not named, lies in another buffer, belongs to another program or is smaller than its tile;
- a slice of GM that leaves its tensor, or has other bytes than the instruction says, or of an input that is
  written;
- elements, bytes and formats that are not those of the tile (`Command.told`);
- a tile that is changed though only read, and one that is read before it is written; a part that is left
  unwritten holds NaN, which spoils what reads it;
- a program with flags of its own that leave two uses of a tile, or of elements of GM, unordered (`races.py`);
- elements of GM that two cores of a phase write, or that one reads and another writes: nothing orders them.

Not looked at: what `Command.told` does not say, such as the runs of a strided copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ascendsim.errors import AscendSimError, ProgramError
from ascendsim.program.instruction import WIDTH, Command, Instruction, Told
from ascendsim.program.kernel import named, require_cores
from ascendsim.program.places import CoreMemory, Gm, GmTensor, Slot
from ascendsim.program.races import first_race, inside, kind_of

if TYPE_CHECKING:
    from ascendsim.numerics.accumulation import MathSettings
    from ascendsim.program.kernel import Core, Kernel, Phase
    from ascendsim.program.places import Carrier, Storage
    from ascendsim.program.program import Program


OTHER_FORMAT = "name the format that the tile has, or cast it before"


class _Touched(NamedTuple):
    """A slice of GM that an instruction of a core reads, writes or adds to."""

    core: int
    at: int
    made: Instruction
    gm: Gm
    kind: str


class PhaseWatch:
    """What all cores of a phase do to global memory; `check` refuses what nothing orders."""

    def __init__(self, phase: Phase, kernel: Kernel) -> None:
        self.phase, self.kernel = phase, kernel
        self.cores: list[Core] = [work.core for work in phase.work]
        # By tensor, as plain tuples: there is one for each transfer.
        self.touched: dict[str, list[tuple[int, int, Instruction, Gm, str]]] = {}
        # By slots, of cores that take the same storage in turn: what passed, and the bytes of elements.
        self.known: dict[tuple[Slot, ...], tuple[dict[Any, _Passed], dict[int, int]]] = {}

    def check(self) -> None:
        """Refuse elements that two cores write, or one reads and another writes; atomic adds may meet.

        Raises   ProgramError
        """
        for own in self.touched.values():
            kinds = {each[4] for each in own}
            harmless = len({each[0] for each in own}) == 1 or kinds in ({"read"}, {"atomic"})
            if not harmless and not (kinds == {"write"} and apart(own)):
                self._check([_Touched(*each) for each in own])

    def _check(self, touched: list[_Touched]) -> None:
        tensor = touched[0].gm.tensor
        size = tensor.size_bytes // tensor.itemsize
        # For each element 1 + the last core that wrote it, and that added to it; -1: several added.
        writers, adders = np.zeros(size, np.int16), np.zeros(size, np.int16)
        # Writes come first: a read that was noted earlier meets them all the same.
        for each in sorted(touched, key=lambda each: each.kind == "read"):
            shape, me = each.gm.tensor.shape, each.core + 1
            parts = [of.reshape(shape)[each.gm.index] for of in (writers, adders)]
            for part in parts[:1] if each.kind == "atomic" else parts:
                if ((part != 0) & (part != me)).any():
                    self._refuse(each, touched)
            if each.kind == "write":
                writers.reshape(shape)[each.gm.index] = me
            elif each.kind == "atomic":
                alone = (parts[1] == 0) | (parts[1] == me)
                adders.reshape(shape)[each.gm.index] = np.where(alone, me, -1)

    def _refuse(self, each: _Touched, touched: Sequence[_Touched]) -> None:
        """Say which two instructions meet."""
        size = each.gm.tensor.size_bytes // each.gm.tensor.itemsize
        for other in touched:
            mark = np.zeros(size, np.bool_)
            mark.reshape(other.gm.tensor.shape)[other.gm.index] = True
            both = other.kind == each.kind == "atomic" or other.kind == each.kind == "read"
            if other.core == each.core or both or not mark.reshape(each.gm.tensor.shape)[each.gm.index].any():
                continue
            did = {"read": "reads", "write": "writes", "atomic": "adds to"}
            first, second = (
                f"instruction {one.at} ({type(one.made).__name__}) of {named(self.cores[one.core])} "
                f"{did[one.kind]} {one.gm.text}"
                for one in (other, each)
            )
            raise ProgramError(
                f"phase {self.phase.name}: {first}, and {second}: they share elements, and nothing "
                "orders cores of a phase; give each core its own elements, add atomically, or take two phases"
            )


def apart(touched: Sequence[tuple[int, int, Instruction, Gm, str]]) -> bool:
    """Return whether no two cores write an element of a tensor: after all of them each finds its own mark."""
    tensor = touched[0][3].tensor
    writers = np.zeros(tensor.size_bytes // tensor.itemsize, np.int16)
    parts = [(core, writers.reshape(gm.tensor.shape)[gm.index]) for core, _, _, gm, _ in touched]
    for core, part in parts:
        part[...] = core
    return all((part == core).all() for core, part in parts)


class _Passed(NamedTuple):
    """An instruction that passed: the tiles that it read; tensor, carrier, elements and uses of its slice."""

    held: tuple[tuple[int, Carrier], ...]
    tensor: GmTensor | None = None
    array: Any = None
    size: int = 0
    touched: Any = None
    kind: str = ""


class CheckedMemory(CoreMemory):
    """The memory of one core that looks at what each instruction does; `begin` and `end` go around it."""

    def __init__(
        self,
        watch: PhaseWatch,
        core: int,
        gm: dict[str, Carrier],
        math: MathSettings,
        shared: dict[Any, Any],
        storage: Storage | None = None,
    ) -> None:
        super().__init__(gm, math, shared, storage)
        self._watch, self._core, self._in_turn = watch, core, storage is not None
        self._program: Program | None = None
        self._at = 0
        self._made: Instruction = Command()  # type: ignore[assignment]  # until the first begins
        self._reads: tuple[Slot, ...] = ()
        self._writes: tuple[Slot, ...] = ()
        # Bytes of an element of the tile in each slot.
        self._widths: dict[int, int] = {}
        # Of slots that the instruction converts in place: the bytes of an element before.
        self._before: dict[int, int] = {}
        self._storing = False
        # Instructions that passed, but for their slices.
        self._passed: dict[Any, _Passed] = {}
        # The same memory, which looks at nothing.
        self._plain = CoreMemory.__new__(CoreMemory)
        self._plain.__dict__ = self.__dict__

    def run(self, at: int, made: Instruction, program: Program) -> None:
        """Execute instruction `at` of a program, held to what it says.

        Raises   ProgramError
        """
        # One that is like another before it, on tiles of like shapes and formats, needs no second look;
        # of its slice only the size.
        like: Any = None
        if isinstance(made, tuple) and program is self._program:
            gm = made.gm
            if gm is None:
                like = made.__class__, made
            else:
                like = (made.__class__, *(made[1:] if made[0] is gm else (made[0], *made[2:])))
            known = self._passed.get(like)
            if known is not None and self._alike(known.held):
                if gm is None:
                    made.execute(self._plain)
                    return
                if gm.tensor is known.tensor and inside(gm) and known.array[gm.index].size == known.size:
                    known.touched.append((self._core, at, made, gm, known.kind))
                    made.execute(self._plain)
                    return
        self._run(at, made, program)
        if like is not None:
            self._passed[like] = self._as_passed(made)

    def _as_passed(self, made: Instruction) -> _Passed:
        held = tuple([(slot.index, self._tiles[slot.index]) for slot in made.reads])
        if made.gm is None:
            return _Passed(held)
        tensor = made.gm.tensor
        array = CoreMemory.array(self, tensor)
        touched = self._watch.touched[tensor.name]
        return _Passed(held, tensor, array, array[made.gm.index].size, touched, kind_of(made))

    def _alike(self, held: tuple[tuple[int, Carrier], ...]) -> bool:
        """Return whether slots hold tiles of the shapes that they held."""
        tiles = self._tiles
        for index, tile in held:  # noqa: SIM110  # `all` takes twice as long
            if tiles.get(index) is not tile:
                return False
        return True

    def _run(self, at: int, made: Instruction, program: Program) -> None:
        if program is not self._program:
            self._program, self.profile = program, program.profile
            # Another core may have run the like on the same slots.
            known = self._watch.known if self._in_turn else {}
            self._passed, self._widths = known.setdefault(program.slots, ({}, {}))
            if program.profile is not None:
                require_cores(self._watch.phase.name, [self._watch.cores[self._core]], program.profile)
            if found := first_race(program):
                raise ProgramError(f"phase {self._watch.phase.name}: {found}")
        self._at, self._made = at, made
        self._reads, self._writes = made.reads, made.writes
        self._before.clear()
        self._require_slots(program.slots)
        if made.gm is not None:
            self._require_slice(made.gm)
        try:
            made.execute(self)
        except AscendSimError as error:
            # What this memory itself refuses says where already.
            if str(error).startswith(self._where):
                raise
            raise ProgramError(f"{self._where}: {error}") from error
        except (ValueError, IndexError) as error:
            what, do = f"does not fit its tiles: {error}", "compare their shapes"
            if "read-only" in str(error):
                what, do = "changes what it only reads", "name the slot in `writes`, or `store` into GM"
            raise self._wrong(what, do) from error
        for told in made.told if isinstance(made, Command) else ():
            self._require_told(told)

    # ---- what the instruction asks for

    def new_tile(self, slot: Slot, shape: tuple[int, ...]) -> Carrier:
        """Return storage of a slot that the instruction writes, filled with NaN."""
        if slot not in self._writes:
            raise self._wrong(f"makes a tile in {slot!r}, which its `writes` does not name", "name it there")
        made = self._made
        given = self._widths.get(self._reads[0].index, 4) if self._reads else 4
        if made.gm is not None:
            given = made.gm.tensor.itemsize
        width = made.width(given, shape) if isinstance(made, Command) else given
        if not width:
            raise self._wrong(
                f"says {getattr(made, 'bytes', 0)} bytes of a tile of {shape}, which are no whole number "
                "for each element",
                "give the bytes of its format",
            )
        need = made.tile_bytes(shape, width) if isinstance(made, Command) else int(np.prod(shape)) * width
        if need > slot.size_bytes:
            raise self._wrong(
                f"puts a tile of {shape}, {need} bytes, into {slot!r}, declared as {slot.size_bytes}",
                "reserve its bytes, or cut a smaller tile",
            )
        if self._widths.get(slot.index, width) != width:
            self._passed.clear()
        if slot in self._reads:
            self._before[slot.index] = self._widths.get(slot.index, 4)
        self._widths[slot.index] = width
        tile = super().new_tile(slot, shape)
        if slot not in self._reads:
            tile.view(np.float32).fill(np.nan)  # of integers: its bits
        return tile

    def accumulator(self, slot: Slot) -> Carrier:
        """Return the tile of a slot that the instruction names; one that it only reads cannot be written."""
        tile = super().accumulator(slot)
        if slot in self._writes:
            return tile
        if slot not in self._reads:
            raise self._wrong(f"reads {slot!r}, which its `reads` does not name", "name it there")
        tile = tile.view()
        tile.flags.writeable = False
        return tile

    def _round(self, index: int, tile: Carrier) -> None:
        # Who only reads it was given a view that cannot be written.
        del tile
        super()._round(index, self._tiles[index])

    def array(self, tensor: GmTensor) -> Carrier:
        """Return a tensor that the instruction names; only `store` writes it."""
        gm = self._made.gm
        if gm is None or gm.tensor.name != tensor.name:
            raise self._wrong(f"touches {tensor.name}, which it does not name", "give it as `src` or `dst`")
        array = super().array(tensor)
        if not self._storing:
            array = array.view()
            array.flags.writeable = False
        return array

    def store(self, dst: Gm, values: Carrier, *, atomic: bool) -> None:
        """Write or add to the slice that the instruction names."""
        if atomic != (kind_of(self._made) == "atomic"):
            raise self._wrong(f"adds atomically: {atomic}, against what it says", "let `atomic` say it")
        self._storing = True
        super().store(dst, values, atomic=atomic)
        self._storing = False

    # ---- what is held against what

    def _require_slots(self, slots: tuple[Slot, ...]) -> None:
        made = self._made
        for slot in (*self._reads, *self._writes):
            if slot.index >= len(slots) or slots[slot.index] is not slot:
                raise self._wrong(f"uses {slot!r}, a slot of another program", "reserve it where it is used")
        for field, buffer in getattr(made, "where", {}).items():
            own = getattr(made, field)
            if isinstance(own, Slot) and own.buffer != buffer:
                raise self._wrong(
                    f"has {field} = {own!r} in {own.buffer}; it works on {buffer}", f"reserve it in {buffer}"
                )

    def _require_slice(self, gm: Gm) -> None:
        made, tensor, kind = self._made, gm.tensor, kind_of(self._made)
        known = self._watch.kernel.tensors.get(tensor.name)
        if known is None or known.size_bytes != tensor.size_bytes:
            have = "no such tensor" if known is None else f"one of {known.size_bytes} bytes"
            raise self._wrong(
                f"moves {tensor.name} of {tensor.size_bytes} bytes; the kernel has {have}",
                "add it to its tensors",
            )
        try:
            size = gm.size_bytes
        except ProgramError as error:
            raise self._wrong(str(error), "cut the last slice shorter") from error
        said = getattr(made, "bytes", size)
        # Whole fractals of a matrix are moved, the filled-up ones too.
        if said != size and not (tensor.layout == "NZ" and said > size):
            raise self._wrong(
                f"says bytes = {said}; {gm.text} has {size}", f"say {size}, as {type(made).__name__}.of does"
            )
        if kind != "read" and known.role == "input":
            raise self._wrong(
                f"writes {gm.text}, an input", 'give its tensor the role "output" or "workspace"'
            )
        if kind == "atomic" and tensor.itemsize != 4:
            raise self._wrong(
                f"adds to {gm.text} in {tensor.dtype}; atomic adds are in float32 or int32", "cast afterwards"
            )
        touched = self._watch.touched.setdefault(tensor.name, [])
        touched.append((self._core, self._at, made, gm, kind))

    def _require_told(self, told: Told) -> None:
        field, said, slots, unit = told
        found = {}
        for slot in slots:
            width, size = self._widths.get(slot.index, 4), self._tiles[slot.index].size
            before = self._before.get(slot.index, width)
            found[slot] = {"elements": size, WIDTH: before}.get(unit, size * width)
        for slot, true in found.items():
            if said != true and not (unit == "bytes at least" and said > true):
                # A field that names a format, or the instruction itself, says the bytes: no number mends it.
                do = f"say {true}" if getattr(self._made, field, None) == said else OTHER_FORMAT
                raise self._wrong(f"says {field} = {said}; {slot!r} has {true} {unit}", do)

    @property
    def _where(self) -> str:
        core, kind = named(self._watch.cores[self._core]), type(self._made).__name__
        return f"phase {self._watch.phase.name}, {core}: instruction {self._at} ({kind})"

    def _wrong(self, what: str, do: str) -> ProgramError:
        return ProgramError(f"{self._where} {what}; {do}")
