"""Cube cores that hand tiles over to the vector cores beside them, through a workspace in global memory."""

import random
from functools import partial

import numpy as np
import pytest

from ascendsim.errors import CapacityError, ProgramError
from ascendsim.functional import run_kernel
from ascendsim.instructions.cube import Mmad, Submatrix
from ascendsim.instructions.elementwise import Cast
from ascendsim.instructions.fixpipe import Fixpipe
from ascendsim.instructions.movers import CopyGmToL1, LoadL0A, LoadL0B
from ascendsim.instructions.vector import CopyGmToUb, CopyUbToGm
from ascendsim.numerics.accumulation import AccumulationModel, MathSettings
from ascendsim.program.kernel import Core, CoreWork, Kernel, Phase
from ascendsim.program.nest import Nest
from ascendsim.program.places import Gm, GmTensor
from ascendsim.program.program import NestProgram, ProgramBuilder
from ascendsim.program.waits import HAZARDS
from ascendsim.timing import kernel as door
from ascendsim.timing.critical_path import critical_path
from ascendsim.timing.timeline import arrivals
from ascendsim.timing.times import occupation
from tests.helpers.both_engines import time_kernel
from tests.helpers.conv_cases import plain
from tests.helpers.oracles_timing import spans_of
from tests.helpers.toy_machines import Fake, FakeProfile, X, Y, toy_split

PLAIN = FakeProfile()


def fake_kernel(*programs, beside=2):
    """A kernel of one phase; programs with one signature are alike."""
    work = [
        CoreWork(Core("cube", index), signature, lambda made=made: made, beside)
        for index, (signature, made) in enumerate(programs)
    ]
    return Kernel("fake", (Phase("only", tuple(work)),), {"x": X, "y": Y}, math=None)


# --- a product whose tiles vector cores cast

TOY = toy_split()
MATH = MathSettings(AccumulationModel.parse("block:16:RNE"))
TILES = 6
A = GmTensor("a", (2 * TILES, 16, 16), "float16", 2)
B = GmTensor("b", (16, 16), "float16", 2)
PIECES = GmTensor("pieces", (2, 2, 16, 16), "float32", 4, "workspace")
C = GmTensor("c", (2 * TILES, 16, 16), "float16", 2, "output")
WHOLE = (slice(None), slice(None))
HALVES = (slice(0, 8), slice(8, 16))


def product(core, hazards=HAZARDS, named=2):
    """Multiply tiles, of which each vector core casts half; `named` slots stand for the two pieces."""
    b = ProgramBuilder(TOY, hazards)
    left, right = b.ring("L1", 512, "a", 2), b.slots("L1", 512, "b")[0]
    l0a, l0b, l0c = b.ring("L0A", 512, "a", 2), b.slots("L0B", 512, "b")[0], b.ring("L0C", 1024, "c", 2)
    pieces = b.handover(1024, "piece", named)
    read = [b.ring("UB", 512, f"read {number}", 2, on=1 + number) for number in range(2)]
    made = [b.ring("UB", 256, f"made {number}", 2, on=1 + number) for number in range(2)]
    b.add(CopyGmToL1(right, Gm(B, WHOLE), 512, (16, 16)))
    b.add(LoadL0B(l0b, right, Submatrix(0, 16, 0, 16, False, 2)))
    for tile in range(core * TILES, core * TILES + TILES):
        b.add(CopyGmToL1(left.next(), Gm(A, (tile, *WHOLE)), 512, (16, 16)))
        b.add(LoadL0A(l0a.next(), left.last, Submatrix(0, 16, 0, 16, False, 2)))
        b.add(Mmad(l0c.next(), l0a.last, l0b, 16, 16, 16, "float16", True))
        piece = pieces.next()
        place = core, pieces.turn % 2
        b.add(Fixpipe(Gm(PIECES, (*place, *WHOLE)), l0c.last, 1024), writes=(piece,))
        for number, rows in enumerate(HALVES):
            source, target = read[number].next(), made[number].next()
            on = 1 + number
            b.add(CopyGmToUb(source, Gm(PIECES, (*place, rows, WHOLE[1])), 512, (8, 16)), on, reads=(piece,))
            b.add(Cast(target, source, "float16", 128, 4), on)
            b.add(CopyUbToGm(Gm(C, (tile, rows, WHOLE[1])), target, 256), on)
    return b.build()


class ProductNest(Nest):
    """The same, written down once for both cores."""

    def __init__(self):
        super().__init__(TOY, "product")
        left, right = self.ring("L1", 512, "a", 2), self.slots("L1", 512, "b")[0]
        l0a, l0b = self.ring("L0A", 512, "a", 2), self.slots("L0B", 512, "b")[0]
        l0c = self.ring("L0C", 1024, "c", 2)
        pieces = self.handover(1024, "piece", 2)
        read = [self.ring("UB", 512, f"read {number}", 2, on=1 + number) for number in range(2)]
        made = [self.ring("UB", 256, f"made {number}", 2, on=1 + number) for number in range(2)]
        square = Submatrix(0, 16, 0, 16, False, 2)
        [core] = self.task(core=2)
        self.emit(lambda to: CopyGmToL1(to, Gm(B, WHOLE), 512, (16, 16)), [right])
        self.emit(lambda to, source: LoadL0B(to, source, square), [l0b, right])
        with self.loop(TILES, "tile") as tile:
            a1, a, c = self.next(left), self.next(l0a), self.next(l0c)
            self.emit(self.copy, [a1], [core, tile])
            self.emit(lambda to, source: LoadL0A(to, source, square), [a, a1])
            self.emit(lambda *own: Mmad(*own, 16, 16, 16, "float16", True), [c, a, l0b])
            piece = self.next(pieces)
            self.emit(self.hand_over, [c], [core, piece.turn], writes=[piece])
            for number in range(2):
                on, source, target = 1 + number, self.next(read[number]), self.next(made[number])
                self.emit(self.take, [source], [core, piece.turn, number], on=on, reads=[piece])
                self.emit(lambda to, source: Cast(to, source, "float16", 128, 4), [target, source], on=on)
                self.emit(self.leave, [target], [core, tile, number], on=on)

    def copy(self, slot, core, tile):
        return CopyGmToL1(slot, Gm(A, (core * TILES + tile, *WHOLE)), 512, (16, 16))

    def hand_over(self, slot, core, piece):
        return Fixpipe(Gm(PIECES, (core, piece, *WHOLE)), slot, 1024)

    def take(self, slot, core, piece, number):
        return CopyGmToUb(slot, Gm(PIECES, (core, piece, HALVES[number], WHOLE[1])), 512, (8, 16))

    def leave(self, slot, core, tile, number):
        return CopyUbToGm(Gm(C, (core * TILES + tile, HALVES[number], WHOLE[1])), slot, 256)


def product_of_nest(core):
    return NestProgram(ProductNest(), np.array([[core]]))


def product_kernel(make=product, **options):
    work = [CoreWork(Core("cube", core), 0, partial(make, core, **options), 2) for core in range(2)]
    tensors = {tensor.name: tensor for tensor in (A, B, PIECES, C)}
    return Kernel("product", (Phase("all", tuple(work)),), tensors, MATH)


def results(kernel, order):
    """Run a kernel on whole numbers, whose products are exact, but not in float16."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(0, 60, tensor.shape).astype(np.float32) for tensor in (A, B))
    gm = {"a": a, "b": b}
    run_kernel(kernel, gm, order=order)
    return gm["c"], np.matmul(a, b).astype(np.float16).astype(np.float32)


@pytest.mark.parametrize("order", ["program", *range(12)])
def test_every_legal_order_gives_the_bits_of_the_plain_computation(order):
    got, wanted = results(product_kernel(), order)
    np.testing.assert_array_equal(got, wanted)


# Without the wait of a reader, and without that of who overwrites a piece: as if there were six of them.
@pytest.mark.parametrize("missing", [{"hazards": HAZARDS - {"RAW"}}, {"named": TILES}])
def test_without_a_wait_of_the_hand_over_some_order_goes_wrong(missing):
    def right(seed):
        try:
            return np.array_equal(*results(product_kernel(**missing), seed))
        except ProgramError:
            return False

    assert not all(right(seed) for seed in range(12))


def test_in_the_order_of_arrival_the_bits_are_the_same():
    kernel = product_kernel()
    timeline = time_kernel(kernel, TOY)
    got, wanted = results(kernel, arrivals(kernel, timeline))
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("start", ["warm", "cold"])
def test_folded_or_not_or_as_a_nest_takes_the_same_cycles(start):
    timeline = time_kernel(product_kernel(), TOY, l2_start=start)
    apart = time_kernel(product_kernel(), TOY, l2_start=start, folded=False)
    nested = time_kernel(product_kernel(product_of_nest), TOY, l2_start=start)
    assert timeline.cycles == apart.cycles == nested.cycles
    assert spans_of(timeline.phases[0].cores[0]) == spans_of(apart.phases[0].cores[1])
    assert spans_of(timeline.phases[0].cores[0]) == spans_of(nested.phases[0].cores[0])


@pytest.mark.parametrize("core", [0, 1])
def test_a_nest_hands_over_as_a_program_that_is_written_out(core):
    nested, written = product_of_nest(core), product(core)
    assert plain(nested) == plain(written)
    assert tuple(nested.pipes) == tuple(written.pipes)
    # Slots of two programs are told by their numbers.
    posts = [
        {
            at: (post.core, *[[slot.index for slot in own] for own in (post.reads, post.writes)])
            for at, post in made.posts.items()
        }
        for made in (nested, written)
    ]
    assert posts[0] == posts[1]


def test_the_workspace_is_part_of_the_bytes():
    # Two cores: 6 tiles of a and one of b, of 512 bytes; pieces of 1024 go out and come back; c goes out.
    tiles = 2 * TILES
    assert time_kernel(product_kernel(), TOY).bytes["l2_read"] == tiles * (512 + 1024) + 2 * 512
    assert time_kernel(product_kernel(), TOY).bytes["l2_write"] == tiles * (1024 + 512)


def test_each_vector_core_has_its_own_buffer():
    b = ProgramBuilder(TOY)
    for core in (1, 2):
        b.slots("UB", 4096, "all", on=core)
    with pytest.raises(CapacityError, match="of toy_split holds 4096 bytes, but more"):
        b.slots("UB", 32, "more", on=2)


# --- mistakes


def test_a_program_has_no_third_vector_core():
    with pytest.raises(ProgramError, match="is put on core 3"):
        ProgramBuilder(TOY).add(Fake("V"), 3)


@pytest.mark.parametrize(
    ("core", "pipe", "beside", "message"),
    [
        (Core("cube", 0), "FIX", 2, "a vector core of fake has queues for"),
        (Core("vector", 0), "V", 0, "only the program of a cube core covers others"),
        (Core("cube", 0), "V", 0, "covers 1 vector cores beside .* but its work says 0"),
    ],
)
def test_a_program_on_cores_that_are_not_there(core, pipe, beside, message):
    b = ProgramBuilder(PLAIN)
    b.add(Fake(pipe), 1)
    made = Kernel("fake", (Phase("only", (CoreWork(core, 0, b.build, beside),)),), {"x": X}, math=None)
    with pytest.raises(ProgramError, match=message):
        time_kernel(made, PLAIN)


def test_two_programs_on_one_vector_core():
    made = relay()
    work = (CoreWork(Core("cube", 0), 0, lambda: made, 2), CoreWork(Core("vector", 1), 1, lambda: made))
    with pytest.raises(ProgramError, match="two programs of phase only run on"):
        time_kernel(Kernel("fake", (Phase("only", work),), {"x": X}, math=None), PLAIN)


# --- cycles, reckoned by hand


def relay(rounds=1):
    """Fixpipe writes a piece, a vector core reads it, adds and writes it; in a ring of two pieces."""
    b = ProgramBuilder(PLAIN)
    pieces = b.handover(32, "piece", 2)
    tiles = b.slots("L1", 32, "tile", 2, on=1)
    for number in range(rounds):
        tile, piece = tiles[number % 2], pieces.next()
        b.add(Fake("FIX", 10, 5), writes=(piece,))
        b.add(Fake("MTE2", 30, 7, writes=(tile,)), 1, reads=(piece,))
        b.add(Fake("V", 2, 1, reads=(tile,)), 1)
    return b.build()


def test_a_vector_core_waits_for_the_piece_and_the_cube_core_for_its_place():
    timeline = time_kernel(fake_kernel((0, relay(3))), PLAIN.but(issue_cycles=1, flag_cycles=3))
    (core,) = timeline.phases[0].cores
    issue, start, end, done = spans_of(core)
    # Each core issues its own: FIX at 1, 2, 3, the vector core its six at 1 to 6.
    assert issue == [1, 1, 2, 2, 3, 4, 3, 5, 6]
    # FIX: 1 to 11, visible at 16; 11 to 21; the third overwrites the first piece, which is read until 49.
    # MTE2: 16 + 3 = 19 to 49, visible at 56; 49 to 79, at 86; the third needs FIX from 52 to 62, visible at
    # 67, and the tile that V has read from 59 to 61, but its pipe is free only at 79.
    assert start == [1, 19, 59, 11, 49, 89, 52, 79, 119]
    assert end == [11, 49, 61, 21, 79, 91, 62, 109, 121]
    assert done == [16, 56, 62, 26, 86, 92, 67, 116, 122]


def test_each_core_has_its_own_times():
    made, profile = fake_kernel((0, relay(3))), PLAIN.but(issue_cycles=1, flag_cycles=3)
    times = door.measure_kernel(made, profile)
    cube, vector = Core("cube", 0), Core("vector", 0)
    assert [work.cores for work in times.phases[0].cores] == [(cube,), (vector,)]
    # The third piece waits from 21 to 52, for MTE2 of the vector core; see above.
    assert occupation(times, cube)["FIX"].waiting == {"AIV0.MTE2": 31}
    # Reads wait from 1 to 19; adds from 1 to 59, 61 to 89 and 91 to 119, for reads.
    assert occupation(times, vector)["MTE2"].waiting == {"AIC.FIX": 18}
    assert occupation(times, vector)["V"].waiting == {"MTE2": 57 + 28 + 28}
    assert (times.phases[0].cores[0].busy, times.phases[0].cores[0].done) == ({"S": 3, "FIX": 30}, 67)
    assert times.phases[0].cores[1].busy == {"S": 6, "MTE2": 90, "V": 6}
    assert made.cores_used == 3
    path = critical_path(door.time_kernel(made, profile))
    assert [(step.cause, step.end, step.core) for step in path] == [
        ("S", 1, cube),
        ("FIX", 11, cube),
        ("latency", 16, cube),
        ("flag", 19, vector),
        ("MTE2", 49, vector),
        ("MTE2", 79, vector),
        ("MTE2", 109, vector),
        ("latency", 116, vector),
        ("flag", 119, vector),
        ("V", 121, vector),
        ("latency", 122, vector),
    ]


def test_a_full_queue_stops_only_its_own_core():
    b = ProgramBuilder(PLAIN)
    for _ in range(4):
        b.add(Fake("FIX", 10))
    for number in range(2):
        b.add(Fake("V", 4), 1 + number)
    timeline = time_kernel(fake_kernel((0, b.build())), PLAIN.but(issue_cycles=1, depth=1))
    issue, start, *_ = spans_of(timeline.phases[0].cores[0])
    # One place in the queue of FIX: the next is issued when the one before starts. V waits for none of that.
    assert issue == [1, 2, 11, 21, 1, 1]
    assert start == [1, 11, 21, 31, 1, 1]


def test_every_core_has_a_port_of_its_own():
    b = ProgramBuilder(PLAIN)
    for core in range(3):
        b.add(Fake("MTE2", kind="read", bytes=1000, peak=1000), core)
    # Cube cores take 100 bytes a cycle, vector cores 50, alone; pipes of one core would halve that.
    profile = PLAIN.but(read=(10**6, 100), vector_cap=50)
    timeline = time_kernel(fake_kernel((0, b.build())), profile)
    assert spans_of(timeline.phases[0].cores[0])[2] == [10, 20, 20]
    # Both at work are a pair, of which each has half of 60.
    timeline = time_kernel(fake_kernel((0, b.build())), profile.but(vector_pair=60))
    assert spans_of(timeline.phases[0].cores[0])[2] == [10, 34, 34]


# --- both engines on anything


def random_program(rng, length=60):
    """Any instructions on any pipes of three cores, with slots that all of them use."""
    b = ProgramBuilder(PLAIN)
    slots = [ring.next() for ring in (b.handover(32, f"p{n}") for n in range(4))]
    for slot in slots:
        b.add(Fake("FIX", rng.randint(0, 9)), writes=(slot,))
    pipes = [(0, pipe) for pipe in ("MTE2", "MTE1", "M", "FIX")]
    pipes += [(core, pipe) for core in (1, 2) for pipe in ("MTE2", "V", "MTE3")]
    brought = set()  # slots whose newest result moved bytes: the compiled engine refuses what trails them
    for _ in range(length):
        core, pipe = rng.choice(pipes)
        moved = {}
        if rng.random() < 0.3:
            kind = "read" if pipe == "MTE2" else "write"
            moved = {"kind": kind, "bytes": rng.randint(1, 3000), "peak": rng.randint(20, 200)}
            moved |= {"place": rng.randint(0, 5), "tensor": X if kind == "read" else Y}
        used = rng.choice((0, 0, 1, 2))
        reads, writes = tuple(rng.sample(slots, used)), tuple(rng.sample(slots, rng.choice((0, 0, 1))))
        fake = Fake(
            pipe,
            rng.randint(0, 20),
            rng.randint(0, 20),
            drains=rng.random() < 0.1,
            least=rng.choice((0, 0, 15)),
            trails=pipe == "FIX" and not moved and brought.isdisjoint(reads) and rng.random() < 0.3,
            piece=rng.randint(0, 5),
            lead=rng.randint(0, 5),
            **moved,
        )
        b.add(fake, core, reads=reads, writes=writes)
        brought = brought | set(writes) if moved else brought - set(writes)
    return b.build()


@pytest.mark.parametrize("seed", range(40))
def test_both_engines_agree_on_any_program(seed):
    rng = random.Random(seed)
    profile = PLAIN.but(
        issue_cycles=rng.randint(0, 3),
        flag_cycles=rng.randint(0, 9),
        depth=rng.choice((1, 2, 5, 1000)),
        # Enough for one core of each program, but not for all three.
        read=(150 if seed % 2 else 450, 100),
        write=(120, 100),
        memory=(60, 50),
        vector_cap=40,
        vector_total=150 if seed % 2 else 450,
        latency=(3, 2, 50),
    )
    programs = [random_program(rng) for _ in range(rng.randint(1, 2))]
    pairs = [(number, made) for number, made in enumerate(programs) for _ in range(2)]
    made = fake_kernel(*pairs)
    start = rng.choice(("warm", "cold"))
    timeline = time_kernel(made, profile, l2_start=start)
    # One for all that are alike takes their cycles.
    assert time_kernel(made, profile, l2_start=start, folded=False).cycles == timeline.cycles


def test_one_core_may_be_far_ahead_of_another():
    # The cube core stops at once at a full queue, while 900 instructions further on a vector core begins.
    b = ProgramBuilder(PLAIN)
    for _ in range(900):
        b.add(Fake("MTE2", 1, kind="read", bytes=100, peak=10))
    for _ in range(900):
        b.add(Fake("MTE2", 1, kind="read", bytes=50, peak=10), 1)
    timeline = time_kernel(fake_kernel((0, b.build())), PLAIN.but(depth=2))
    end = spans_of(timeline.phases[0].cores[0])[2]
    # 1 + 100 / 10 and 1 + 50 / 10 cycles each.
    assert (end[899], end[1799]) == (900 * 11, 900 * 6)


@pytest.mark.parametrize(("cores", "cycles"), [(1, 10), (2, 10), (3, 20)])
def test_vector_cores_beside_cube_cores_share_what_a_pair_can_take(cores, cycles):
    # 1000 bytes at 100 a cycle for a vector core alone; a pair takes 100 together, so 50 each, as soon as
    # more than two vector cores work.
    b = ProgramBuilder(PLAIN)
    b.add(Fake("MTE2", kind="read", bytes=1000), on=1)
    profile = PLAIN.but(vector_cap=100, vector_pair=100)
    kernel = fake_kernel(*[(number, b.build()) for number in range(cores)], beside=1)
    assert time_kernel(kernel, profile).cycles == cycles
