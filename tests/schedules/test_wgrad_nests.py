"""Do the nests of grad_weight give what their loops say, written out in plain Python block by block?

What is written out here looks tiles up by what they hold and reckons every instruction of its own block; the
nests go by numbers, and make costs of classes.
"""

import random
from itertools import product
from math import ceil

import pytest

from ascendsim import ConvProblem, Tiling, load_profile
from ascendsim.errors import AscendSimError
from ascendsim.instructions.cube import (
    Im2col,
    Mmad,
    Transposed,
    Window,
    round_up,
    spacing_needed,
)
from ascendsim.instructions.fixpipe import CopyL0cToUb, Fixpipe, StallCube
from ascendsim.instructions.flags import PipeBarrier
from ascendsim.instructions.movers import CopyGmToL1, FillL1, LoadL0A, LoadL0B
from ascendsim.instructions.vector import CopyUbToGm
from ascendsim.ops.problems.products import WgradGemm
from ascendsim.ops.schedules.base import schedule_named
from ascendsim.ops.schedules.blocks import tile_rings
from ascendsim.program import walk
from ascendsim.program.places import Gm, Slot
from ascendsim.program.program import ProgramBuilder
from tests.helpers.conv_cases import SPLIT, UNIFIED, Tiles, blocks_of, segments_of


class Written:
    """The program of a core, written out."""

    def __init__(self, schedule, tasks):
        self.s, self.cut, self.gemm, self.t = schedule, schedule.tasks, schedule.gemm, schedule.tiling
        self.profile, self.c0, self.size = schedule.profile, self.gemm.sliding.c0, self.gemm.sliding.itemsize
        # The operators' kernels: those of the 950 call for tiles ahead.
        self.operator = self.s.name not in ("wgrad", "wgrad_fractals")
        self.ahead = self.operator and self.profile.npu_arch == "3510"
        b = self.b = ProgramBuilder(self.profile)
        sizes = self.cut.sizes(tasks)
        self.left, self.right, self.l0a, self.l0b, self.l0c = tile_rings(b, self.t, sizes, self.size)
        self.left, self.right = Tiles(self.left), Tiles(self.right)
        self.direct = self.profile.has_path("L0C", "GM")
        if not self.direct:
            # Two pieces of whole fractals, of float32.
            unit = self.profile.cube.n0
            half = b.room("UB") // 2
            self.most = min(round_up(sizes.n, unit), max(unit, half // (sizes.m * 4) // unit * unit))
            self.out = b.ring("UB", sizes.m * self.most * 4, "out", 2)
        for task in blocks_of(self.cut, tasks):
            box = task.columns.box
            if self.s.name == "wgrad_fractals":
                self.forget(task)
            if not self.t.tap_loop:
                self.block(task, box, task.columns.first_group, task.columns.groups)
                continue
            for row, col in product(range(box.rows), range(box.cols)):
                self.block(task, box._replace(row=row, rows=1, col=col, cols=1), 0, box.channels)
        self.program = b.build()

    def block(self, task, box, first_group, groups):
        b, base_k, width = self.b, self.t.base_k, groups * self.c0
        c, first = self.l0c.next(), True
        if self.t.tap_loop:
            self.zeros(task, c, width)
            first = False
        segments, reduction = segments_of(self.cut, task.depth, task.part), None
        for number, (small_depth, big_depth, (image, begin, pixels)) in enumerate(segments):
            left, right = self.tiles(begin, pixels)
            strip = small_depth, image, self.cut.strips.strip(begin)
            if strip != reduction:
                reduction = strip
                # Places are counted anew with every image, depth, and strip of columns.
                rest = [
                    self.tiles(*own[1:])
                    for depth, _, own in segments[number:]
                    if (depth, own[0], self.cut.strips.strip(own[1])) == strip
                ]
                chunks = [list(dict.fromkeys(side)) for side in zip(*rest, strict=True)]
                self.places = [self.counted_places(task, *side) for side in enumerate(chunks)]
            if self.operator:
                big, tile = self.big(task, image, big_depth, right, box)
                small = self.small(task, image, small_depth, left)
                lefts, rights = (
                    own[own.index(at) + 1 :] for own, at in zip(chunks, (left, right), strict=True)
                )
                if self.ahead and rights and self.t.bl1_buffers > 1:
                    self.big(task, image, big_depth, rights[0], box)
                if self.ahead and lefts and self.t.al1_buffers > 1:
                    self.small(task, image, small_depth, lefts[0])
            else:
                small = self.small(task, image, small_depth, left)
                big, tile = self.big(task, image, big_depth, right, box)
            out_width = tile.window.out_width
            for at in range(0, pixels, base_k):
                k, a, own = min(base_k, pixels - at), self.l0a.next(), self.l0b.next()
                place = begin + at - right[0] + tile.first_pixel
                rows = task.rows // self.c0, begin + at - left[0], k, self.c0, self.size
                above = (task.first_row - self.rows(task)[0]) // self.c0
                loads = [
                    LoadL0A(a, small, Transposed(*rows, place % out_width, out_width, above)),
                    LoadL0B(own, big, Im2col(tile.window, place, k, first_group, groups, self.size)),
                ]
                for load in reversed(loads) if self.operator else loads:
                    b.add(load)
                if not self.operator and not first and spacing_needed(self.profile, task.rows, width):
                    b.add(PipeBarrier("M"))
                b.add(Mmad(c, a, own, task.rows, k, width, self.gemm.compute_dtype, first))
                if self.operator and task.rows * width < 2560:
                    b.add(PipeBarrier("M"))
                first = False
        self.write(task, box, c, width)

    def zeros(self, task, c, width):
        """The product of zeros with which a tap begins: of C0 pixels, which load3d takes for an image."""
        b, c0, one = self.b, self.c0, (1, 1)
        zeros, most = self.right.next(), max(task.rows, width)
        a, own = self.l0a.next(), self.l0b.next()
        b.add(FillL1(zeros, most * c0 * self.size, (most + 1, c0), self.size))
        b.add(PipeBarrier("MTE2"))
        of_big = Window(width // c0, 1, c0, 0, 0, c0, one, one, one, c0)
        b.add(LoadL0B(own, zeros, Im2col(of_big, 0, c0, 0, width // c0, self.size)))
        of_small = Window(1, 1, task.rows, 0, 0, task.rows, one, one, one, c0)
        b.add(LoadL0A(a, zeros, Im2col(of_small, 0, task.rows, 0, 1, self.size)))
        b.add(Mmad(c, a, own, task.rows, c0, width, self.gemm.compute_dtype, True))
        if task.rows * width < 2560:
            b.add(PipeBarrier("M"))

    def tiles(self, begin, pixels):
        """The pixels of the tiles in L1 of both sides that serve a range."""
        left, right = (self.serves(begin, pixels, step) for step in (self.t.step_ka, self.t.step_kb))
        return self.rows_of(begin, pixels) if self.t.strip_w else left, right

    def counted_places(self, task, side, chunks):
        """The place in L1 of each tile of a reduction, where the kernel counts them; forget what is lost."""
        copies, tiles = (self.t.al1_buffers, self.left) if side == 0 else (self.t.bl1_buffers, self.right)
        if not self.operator or copies == 1:
            return {}
        if len(chunks) > copies:
            tiles.forget()
        if side == 0:
            length, begin = self.t.block_m, task.first_row
            firsts = [(first, first) for first, _ in self.cut.row_tiles]
        else:
            # Tasks of shares count columns through all kernel depths.
            base = task.depth * self.gemm.output.shape[3] if self.s.name == "wgrad_shares" else 0
            length, begin = self.t.block_n, base + task.columns.first_column
            # Blocks whose columns lie under taps of one tile have it in one place.
            firsts = [(base + block.first_column, block.box) for block in self.cut.column_blocks]
        number = len({tile for first, tile in firsts if begin // length * length <= first <= begin}) - 1
        return {tile: number * len(chunks) + j for j, tile in enumerate(chunks)}

    def serves(self, begin, pixels, step):
        """The pixels of the tile in L1 that a range lies in: a range of its own but where shares say more."""
        whole = self.gemm.sliding.pixels
        if self.s.name == "wgrad_fractals":
            # An equal number of fractals for each part, but for the last one.
            share = ceil(ceil(whole / 16) / max(1, self.t.k_dim)) * 16
        elif self.s.name == "wgrad_shares":
            share = min(self.t.single_core_k or whole, whole)
        else:
            return begin, pixels
        end = min(whole, (begin // share + 1) * share)
        first = begin - (begin % share) % (step * self.t.base_k)
        return first, min(step * self.t.base_k, end - first)

    def rows_of(self, begin, pixels):
        """The range, if it lies in one row of its strip, else all pixels of the rows that it touches."""
        strip = self.cut.strips.strip(begin)
        rows = [(pixel - strip.first) // strip.width for pixel in (begin, begin + pixels - 1)]
        if rows[0] == rows[1]:
            return begin, pixels
        return strip.first + rows[0] * strip.width, (rows[1] - rows[0] + 1) * strip.width

    def rows(self, task):
        """The first row that a left tile has, and the end: those of `step_m` blocks, inside a cell."""
        if self.s.name != "wgrad_fractals":
            return task.first_row, task.first_row + task.rows
        base, whole, block = self.t.base_m, self.gemm.rows, task.first_row // self.t.base_m
        of_cell = ceil(ceil(whole / base) / max(1, self.t.m_dim))
        begin = block - block % of_cell % self.t.step_m
        end = min(begin + self.t.step_m, block - block % of_cell + of_cell)
        return begin * base, min(end * base, whole)

    def forget(self, task):
        """Nothing stays of an operand with several copies where a strip of columns begins."""
        columns = [block.first_column for block in self.cut.column_blocks]
        of_cell = ceil(len(columns) / max(1, self.t.n_dim))
        column = columns.index(task.columns.first_column) % of_cell
        # A right tile serves all rows of a cell.
        tiles = ceil(self.gemm.rows / self.t.base_m)
        top = task.first_row // self.t.base_m % ceil(tiles / max(1, self.t.m_dim)) == 0
        firsts = (self.left, task.first_row == self.rows(task)[0]), (self.right, top)
        for tiles, first in firsts:
            if column % self.t.step_n == 0 and first and tiles.ring.count > 1:
                tiles.forget()

    def small(self, task, image, depth, tile):
        top, end = self.rows(task)
        place = task.group, top, image, depth, tile
        slot = self.left.find(place)
        if tile in self.places[0]:
            self.left.point(self.places[0][tile])
        if slot is None:
            slot = self.left.next(place)
            channels = slice(top // self.c0, end // self.c0)
            pixels = (slice(tile[0], sum(tile)),)
            if self.t.strip_w:
                strip = self.cut.strips.strip(tile[0])
                spots = [divmod(pixel - strip.first, strip.width) for pixel in range(tile[0], sum(tile))]
                rows, cols = {row for row, _ in spots}, {strip.left + col for _, col in spots}
                pixels = slice(min(rows), max(rows) + 1), slice(min(cols), max(cols) + 1)
            source = Gm(self.gemm.small, (task.group, image, depth, channels, *pixels))
            shape = (end - top) // self.c0, tile[1], self.c0
            self.b.add(CopyGmToL1(slot, source, (end - top) * tile[1] * self.size, shape))
        return slot

    def big(self, task, image, depth, pixels, box):
        place, tile = (task.group, box, image, depth, pixels), self.cut.tile(pixels, box)
        slot = self.right.find(place)
        if pixels in self.places[1]:
            self.right.point(self.places[1][pixels])
        if slot is None:
            slot, window = self.right.next(place), tile.window
            if tile.clear:
                self.b.add(FillL1(slot, tile.l1_bytes, window.tile_shape, self.size))
            if tile.rows is not None:
                channels = slice(box.channel, box.channel + box.channels)
                index = task.group, image, depth, channels, tile.rows, tile.cols
                runs = 1
                if self.t.tap_loop:
                    apart = self.gemm.sliding.stride[1] > 1
                    runs = window.channels * window.rows * (window.cols if apart else 1)
                copied = tile.gm_bytes, (), window, tile.placement, runs
                self.b.add(CopyGmToL1(slot, Gm(self.gemm.big, index), *copied))
        return slot, tile

    def write(self, task, box, c, width):
        m, b = task.rows, self.b
        # Stream-K keeps parts apart, and not the whole.
        apart = self.s.target is not self.gemm.output and task.part != getattr(self.cut, "whole", None)
        target = self.s.target if apart else self.gemm.output

        def place(first, count):
            index = *((task.part,) if apart else ()), task.group, task.depth
            index = *index, slice(task.first_row, task.first_row + m)
            if not self.t.tap_loop:
                begin = task.columns.first_column + first
                return Gm(target, (*index, slice(begin, begin + count)))
            begin, tap = box.channel + first // self.c0, box.row * self.gemm.sliding.kernel[1] + box.col
            return Gm(target, (*index, slice(begin, begin + count // self.c0), tap))

        if self.direct:
            # Groups of 8 channels cut the fractals of the weights.
            b.add(Fixpipe(place(0, width), c, m * width * 4, 0, self.s.atomic, self.c0 < 16))
            return
        path = self.profile.paths["L0C_UB"]
        if self.t.cl0_buffers > 1 and path.m_stall_share > 0:
            b.add(StallCube(m * width))
        for first in range(0, width, self.most):
            count, slot = min(self.most, width - first), self.out.next()
            b.add(CopyL0cToUb(slot, c, first, count, "float32", m * count, 0, path.pipe))
            b.add(CopyUbToGm(place(first, count), slot, m * count * 4, self.s.atomic))


# --- random ones


def problem(rng):
    """A convolution of few images; some taps of it read nothing but padding."""
    dims, groups = rng.choice([1, 2, 2, 2, 3]), rng.choice([1, 1, 2])
    kernel = [rng.choice([1, 2, 3, 4]) for _ in range(dims)]
    padding = [rng.choice([0, taps // 2, taps]) for taps in kernel]
    size = [rng.choice([4, 7, 9, 14]) for _ in kernel]
    stride, dilation = ([rng.choice([1, 1, 2, 3]) for _ in kernel] for _ in range(2))
    channels = rng.choice([3, 16, 40]) * groups, rng.choice([16, 24, 48]) * groups
    shapes = (rng.choice([1, 3]), channels[0], *size), (channels[1], channels[0] // groups, *kernel)
    return ConvProblem(*shapes, tuple(stride), tuple(padding), tuple(dilation), groups=groups)


def tiling(rng, name, gemm, cores):
    """A tiling of small tiles, with whatever the nest reads."""
    base = rng.choice([16, 32, 48]), rng.choice([16, 32, 48]), rng.choice([16, 32, 48])
    copies = {f"{ring}_buffers": rng.choice([1, 2]) for ring in ("al1", "bl1", "al0", "bl0", "cl0")}
    step, more = rng.choice([1, 2, 4]), {"used_cores": rng.randint(1, cores)}
    steps = step, step
    if name == "wgrad":
        more |= rng.choice([{"k_split": 3}, {}, {"batch_dim": 2, "n_dim": 2}, {"k_dim": 2, "m_dim": 2}])
        return Tiling(*base, *steps, **copies, **more)
    if name == "wgrad_fractals":
        more |= {axis: rng.choice([0, 1, 2, 3]) for axis in ("batch_dim", "k_dim", "m_dim", "n_dim")}
        more |= {"step_m": rng.choice([1, 2, 3]), "step_n": rng.choice([1, 2, 4])}
        return Tiling(*base, step, rng.choice([1, 2, 4]), **copies, **more)
    axes = ["group", "d", "m", "n"]
    if name == "wgrad_shares":
        axes += ["k", "batch"]
        steps = step, rng.choice([1, 2, 4])
        more |= {"single_core_k": rng.choice([0, 16, 64]), "batch_dim": rng.choice([0, 2])}
    else:
        more |= rng.choice([{}, {"k_split": 2, "stream_axis": rng.choice(["height", "batch_depth"])}])
        more |= {"strip_w": rng.choice([0, 0, 3, 8])}
    more |= {"single_core_m": rng.choice([1, 2]) * base[0], "single_core_n": rng.choice([0, 2 * base[1]])}
    if name == "wgrad_taps":
        window = gemm.sliding.kernel[0] * gemm.sliding.kernel[1] * gemm.sliding.c0
        more |= {"tap_loop": "khkw", "single_core_n": rng.choice([1, 2]) * window}
    rng.shuffle(axes)
    more |= {"task_order": " ".join(axes), "mapping": rng.choice(["interleaved", "contiguous"])}
    return Tiling(*base, *steps, **copies, **more)


def random_schedule(name, profile, seed):
    """The first random schedule that is legal, with the tasks of its cores, of which some are."""
    rng = random.Random(f"{name} {profile.variant} {seed}")
    for _ in range(200):
        try:
            gemm = WgradGemm.of(problem(rng), rng.choice(["float16", "float16", "float32"]))
            sums = rng.choice(["atomic", "in order", "tree"])
            schedule = schedule_named(name)(gemm, tiling(rng, name, gemm, profile.cores.cube), profile, sums)
            dealt = [tasks for tasks in schedule.dealt() if len(tasks)][:3]
            programs = [schedule.program(tasks) for tasks in dealt]
        except AscendSimError:
            continue
        if 0 < sum(map(len, programs)) < 6000:
            return schedule, dealt, programs
    raise AssertionError(name)


NAMES = ["wgrad", "wgrad_fractals", "wgrad_shares", "wgrad_stream", "wgrad_taps"]
CASES = [(name, profile) for profile in (SPLIT, UNIFIED, load_profile("950PR_9589")) for name in NAMES]
everywhere = pytest.mark.parametrize(
    ("name", "profile"), CASES, ids=lambda given: getattr(given, "variant", given)
)


def told(instruction):
    """What an instruction says, with slots by their numbers and slices by name and index."""

    def field(each):
        if isinstance(each, Slot):
            return each.buffer, each.index, each.size_bytes
        return (each.tensor.name, each.index) if isinstance(each, Gm) else each

    return type(instruction), [field(each) for each in instruction]


@pytest.mark.parametrize("seed", range(12))
@everywhere
def test_programs_are_those_written_out(name, profile, seed):
    schedule, dealt, programs = random_schedule(name, profile, seed)
    for tasks, program in zip(dealt, programs, strict=True):
        written = Written(schedule, tasks).program
        assert [*map(told, program.instructions)] == [*map(told, written.instructions)]
        slots, buffers = ([(own.buffer, own.size_bytes) for own in made.slots] for made in (program, written))
        assert slots == buffers
        assert program.buffer_bytes == written.buffer_bytes


@pytest.mark.parametrize("seed", range(12))
@everywhere
def test_equal_numbers_are_equal_slices_and_classes_cost_the_same(name, profile, seed):
    _, _, programs = random_schedule(name, profile, seed)
    for program in programs:
        program.nest.check_axes()
        numbers = [int(number) for rows in program.walked(walk.TRANSFERS) for number in rows[:, 1]]
        slices = [(made.gm.tensor.name, str(made.gm.index)) for made in program.instructions if made.gm]
        pairs = set(zip(numbers, slices, strict=True))
        assert len(pairs) == len(set(numbers)) == len(set(slices))
