"""The cube's instructions: load3d, which gathers patches of an image tile on the fly, and Mmad."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from ascendsim.errors import ProgramError
from ascendsim.numerics.dtypes import FLOAT32_BYTES, itemsize_of
from ascendsim.program.instruction import WIDTH, Command, Cost, Told
from ascendsim.program.places import Slot

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.profile import Profile
    from ascendsim.profile.memory import Load3d
    from ascendsim.program.places import CoreMemory


# Of the layouts in memory and L1, whatever the cube: rows of a block, and bytes of each, a group of channels.
# A load makes the cube's fractals of them.
FRACTAL_ROWS, ROW_BYTES = 16, 32


class Gathering(NamedTuple):
    """Pixels in steps, as load3d gathers them: those of a step, and those of which whole ones come to L0."""

    step: int
    whole: int

    @classmethod
    def of(cls, profile: Profile, buffer: str, itemsize: int) -> Gathering:
        """Return that of patches: pixels are the rows of fractals in L0A, in L0B the reduction."""
        if buffer == "L0A":
            return cls(FRACTAL_ROWS, max(FRACTAL_ROWS, profile.cube.m0))
        # 16 pixels of 2 bytes, 8 of 4: what a fractal of the products has.
        k0 = profile.cube.depth(itemsize)
        return cls(min(FRACTAL_ROWS, k0), k0)

    @classmethod
    def turned(cls, profile: Profile, itemsize: int) -> Gathering:
        """Return that of grad_output, which comes to L0A with its pixels as the reduction."""
        return cls(FRACTAL_ROWS, max(FRACTAL_ROWS, profile.cube.depth(itemsize)))

    def empty(self, pixels: Any) -> Any:
        """Return the steps of nothing but zeros that fill up the last fractal; of numbers or arrays."""
        return (round_up(pixels, self.whole) - round_up(pixels, self.step)) // self.step


def load3d_cycles(
    law: Load3d, stride_w: int, run: tuple[int, int, int], groups: int, steps: Gathering
) -> Fraction:
    """Return the cycles of load3d for a run of pixels under `groups` (channel group, tap) pairs.

    `run` is the first pixel's place in its row, the number of pixels, and the pixels of a row.
    """
    # The pixels of a step that lie in one output row lie a stride apart; each further row begins somewhere
    # else and costs the mover a cycle more (the law is in `profile.load3d`).
    spans = row_spans(*run, steps.step)
    cycles = sum(count * law.fractal_cycles(stride_w, spanned) for spanned, count in spans.items())
    cycles += steps.empty(run[1]) * law.fractal_cycles(stride_w, 1)
    data = Fraction(ROW_BYTES * cycles * groups * steps.step, law.fractal_bytes)
    commands: int = law.commands(-(-run[1] // max(FRACTAL_ROWS, steps.whole)), groups)
    return data + law.command_cycles * commands


def whole_rows(profile: Profile, groups: Any, itemsize: int) -> Any:
    """Return the groups of 32 bytes in L0A that whole fractals have, at least so many."""
    return round_up(groups, max(1, profile.cube.depth(itemsize) * itemsize // ROW_BYTES))


def row_spans(offset: int, pixels: int, out_width: int, deep: int = FRACTAL_ROWS) -> dict[int, int]:
    """Count the fractals of so many consecutive pixels by the number of output rows they span.

    `offset` is the first pixel's place in its row. The last fractal may be short.
    """
    # Fractals are cut from the first pixel of the load on, not from the beginning of a row. So a load that
    # begins inside a row has other fractals that go over its end than one that begins with it.
    spans: dict[int, int] = {}
    for first in range(offset, offset + pixels, deep):
        last = min(first + deep, offset + pixels) - 1
        rows = last // out_width - first // out_width + 1
        spans[rows] = spans.get(rows, 0) + 1
    return spans


class Window(NamedTuple):
    """An image tile in L1 and its place in a convolution.

    The tile holds `channels` groups of C0 channels, `rows` x `cols` pixels each. Output pixel (y, x) under
    tap (i, j) reads tile pixel (y * stride_h + i * dilation_h - top, x * stride_w + j * dilation_w - left);
    outside the tile it reads zero. `out_width` is the number of output pixels in one row.
    """

    channels: int
    rows: int
    cols: int
    top: int
    left: int
    out_width: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    c0: int

    @property
    def tile_shape(self) -> tuple[int, int]:
        """Shape of the flat tile: one row of C0 values for each pixel, and a last row of zeros."""
        # Flat, so that a pixel is one row and gathering it takes one index.
        return self.channels * self.rows * self.cols + 1, self.c0


class Im2col(NamedTuple):
    """load3d: output pixels `first_pixel` ... as rows, (channel group, tap, c0) `first_group` ... as columns.

    Shapes   tile (channels * rows * cols + 1, C0), last row zero -> (pixels, groups * C0)
    """

    window: Window
    first_pixel: int
    pixels: int
    first_group: int
    groups: int
    itemsize: int

    @property
    def shape(self) -> Hashable:
        """A key of all values that the cost depends on."""
        # The kernel is not part of the key: a patch is gathered at one rate wherever its pixels lie. The
        # place in the row is, since it decides which fractals go over the end of a row.
        w = self.window
        offset = self.first_pixel % w.out_width
        return ("im2col", offset, self.pixels, self.groups, w.out_width, w.stride[1], w.c0, self.itemsize)

    def matrix(self, memory: CoreMemory, tile: NDArray[np.float32], out: NDArray[np.float32]) -> None:
        """Gather the patches of `tile` into `out`."""
        # The same read comes in task after task and on every core; its indices are found once.
        index = memory.shared.get(self)
        if index is None:
            index = memory.shared[self] = _patch_index(self)
        # All indices are inside; "clip" only spares numpy the copy of `out` that it makes to raise safely.
        tile.take(index, axis=0, out=out.reshape(self.pixels, self.groups, self.window.c0), mode="clip")

    def matrix_shape(self) -> tuple[int, int]:
        """Rows and columns of the matrix."""
        return self.pixels, self.groups * self.window.c0

    def cycles(self, profile: Profile, buffer: str) -> Fraction:
        """Cycles of load3d: steps of pixels at the rate of the output rows they span, and commands."""
        w = self.window
        run = self.first_pixel % w.out_width, self.pixels, w.out_width
        # Several taps of a few channels share the 32 bytes of a row.
        groups = -(-self.groups * w.c0 * self.itemsize // ROW_BYTES)
        # Zeros fill up the reduction, as all of it is added.
        if buffer == "L0A":
            groups = whole_rows(profile, groups, self.itemsize)
        steps = Gathering.of(profile, buffer, self.itemsize)
        return load3d_cycles(profile.load3d[buffer], w.stride[1], run, groups, steps)

    def load2d_commands(self, profile: Profile) -> int:
        """None: it is load3d."""
        del profile
        return 0


def _patch_index(patches: Im2col) -> NDArray[np.intp]:
    """Return, for every (pixel, group), the row of the flat tile that holds its C0 channels."""
    w = patches.window
    pixel = np.arange(patches.first_pixel, patches.first_pixel + patches.pixels)
    group = np.arange(patches.first_group, patches.first_group + patches.groups)
    channel, tap = np.divmod(group, w.kernel[0] * w.kernel[1])
    tap_row, tap_col = np.divmod(tap, w.kernel[1])
    row = (pixel // w.out_width * w.stride[0])[:, None] + (tap_row * w.dilation[0] - w.top)[None, :]
    col = (pixel % w.out_width * w.stride[1])[:, None] + (tap_col * w.dilation[1] - w.left)[None, :]
    # Padding is not in the tile: what lies outside is read from the row of zeros behind the last pixel.
    inside = (row >= 0) & (row < w.rows) & (col >= 0) & (col < w.cols)
    flat: NDArray[Any] = (channel[None, :] * w.rows + row) * w.cols + col
    return np.where(inside, flat, w.channels * w.rows * w.cols).astype(np.intp)


class TapRows(NamedTuple):
    """load2d over weights: rows are (channel group, tap, c0), the last tap first if `backwards`.

    grad_input is a convolution with the kernel turned round, so it takes the taps backwards.

    Shapes   tile (channels * taps, C0 * columns) -> (groups * C0, columns)
    """

    taps: int
    backwards: bool
    first_group: int
    groups: int
    c0: int
    columns: int
    itemsize: int

    @property
    def shape(self) -> Hashable:
        """A key of all values that the cost depends on."""
        return ("tap rows", self.groups, self.c0, self.columns, self.itemsize, self.backwards, self.taps == 1)

    def matrix(self, memory: CoreMemory, tile: NDArray[np.float32], out: NDArray[np.float32]) -> None:
        """Copy the rows of the taps in the order of the reduction."""
        index = memory.shared.get(self)
        if index is None:
            group = np.arange(self.first_group, self.first_group + self.groups)
            tap = group % self.taps
            taken = self.taps - 1 - tap if self.backwards else tap
            # The tap is turned round inside its channel group; the group stays.
            index = memory.shared[self] = group - tap + taken
        tile.take(index, axis=0, out=out.reshape(self.groups, -1), mode="clip")

    def matrix_shape(self) -> tuple[int, int]:
        """Rows and columns of the matrix."""
        return self.groups * self.c0, self.columns

    def cycles(self, profile: Profile, buffer: str) -> Fraction:
        """Cycles of the data, whole fractals at the path's rate, and of turning over blocks of weights."""
        rows = round_up(self.groups * self.c0, profile.cube.depth(self.itemsize))
        elements = rows * round_up(self.columns, profile.cube.n0)
        data = Fraction(elements * self.itemsize) / profile.paths[f"L1_{buffer}"].bytes_per_cycle
        if not self.backwards:
            return data
        # Backwards, rows and columns of the weights as they lie change places, block by block. Two slices of
        # 8 channels share a block, so that each pays for half of its command.
        blocks = Fraction(elements, FRACTAL_ROWS * FRACTAL_ROWS)
        return data + blocks * profile.load2d.turned_block_cycles

    def load2d_commands(self, profile: Profile) -> int:
        """One, as the rows follow each other; one for each tap of each group if they are taken backwards.

        Where each block of weights has a command of its own, those are in the cycles.
        """
        # A command goes forwards from fractal to fractal, so backwards each tap takes one of its own.
        # None turns round taps that share a fractal: they lie so in L1.
        whole = self.c0 * self.itemsize >= ROW_BYTES
        each = self.backwards and self.taps > 1 and whole and not profile.load2d.turned_block_cycles
        return self.groups if each else 1


class Transposed(NamedTuple):
    """Channels become rows, pixels `first_pixel` ... become columns: load2d with transpose, or load3d.

    Channels are groups of C0, those from `first_channel` on.

    In grad_weight the reduction is over pixels, so grad_output is needed with its pixels as columns. Of these
    the first lies at `place` in a row of `width` pixels of the image (0: all pixels are one row).

    Shapes   tile (channels, pixels of the tile, C0) -> (channels * C0, pixels)
    """

    channels: int
    first_pixel: int
    pixels: int
    c0: int
    itemsize: int
    place: int = 0
    width: int = 0
    first_channel: int = 0

    @property
    def shape(self) -> Hashable:
        """A key of all values that the cost depends on."""
        return ("transposed", self.channels, self.pixels, self.c0, self.itemsize, self.place, self.width)

    def matrix(self, memory: CoreMemory, tile: NDArray[np.float32], out: NDArray[np.float32]) -> None:
        """Copy the pixels of every channel into a row."""
        del memory
        channels = slice(self.first_channel, self.first_channel + self.channels)
        part = tile[channels, self.first_pixel : self.first_pixel + self.pixels]
        out.reshape(self.channels, self.c0, self.pixels)[...] = part.transpose(0, 2, 1)

    def matrix_shape(self) -> tuple[int, int]:
        """Rows and columns of the matrix."""
        return self.channels * self.c0, self.pixels

    def cycles(self, profile: Profile, buffer: str) -> Fraction:
        """Cycles of load2d's data, whole fractals at the path's rate, or those of load3d over one tap."""
        steps, law = Gathering.turned(profile, self.itemsize), profile.load3d[buffer]
        pixels = round_up(self.pixels, steps.whole)
        if law.transposes:
            run = self.place, self.pixels, self.width or self.place + self.pixels
            turned: Fraction = law.turned(pixels // FRACTAL_ROWS * self.channels, self.itemsize)
            if turned:
                return turned + law.command_cycles
            return load3d_cycles(law, 1, run, self.channels, steps)
        elements = self.channels * self.c0 * pixels
        return Fraction(elements * self.itemsize) / profile.paths[f"L1_{buffer}"].bytes_per_cycle

    def load2d_commands(self, profile: Profile) -> int:
        """One for each group of channels or each fractal of pixels, none where load3d turns them over."""
        # Both ends of this path are on L0A: grad_output is the left matrix.
        if profile.load3d["L0A"].transposes:
            return 0
        # A command repeats at one step, through the pixels of a group or from group to group: whichever
        # leaves the fewest commands.
        return min(self.channels, -(-self.pixels // FRACTAL_ROWS))


class Submatrix(NamedTuple):
    """Rows `first_row` ... and columns `first_column` ... of a plain matrix, or of the transpose of the tile.

    Shapes   tile (all rows, all columns), or the other way round if `transposed` -> (rows, columns)
    """

    first_row: int
    rows: int
    first_column: int
    columns: int
    transposed: bool
    itemsize: int

    @property
    def shape(self) -> Hashable:
        """A key of all values that the cost depends on."""
        return ("submatrix", self.rows, self.columns, self.transposed, self.itemsize)

    def matrix(self, memory: CoreMemory, tile: NDArray[np.float32], out: NDArray[np.float32]) -> None:
        """Copy the part."""
        del memory
        whole = tile.T if self.transposed else tile
        rows = slice(self.first_row, self.first_row + self.rows)
        out[...] = whole[rows, self.first_column : self.first_column + self.columns]

    def matrix_shape(self) -> tuple[int, int]:
        """Rows and columns of the matrix."""
        return self.rows, self.columns

    def cycles(self, profile: Profile, buffer: str) -> Fraction:
        """Cycles of the data: whole fractals, m0 rows or n0 columns by k0 of the reduction.

        L0A holds its matrix row by row and L0B column by column, so L0B turns over what is not transposed.
        """
        cube, left = profile.cube, buffer == "L0A"
        reduction, other = (self.columns, self.rows) if left else (self.rows, self.columns)
        side = round_up(other, cube.m0 if left else cube.n0)
        elements = round_up(reduction, cube.depth(self.itemsize)) * side
        path = profile.paths[f"L1_{buffer}"]
        turned = self.transposed == left
        slower = path.transposing_bytes_per_cycle
        return Fraction(elements * self.itemsize) / (slower if turned and slower else path.bytes_per_cycle)

    def load2d_commands(self, profile: Profile) -> int:
        """None: matmul kernels fetch a whole part with one load3d."""
        del profile
        return 0


TileRead = Im2col | TapRows | Transposed | Submatrix


def round_up(value: int, step: int) -> int:
    """Return the smallest multiple of `step` that is not below `value`."""
    return -(-value // step) * step


class _Mmad(NamedTuple):
    dst: Slot
    a: Slot
    b: Slot
    m: int
    k: int
    n: int
    compute_dtype: str
    first: bool
    bias: Slot | None = None


class Mmad(_Mmad, Command):
    """Add one cube product to an accumulator tile, bit for bit under the kernel's accumulation model.

    The first product of a tile begins it with zero, or with a row of `bias` in the bias table.

    Shapes   a (m, k), b (k, n), c (m, n), bias (n,)
    Types    a, b of `compute_dtype` (a rate key of the profile); c and bias float32; of int8, in a kernel of
             `MathSettings(IntegerSum())`, int32
    Pipe     M
    Cost     head + ceil(m/m0) ceil(n/n0) ceil(k/k0) fractal products, each m0 n0 k0 / macs_per_cycle cycles;
             the result is visible mmad_latency later. k is the outermost loop: the first piece of the result
             is ready when all but the last k0 have been added
    Source   AscendC Mmad page and cube performance summary; products 32 deep on 910B2 for the order of loops
    """

    __slots__ = ()
    where: ClassVar[Mapping[str, str]] = {"dst": "L0C", "a": "L0A", "b": "L0B", "bias": "BT"}
    pipe = "M"
    gm = None

    @property
    def reads(self) -> tuple[Slot, ...]:
        """Both operands; the accumulator unless this product begins it, with the bias if there is one."""
        began = self.bias if self.first else self.dst
        return (self.a, self.b) if began is None else (self.a, self.b, began)

    @property
    def writes(self) -> tuple[Slot, ...]:
        """The accumulator."""
        return (self.dst,)

    @property
    def touched_bytes(self) -> tuple[int, ...]:
        """Both operands and the accumulator, each once: the order inside a product is the cube's own."""
        size = itemsize_of(self.compute_dtype)
        c = FLOAT32_BYTES * self.m * self.n
        operands = self.m * self.k * size, self.k * self.n * size
        if self.first:
            return (*operands, c) if self.bias is None else (*operands, FLOAT32_BYTES * self.n, c)
        return *operands, c, c

    @property
    def shape(self) -> Hashable:
        """A key of all values that the cost depends on."""
        return self.m, self.k, self.n, self.compute_dtype

    @property
    def told(self) -> tuple[Told, ...]:
        """Both operands have elements of the format that is multiplied; shapes it looks at itself."""
        size = itemsize_of(self.compute_dtype)
        operands = Told(f"compute_dtype {self.compute_dtype}", size, (self.a, self.b), WIDTH)
        if self.bias is None or not self.first:
            return (operands,)
        return operands, Told("n", self.n, (self.bias,)), Told("bias", FLOAT32_BYTES, (self.bias,), WIDTH)

    def width(self, given: int, shape: tuple[int, ...]) -> int:
        """Return the bytes of a sum: float32, or int32."""
        del given, shape
        return 4

    def execute(self, memory: CoreMemory) -> None:
        """Accumulate; the first product of a tile begins with zero.

        Raises   ProgramError if a slot holds a tile of another shape: something overwrote it too early; for a
                 bias of a product that begins no tile; for int8 in arithmetic of floats, or the other way
        """
        # The first product begins the tile: the device does not read what L0C holds.
        if self.first:
            memory.begin(self.dst, (self.m, self.n), None if self.bias is None else memory.tile(self.bias))
        elif self.bias is not None:
            raise ProgramError(f"Mmad adds to {self.dst!r} and has a bias; give it to the first product")
        if (self.compute_dtype == "int8") != (memory.math.carrier == "int32"):
            raise ProgramError(
                f"Mmad of {self.compute_dtype} in a kernel whose sums are {memory.math.carrier}; give the "
                "kernel MathSettings(IntegerSum()) for int8, an AccumulationModel for floats"
            )
        a, b, c = memory.tile(self.a), memory.tile(self.b), memory.accumulator(self.dst)
        # A slot that was overwritten too early would give wrong numbers without a word, were shapes equal;
        # where they differ, that is seen here.
        if (a.shape, b.shape, c.shape) != ((self.m, self.k), (self.k, self.n), (self.m, self.n)):
            raise ProgramError(
                f"Mmad of {self.m} x {self.k} x {self.n} finds {self.a!r} {a.shape}, {self.b!r} {b.shape} "
                f"and {self.dst!r} {c.shape}: a wait is missing"
            )
        memory.add_product(self.dst, a, b)

    def cost(self, profile: Profile) -> Cost:
        """Return head, product cycles and result latency."""
        cube = profile.cube
        rate = cube.rates[self.compute_dtype]
        # The cube multiplies whole fractals, whatever of them the tile uses.
        padded = round_up(self.m, cube.m0) * round_up(self.n, cube.n0) * round_up(self.k, rate.k0)
        cycles = -(-padded // rate.macs_per_cycle)
        passes = -(-self.k // rate.k0)
        # The slices of k are added to the whole tile one after another. So while the last one is added, the
        # tile is finished fractal by fractal, and whoever trails this product may begin.
        lead = -(-padded * (passes - 1) // (passes * rate.macs_per_cycle))
        head = cube.mmad_head_cycles
        return Cost(head + cycles, cube.mmad_latency_cycles, lead_cycles=head + lead)

    def cost_unknown(self, profile: Profile) -> str:
        """Return the name of the cost of its bias that is not charged; "" without one."""
        del profile
        return "" if self.bias is None else "reading the bias table, here nothing"


def spacing_needed(profile: Profile, m: int, n: int) -> bool:
    """Return whether products that add to one (m, n) tile need a barrier between them.

    Source   AscendC Mmad page: below `same_l0c_spacing_cycles` fractals the accumulator comes back too late
    """
    cube = profile.cube
    return -(-m // cube.m0) * -(-n // cube.n0) < cube.same_l0c_spacing_cycles


def is_small(profile: Profile, m: int, n: int) -> bool:
    """Return whether the operators' kernels let the cube come to rest after a product of m x n elements.

    They count elements, and the device fractals, of which a tile may fill the last ones in part.
    """
    cube = profile.cube
    return m * n < cube.same_l0c_spacing_cycles * cube.m0 * cube.n0
