"""Do the nests of grad_input give what their loops say, from the weights that `pack_weight` places?"""

import random

import numpy as np
import pytest

from ascendsim import ConvProblem, Tiling, load_profile
from ascendsim.errors import AscendSimError, ProgramError
from ascendsim.instructions.cube import Im2col, Mmad, TapRows, round_up, spacing_needed
from ascendsim.instructions.fixpipe import CopyL0cToUb, Fixpipe, StallCube
from ascendsim.instructions.flags import PipeBarrier
from ascendsim.instructions.movers import CopyGmToL1, FillL1, LoadL0A, LoadL0B
from ascendsim.instructions.relayout import CopyUbToL1, SpreadPixels
from ascendsim.instructions.vector import CopyGmToUb, CopyUbToGm, Fill
from ascendsim.numerics.factor import Threads
from ascendsim.ops.gradients.layouts import packed_kernels
from ascendsim.ops.lowering.layouts import pack_weight
from ascendsim.ops.problems.products import DgradGemm, WgradGemm
from ascendsim.ops.schedules.base import schedule_named
from ascendsim.ops.schedules.blocks import tile_rings
from ascendsim.ops.schedules.dgrad import nest
from ascendsim.ops.schedules.dgrad.nest import Dgrad, DgradNest, DgradTiles
from ascendsim.ops.schedules.vector.dilation import insertion_pieces as pieces
from ascendsim.ops.schedules.wgrad.nest import Wgrad
from ascendsim.program import walk
from ascendsim.program.places import Gm, Slot
from ascendsim.program.program import ProgramBuilder
from ascendsim.program.walk import Axis
from tests.helpers.conv_cases import SPLIT, UNIFIED, Tiles, blocks_of, plain

# --- Do the nests of grad_input give what their loops say, written out in plain Python task by task? ---
# What is written out here looks tiles up by what they hold and reckons every instruction of its own task;
# the nests go by numbers, and make costs of classes.


class Written:
    """The program of a core, written out."""

    def __init__(self, schedule, tasks):
        self.s, self.cut, self.gemm, self.t = schedule, schedule.tasks, schedule.gemm, schedule.tiling
        self.profile = schedule.profile
        # The operators' kernels: those of the 950 call for tiles ahead, others count the slots of L1.
        self.operator = self.s.name not in ("dgrad", "dgrad_columns_outer")
        self.ahead = self.operator and self.profile.npu_arch == "3510"
        self.counted = self.operator and self.s.name != "dgrad_split" and not self.ahead
        b = self.b = ProgramBuilder(self.profile)
        sizes = self.cut.sizes(tasks)
        self.left, self.right, *self.l0, self.l0c = tile_rings(b, self.t, sizes, self.gemm.sliding.itemsize)
        self.left, self.right = Tiles(self.left), Tiles(self.right)
        gaps = self.profile.core_structure == "unified" and self.gemm.sliding.insert != (1, 1)
        self.direct, self.ub = self.profile.has_path("L0C", "GM"), None
        size, c0 = schedule.target.itemsize, self.gemm.out_c0
        if not self.direct:
            half = b.room("UB") // (1 + gaps) // 2
            self.most = min(round_up(sizes.n, c0), max(c0, half // (sizes.m * size) // c0 * c0))
            self.out = b.ring("UB", sizes.m * self.most * size, "out", 2)
        if gaps:
            self.piece_bytes = min(b.room("UB"), b.capacity("UB") // 2) // 4 // 32 * 32
            self.ub = [b.ring("UB", self.piece_bytes, name, 2) for name in ("pixels", "expanded")]
        for task in blocks_of(self.cut, tasks):
            self.task(task, self.cut.cuts[task.phase] if hasattr(self.cut, "cuts") else self.cut)
        self.program = b.build()

    def task(self, task, cut):
        pairs, run, b = self.gemm.depths[task.depth], (task.first_pixel, task.pixels), self.b
        for part in cut.parts:
            met = [segment for segment in part if self.reads(cut, run, segment.left)]
            if not met:
                continue
            c, first = self.l0c.next(), True
            for kernel, source in pairs:
                self.places = [
                    self.counted_places(task, [segment.left for segment in met], 0),
                    self.counted_places(task, [segment.right for segment in met], 1),
                ]
                for number, segment in enumerate(met):
                    image = self.image(task, cut, source, segment.left)
                    weights = self.weights(task, cut, kernel, segment.right)
                    if self.ahead:
                        lefts = [other.left for other in met[number:] if other.left != segment.left]
                        rights = [other.right for other in met[number:] if other.right != segment.right]
                        if lefts and self.t.al1_buffers > 1:
                            self.image(task, cut, source, lefts[0])
                        if rights and self.t.bl1_buffers > 1:
                            self.weights(task, cut, kernel, rights[0])
                    for at, beside, groups in segment.slices:
                        a, own = self.l0[0].next(), self.l0[1].next()
                        tile, s = cut.tile(run, segment.left), cut.gemm.sliding
                        rows = Im2col(tile.window, tile.first_pixel, run[1], at, groups, s.itemsize)
                        b.add(LoadL0A(a, image, rows))
                        taps = segment.right.rows * segment.right.cols, cut.gemm.backwards, beside, groups
                        b.add(LoadL0B(own, weights, TapRows(*taps, s.c0, task.columns, s.itemsize)))
                        if not self.operator and not first and self.spaced(task):
                            b.add(PipeBarrier("M"))
                        k, dtype = groups * s.c0, self.gemm.compute_dtype
                        b.add(Mmad(c, a, own, run[1], k, task.columns, dtype, first))
                        if self.operator and run[1] * task.columns < 2560:
                            b.add(PipeBarrier("M"))
                        first = False
            self.write(task, cut, c, len(cut.parts) > 1)

    def spaced(self, task):
        return spacing_needed(self.profile, task.pixels, task.columns)

    def counted_places(self, task, boxes, side):
        """The place in L1 of each box of a reduction, where the kernel counts them; forget what is lost."""
        copies, tiles = (self.t.al1_buffers, self.left) if side == 0 else (self.t.bl1_buffers, self.right)
        boxes = list(dict.fromkeys(boxes))
        if not self.counted or copies == 1:
            return {}
        if len(boxes) > copies:
            tiles.forget()
        runs, length, begin = (
            (self.cut.pixel_tiles, self.t.block_m, task.first_pixel)
            if side == 0
            else (self.cut.column_tiles, self.t.block_n, task.first_column)
        )
        number = sum(begin // length * length <= first < begin for first, _ in runs)
        return {box: number * len(boxes) + j for j, box in enumerate(boxes)}

    def reads(self, cut, run, box):
        """Whether the pass of a box reads any pixel; a nest without passes leaves nothing out."""
        loop = self.t.tap_loop
        if not loop:
            return True
        whole = cut.gemm.all_taps
        taps = whole._replace(row=box.row, rows=1)
        if loop == "khkw":
            taps = taps._replace(col=box.col, cols=1)
        return cut.gemm.sliding.tile(*run, taps).rows is not None

    def image(self, task, cut, source, box):
        place = task.group, task.image, source, task.first_pixel, task.pixels, box[:2]
        # Phases have taps of their own; where all of them see one tile they share it.
        shared = getattr(self.cut, "shares_tiles", False)
        place = place if shared else (*place, box, task.phase)
        slot = self.left.find(place)
        if box in self.places[0]:
            self.left.point(self.places[0][box])
        if slot is None:
            slot, tile = self.left.next(place), cut.tile((task.first_pixel, task.pixels), box)
            channels = slice(box.channel, box.channel + box.channels)
            index = task.group, task.image, source, channels, tile.rows, tile.cols
            if tile.rows is not None and self.ub:
                self.spread(slot, tile, index)
                return slot
            if tile.clear:
                # Where the kernel counts slots it clears the whole of one: room for the largest tile.
                whole = self.counted and self.gemm.sliding.insert != (1, 1) and not self.ub
                most = max(cut.tile(run, own).l1_bytes for run in cut.pixel_tiles for own in cut.left_boxes)
                cleared, size = most if whole else tile.l1_bytes, self.gemm.sliding.itemsize
                self.b.add(FillL1(slot, cleared, tile.window.tile_shape, size))
                if whole and tile.rows is not None:
                    self.b.add(PipeBarrier("MTE2"))
            if tile.rows is not None:
                place = Gm(self.gemm.source, index)
                self.b.add(CopyGmToL1(slot, place, tile.gm_bytes, (), tile.window, tile.placement))
        return slot

    def spread(self, slot, tile, index):
        w, c0 = tile.window, tile.window.c0
        for number, piece in enumerate(pieces(tile, self.piece_bytes)):
            channels, rows, cols, source_rows, source_cols, at = piece
            pixels, expanded = self.ub
            own, size = expanded.next(), len(channels) * len(rows) * len(cols) * 32
            self.b.add(Fill(own, (len(channels), len(rows), len(cols), c0), size))
            if source_rows and source_cols:
                taken = len(channels), len(source_rows), len(source_cols)
                parts = zip(index[3:], (channels, source_rows, source_cols), strict=True)
                place = *index[:3], *[slice(a.start + p.start, a.start + p.stop) for a, p in parts]
                bytes_ = taken[0] * taken[1] * taken[2] * 32
                self.b.add(CopyGmToUb(pixels.next(), Gm(self.gemm.source, place), bytes_, (*taken, c0)))
                step = tile.placement.row_step, tile.placement.col_step
                self.b.add(SpreadPixels(own, pixels.last, *taken, 32, at, step))
            begin = channels.start, rows.start, cols.start
            whole = w.channels, w.rows, w.cols, c0
            self.b.add(CopyUbToL1(slot, own, size, whole, begin, number == 0))

    def weights(self, task, cut, kernel, box):
        place = task.group, kernel, task.first_column, box, task.phase
        slot = self.right.find(place)
        if box in self.places[1]:
            self.right.point(self.places[1][box])
        if slot is None:
            slot, s = self.right.next(place), cut.gemm.sliding
            columns = slice(task.first_column, task.first_column + task.columns)
            index = task.group, kernel, *cut.kernel_slices[box], slice(None), columns
            rows = s.c0 * task.columns
            size = box.groups * rows * s.itemsize
            self.b.add(CopyGmToL1(slot, Gm(self.gemm.weights, index), size, (box.groups, rows)))
        return slot

    def write(self, task, cut, c, atomic):
        target, c0, (m, n) = self.s.target, self.gemm.out_c0, (task.pixels, task.columns)

        def place(first, count):
            begin = (task.first_column + first) // c0
            index = task.group, task.image, task.depth, slice(begin, begin + count // c0)
            phase = getattr(cut, "phase", None)
            if phase is None:
                return Gm(target, (*index, slice(task.first_pixel, task.first_pixel + m)))
            # The pixels lie in whole rows of the phase, or inside one.
            width = cut.gemm.sliding.out_size[1]
            pixels = range(task.first_pixel, task.first_pixel + m)
            rows, cols = {pixel // width for pixel in pixels}, {pixel % width for pixel in pixels}
            lines = [
                slice(first + step * min(own), first + step * max(own) + 1, step)
                for first, step, own in zip(phase.first, phase.step, (rows, cols), strict=True)
            ]
            return Gm(target, (*index, *lines))

        if self.direct:
            self.b.add(Fixpipe(place(0, n), c, m * n * target.itemsize, c0, atomic))
            return
        path = self.profile.paths["L0C_UB"]
        if self.t.cl0_buffers > 1 and path.m_stall_share > 0:
            self.b.add(StallCube(m * n))
        for first in range(0, n, self.most):
            count, slot = min(self.most, n - first), self.out.next()
            self.b.add(CopyL0cToUb(slot, c, first, count, target.dtype, m * count, c0, path.pipe))
            self.b.add(CopyUbToGm(place(first, count), slot, m * count * target.itemsize, atomic))


# --- random ones


def problem(rng, name):
    """A convolution of few images, with whatever the nest takes."""
    dims, plain, split = rng.choice([1, 2, 2, 3]), name == "dgrad_c04", name == "dgrad_split"
    kernel = [rng.choice([1, 2, 3, 5]) for _ in range(dims)]
    stride = [1 if plain else rng.choice([1, 2, 3, 2]) for _ in kernel]
    dilation = [1 if plain or split else rng.choice([1, 1, 2]) for _ in kernel]
    padding = [rng.choice([0, taps // 2, taps - 1]) for taps in kernel]
    size = [rng.choice([4, 7, 9, 14]) for _ in kernel]
    groups, images = rng.choice([1, 1, 2]), rng.choice([1, 3])
    channels = rng.choice([3, 16, 40]) * groups, rng.choice([2, 4] if plain else [16, 24, 48]) * groups
    transposed = not plain and name not in ("dgrad_split", "dgrad_passes") and rng.random() < 0.2
    # The weights of a transposed one are told by its input, of others by its output.
    shapes = (images, channels[transposed], *size), (channels[1], channels[0] // groups, *kernel)
    attributes = tuple(stride), tuple(padding), tuple(dilation)
    return ConvProblem(*shapes, *attributes, groups=groups, transposed=transposed)


def tiling(rng, name, cores):
    """A tiling of small tiles, with whatever the nest reads."""
    base = rng.choice([16, 32, 48]), rng.choice([16, 32]), rng.choice([16, 32, 48])
    copies = {f"{ring}_buffers": rng.choice([1, 2]) for ring in ("al1", "bl1", "al0", "bl0", "cl0")}
    steps = rng.choice([1, 3, 9]), rng.choice([1, 3, 9])
    more = {"used_cores": rng.randint(1, cores)}
    if name != "dgrad_c04":
        more["k_split"] = rng.choice([1, 1, 2])
    if name == "dgrad":
        more |= rng.choice([{}, {"pixel_dim": 3}, {"batch_dim": 2, "n_dim": 2}, {"m_dim": 2}])
    elif name != "dgrad_columns_outer":
        order = ["batch", "group", "d", "m", "n"]
        rng.shuffle(order)
        order = rng.choice([order, ["batch", "group", "d", "m", "n"]])
        more |= {"task_order": " ".join(order), "mapping": rng.choice(["interleaved", "contiguous"])}
        more |= {"single_core_m": rng.choice([1, 2]) * base[0], "single_core_n": rng.choice([0, base[1]])}
    if name == "dgrad_split":
        more["kernel_split"] = rng.choice(["h", "hw"])
    if name == "dgrad_passes":
        more["tap_loop"] = rng.choice(["kh", "khkw"])
    return Tiling(*base, *steps, **copies, **more)


def random_schedule(name, profile, seed):
    """The first random schedule that is legal, with the tasks of its cores, of which some are."""
    rng = random.Random(f"{name} {profile.variant} {seed}")
    for _ in range(200):
        try:
            gemm = DgradGemm.of(problem(rng, name), rng.choice(["float16", "float16", "float32"]))
            schedule = schedule_named(name)(gemm, tiling(rng, name, profile.cores.cube), profile)
            dealt = [tasks for tasks in schedule.dealt() if len(tasks)][:3]
            programs = [schedule.program(tasks) for tasks in dealt]
        except AscendSimError:
            continue
        if 0 < sum(map(len, programs)) < 6000:
            return schedule, dealt, programs
    raise AssertionError(name)


SHARED = load_profile("950PR_9589")
CASES = [
    *[
        (name, SPLIT)
        for name in ("dgrad", "dgrad_columns_outer", "dgrad_shares", "dgrad_split", "dgrad_passes")
    ],
    *[(name, UNIFIED) for name in ("dgrad", "dgrad_shares", "dgrad_passes")],
    *[(name, SHARED) for name in ("dgrad", "dgrad_c04", "dgrad_split")],
]


def told(instruction):
    """What an instruction says, with slots by their numbers and slices by name and index."""

    def field(each):
        if isinstance(each, Slot):
            return each.buffer, each.index, each.size_bytes
        return (each.tensor.name, each.index) if isinstance(each, Gm) else each

    return type(instruction), [field(each) for each in instruction]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(("name", "profile"), CASES, ids=lambda given: getattr(given, "variant", given))
def test_programs_are_those_written_out(name, profile, seed):
    schedule, dealt, programs = random_schedule(name, profile, seed)
    for tasks, program in zip(dealt, programs, strict=True):
        written = Written(schedule, tasks).program
        assert [*map(told, program.instructions)] == [*map(told, written.instructions)]
        slots, buffers = ([(own.buffer, own.size_bytes) for own in made.slots] for made in (program, written))
        assert slots == buffers
        assert program.buffer_bytes == written.buffer_bytes


def assert_numbered_alike(program):
    numbers = [int(number) for rows in program.walked(walk.TRANSFERS) for number in rows[:, 1]]
    slices = [(made.gm.tensor.name, str(made.gm.index)) for made in program.instructions if made.gm]
    pairs = set(zip(numbers, slices, strict=True))
    assert len(pairs) == len(set(numbers)) == len(set(slices))


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(("name", "profile"), CASES, ids=lambda given: getattr(given, "variant", given))
def test_equal_numbers_are_equal_slices_and_classes_cost_the_same(name, profile, seed):
    _, _, programs = random_schedule(name, profile, seed)
    for program in programs:
        program.nest.check_axes()
        assert_numbered_alike(program)


def test_phases_that_read_one_slice_number_it_alike():
    # Taps 2 at stride 2: even and odd rows meet one tap each and read the same 3 rows of grad_output. The 4
    # even rows are two tiles, of 3 rows and of one that reads nothing, the 3 odd ones one.
    gemm = DgradGemm.of(ConvProblem((1, 16, 7, 5), (16, 16, 2, 2), 2), "float16")
    own = Tiling(
        16, 16, 16, 9, 9, used_cores=1, single_core_m=32, kernel_split="h", task_order="batch group d m n"
    )
    schedule = schedule_named("dgrad_split")(gemm, own, SPLIT)
    program = schedule.program(*schedule.dealt())
    read = [str(made.gm.index) for made in program.instructions if made.gm and made.gm.tensor is gemm.source]
    assert len(read) == 2
    assert len(set(read)) == 1
    assert_numbered_alike(program)


# --- nests of one's own


def barrier(_):
    return PipeBarrier("M")


class BarredNest(DgradNest):
    """As the usual one, with a barrier before the blocks of all images but the first."""

    def block(self, t, task, *rest):
        with self.when(task[1]):
            self.emit(barrier, (), [task[1]])
        super().block(t, task, *rest)


class Barred(Dgrad):
    name = "barred"

    def nest(self, sizes):
        return BarredNest(self.name, self.tasks, sizes, self.target)


def test_a_nest_under_an_inherited_cut_says_itself_which_cores_are_alike():
    # Three images on three cores: the usual nest does the same for each, this one has a barrier on two.
    gemm = DgradGemm.of(ConvProblem((3, 16, 4, 4), (16, 16, 1, 1)), "float16")
    usual, own = (kind(gemm, Tiling(16, 16, 16, used_cores=3), SPLIT) for kind in (Dgrad, Barred))
    assert len({usual.signature(tasks) for tasks in usual.dealt()}) == 1
    lengths = [len(own.program(tasks)) for tasks in own.dealt()]
    first, second, third = (own.signature(tasks) for tasks in own.dealt())
    assert [length - lengths[0] for length in lengths] == [0, 1, 1]
    assert first != second == third


class AlikeTiles(DgradTiles):
    """Takes base blocks of all sizes for one class."""

    def __init__(self, *given, **options):
        super().__init__(*given, **options)
        self.counts = Axis(len(self.runs))


class Alike(Barred):
    def nest(self, sizes):
        return DgradNest("alike", self.tasks, sizes, self.target)


def test_a_nest_whose_axes_are_wrong_is_refused_when_its_cost_is_asked_for(monkeypatch):
    # 25 pixels are tiles of 16 and 9, whose products cost the cube the same, but which leave by bytes.
    monkeypatch.setattr(nest, "DgradTiles", AlikeTiles)
    gemm = DgradGemm.of(ConvProblem((1, 16, 5, 5), (16, 16, 1, 1)), "float16")
    schedule = Alike(gemm, Tiling(16, 16, 16, used_cores=1), SPLIT)
    with pytest.raises(ProgramError, match=r"nest alike: .* does not cost what"):
        schedule.signature(*schedule.dealt())


# --- Are nests that share their steps those that cores of other sizes would have written themselves? ---

PROBLEM = ConvProblem((2, 48, 9, 10), (40, 48, 3, 3), 1, 1)
TILING = Tiling(base_m=32, base_n=32, base_k=32, used_cores=20)


@pytest.mark.parametrize("product", ["910B2", "910A"])
@pytest.mark.parametrize(("kind", "gemm"), [(Dgrad, DgradGemm), (Wgrad, WgradGemm)])
def test_cores_of_all_sizes_do_what_a_nest_of_their_own_says(kind, gemm, product):
    schedule = kind(gemm.of(PROBLEM, "float16"), TILING, load_profile(product))
    dealt = [tasks for tasks in schedule.dealt() if len(tasks)]
    shared = [schedule.program(tasks) for tasks in dealt]
    alone = [kind(schedule.gemm, TILING, schedule.profile).program(tasks) for tasks in dealt]
    assert len({program.nest.slots_reserved[0].size_bytes for program in shared}) > 1
    # Where results go through UB their pieces follow from the sizes, so that each has steps of its own.
    assert (len({id(program.nest.code) for program in shared}) == 1) == (product == "910B2")
    assert [plain(program) for program in shared] == [plain(program) for program in alone]
    assert all(
        one in program.slots for program in shared for made in program.instructions for one in made.writes
    )


# --- Are the weights that grad_input multiplies those of `pack_weight`, which says where each belongs? -

PROBLEMS = (
    ConvProblem((1, 32, 9, 9), (48, 32, 3, 3)),
    ConvProblem((1, 12, 9, 9), (40, 6, 3, 2), groups=2),
    ConvProblem((1, 20, 9), (33, 20, 5)),
    ConvProblem((1, 17, 5, 6, 7), (19, 17, 2, 3, 1)),
    ConvProblem((1, 33, 9, 9), (33, 7, 3, 3), transposed=True),
    ConvProblem((1, 34, 5, 6, 7), (34, 3, 2, 1, 3), transposed=True, groups=2),
)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("c0", [8, 16])
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_kernels_are_packed_as_the_layout_says(problem, c0, dtype):
    weight = np.random.default_rng(0).standard_normal(problem.weight).astype(dtype)
    want = pack_weight(weight.astype(np.float32), problem, c0, reduce_small=not problem.transposed, unit=1)
    for count in (1, 2):
        with Threads(count) as threads:
            made = packed_kernels(weight, problem, c0, threads)
        assert (made.shape, made.dtype) == (want.shape, want.dtype)
        assert made.tobytes() == want.tobytes()
