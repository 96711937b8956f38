"""Does the engine as plain Python, every index checked, give what SimPy gives?

The compiled engine is these very functions. Run as they are they are slow, but need no compiler: so a changed
line is noticed here (`test_timing_mutations.py`), and so is an index beyond a table, or before its begin.
"""

import random
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import Phase as Stage
from hypothesis import given, settings
from hypothesis import strategies as st

from ascendsim import Tiling, load_profile
from ascendsim.errors import ProgramError
from ascendsim.program.kernel import Core, CoreWork, Kernel, Phase
from ascendsim.program.places import GmTensor
from ascendsim.program.program import Program, ProgramBuilder
from ascendsim.timing import compiled_flows as f
from ascendsim.timing import compiled_phase as phase
from ascendsim.timing import kernel as door
from ascendsim.timing.timeline import times_of
from tests.helpers.both_engines import MATMULS, assert_same_spans, matmul_kernels, random_call
from tests.helpers.conv_cases import TOY, both_of, nest_kernel
from tests.helpers.toy_machines import Fake, FakeProfile, X, Y, kernel, program, read
from tests.timing.test_timing import profiles, programs

PLAIN = FakeProfile()


# So many cells between two tables are nobody's.
GAP = 64


class Nothing:
    """What lies between tables: whoever looks at it has read beyond one."""

    def __bool__(self):
        raise IndexError("read between two tables")

    def __eq__(self, other):
        raise IndexError("read between two tables")

    __hash__ = None


class Checked(list):
    """Memory that refuses an index before its begin; a list would count back from its end."""

    def __getitem__(self, index):
        if type(index) is int and index < 0:
            raise IndexError("before the begin")
        return super().__getitem__(index)

    def __setitem__(self, index, value):
        if index < 0:
            raise IndexError("before the begin")
        super().__setitem__(index, value)


COMPILED = phase.ENGINE


def in_python(memory, rows):
    """Run the engine's plain functions on its memory, its tables drawn apart; both are changed in place."""
    cells, nothing = memory.tolist(), Nothing()
    begins = cells[f.MACHINE : f.HEADER]
    wide, places = Checked(cells[: f.HEADER]), []
    for number, (begin, end) in enumerate(pairwise([*begins, len(cells)])):
        wide.extend([nothing] * GAP)
        wide[f.MACHINE + number] = len(wide)
        places.append((len(wide), begin, end))
        wide.extend(cells[begin:end])
    wide.extend([nothing] * GAP)
    own = Checked(rows.tolist())
    status = COMPILED.python(wide, own)
    rows[:] = own
    memory[: f.MACHINE] = wide[: f.MACHINE]
    for place, begin, end in places:
        assert all(cell is nothing for cell in wide[place - GAP : place]), "written between two tables"
        memory[begin:end] = wide[place : place + end - begin]
    assert all(cell is nothing for cell in wide[-GAP:]), "written behind the tables"
    return status


@pytest.fixture(autouse=True, scope="module")
def plain_python():
    """Let the door of the compiled engine run Python."""
    phase.ENGINE = in_python
    yield
    phase.ENGINE = COMPILED


def check(made, profile, **options):
    """Compare times and spans with those of SimPy; return the times."""
    timeline = door.time_kernel(made, profile, engine="simpy", **options)
    assert_same_spans(door.time_kernel(made, profile, engine="compiled", **options), timeline)
    times = door.measure_kernel(made, profile, engine="compiled", **options)
    assert times == times_of(timeline)
    return times


# --- any program on any machine

# Nothing is made smaller: that takes minutes where some line of the engine is changed to see that it counts.
ANY = settings(max_examples=120, deadline=None, derandomize=True, phases=[Stage.generate])


@ANY
@given(st.lists(programs(most=14), min_size=1, max_size=3), profiles, st.booleans())
def test_any_cores(progs, profile, twice):
    # Folded: each program on one core, or on two.
    made = kernel([(number, prog) for number, prog in enumerate(progs) for _ in range(1 + twice)], progs[:1])
    check(made, profile.but(barrier_cycles=3, start_cycles=2))


@settings(ANY, max_examples=60)
@given(
    st.lists(programs(most=10), min_size=1, max_size=3),
    profiles,
    st.sampled_from([(5, 4), (Fraction(31, 3), 2)]),
    st.integers(1, 300),
    st.sampled_from(["cold", "handed"]),
)
def test_misses_and_write_back(progs, profile, memory, l2_bytes, start):
    check(kernel(progs), profile.but(memory=memory, l2_bytes=l2_bytes), l2_start=start)


@pytest.mark.parametrize("seed", range(24))
def test_loops_with_any_waits(seed):
    rng = random.Random(seed)
    programs = [both_of(rng)[0] for _ in range(rng.randint(1, 2))]
    check(nest_kernel(*programs), TOY, l2_start=rng.choice(("warm", "cold")), folded=seed % 2 > 0)


@pytest.mark.parametrize("seed", range(30))
def test_random_uses_of_slots(seed):
    # Slots read and written on all pipes, so that what is known already is met again and again.
    rng = random.Random(seed)
    b = ProgramBuilder(TOY)
    slots = b.slots("L1", 32, "x", 5)
    for slot in slots:
        b.add(Fake("MTE2", rng.randint(0, 9), writes=(slot,)))
    for _ in range(60):
        made = Fake(
            rng.choice(("MTE2", "MTE1", "M", "FIX")),
            rng.randint(0, 20),
            rng.randint(0, 20),
            drains=rng.random() < 0.1,
            least=rng.choice((0, 0, 15)),
            trails=rng.random() < 0.3,
            piece=rng.randint(0, 5),
            lead=rng.randint(0, 5),
            reads=tuple(rng.sample(slots, rng.randrange(3))),
            writes=tuple(rng.sample(slots, rng.randrange(3))),
        )
        b.add(made)
    profile = PLAIN.but(
        issue_cycles=rng.randint(0, 3), flag_cycles=rng.randint(0, 4), depth=rng.randint(1, 6)
    )
    check(kernel([b.build()]), profile)


# The pipes of a cube core and of the vector cores beside it.
BESIDE = (("MTE2", "MTE1", "M", "FIX"), ("MTE2", "V", "MTE3"), ("MTE2", "V", "MTE3"))


@pytest.mark.parametrize("seed", range(16))
def test_a_cube_core_and_its_vector_cores_in_any_order(seed):
    # Short queues behind transfers, so that scalar units hold what they cannot issue yet, on several pipes.
    rng = random.Random(seed)
    profile = PLAIN.but(
        issue_cycles=rng.randint(0, 3),
        flag_cycles=rng.randint(0, 4),
        read=(rng.randint(4, 12), rng.randint(4, 12)),
        vector_cap=rng.randint(3, 12),
        depths={pipe: rng.randint(1, 3) for pipe in ("MTE2", "MTE1", "M", "FIX", "MTE3", "V")},
    )
    b = ProgramBuilder(profile)
    own = [b.slots("L1", 32, f"of {core}", 4) for core in range(3)]
    pieces = b.handover(64, "piece", 3).slots
    for on, slots in enumerate(own):
        for slot in slots:
            b.add(Fake("MTE2", rng.randint(0, 9), writes=(slot,)), on)
    for piece in pieces:
        b.add(Fake("FIX", 3), writes=(piece,))
    brought = set()  # slots whose newest result moved bytes: the compiled engine refuses what trails them
    for _ in range(60):
        on = rng.randrange(3)
        pipe = rng.choice(BESIDE[on])
        moves = pipe in ("MTE2", "MTE3") and rng.random() < 0.6
        reads, writes = (tuple(rng.sample(own[on], rng.randrange(3))) for _ in range(2))
        made = Fake(
            pipe,
            rng.randint(0, 20),
            rng.randint(0, 20),
            kind="read" if moves else "",
            bytes=rng.randint(10, 400) if moves else 0,
            trails=pipe == "FIX" and brought.isdisjoint(reads) and rng.random() < 0.6,
            piece=rng.randint(0, 5),
            lead=rng.randint(0, 5),
            reads=reads,
            writes=writes,
        )
        handed = (rng.choice(pieces),) if rng.random() < 0.3 else ()
        b.add(
            made,
            on,
            reads=handed if on and pipe == "MTE2" else (),
            writes=handed if pipe == "FIX" else (),
        )
        brought = brought | set(writes) if moves else brought - set(writes)
    built = b.build()
    work = CoreWork(Core("cube", 0), 0, lambda: built, 2)
    check(Kernel("both", (Phase("only", (work,)),), {"x": X, "y": Y}, math=None), profile)


# --- rules, one by one, reckoned by hand


def test_two_results_that_are_over_together_are_charged_to_the_newer():
    # M and MTE1 both end at 9; V waits for both from 0 on, in either order of the waits.
    for waits in ([0, 1], [1, 0]):
        times = check(kernel([program(Fake("M", 9), Fake("MTE1", 9), (Fake("V", 1), waits))]), PLAIN)
        assert times.phases[0].cores[0].waiting == {"V": {"MTE1": 9}}


def test_what_is_over_when_an_instruction_is_issued_still_counts_its_flag():
    # M ends at 4, V is issued at 5 and woken up at 4 + 3.
    prog = program(Fake("M", 3), Fake("MTE1"), Fake("MTE1"), Fake("MTE1"), (Fake("V", 1), [0]))
    times = check(kernel([prog]), PLAIN.but(issue_cycles=1, flag_cycles=3))
    assert times.phases[0].cores[0].waiting == {"V": {"M": 2}}


def test_draining_comes_before_another_cause_that_ends_with_it():
    # The result of M is visible at 12; V ends at 12 as well.
    prog = program(Fake("M", 2, 10), Fake("V", 12), (Fake("M", 1, drains=True), [1]))
    times = check(kernel([prog]), PLAIN)
    assert times.phases[0].cores[0].waiting == {"M": {"M": 10}}


@pytest.mark.parametrize("total", [7, 10, 16, 40])
def test_levels_of_unequal_demands(total):
    # Demands of 2, 5 and 9 of weights 3, 1 and 2, and within a core of two pipes.
    two = program(read(90, 9), Fake("FIX", kind="read", bytes=80, peak=2))
    made = kernel([(0, program(read(60, 2)))] * 3 + [(1, program(read(70, 5)))] + [(2, two)] * 2)
    check(made, PLAIN.but(read=(total, 10)))


def test_three_pipes_of_a_core_share_what_it_gets():
    prog = program(*[Fake(pipe, kind="read", bytes=60, peak=peak) for pipe, peak in zip(
        ("MTE2", "MTE3", "FIX"), (1, 4, 9), strict=True)])  # fmt: skip
    check(kernel([prog, program(read(100, 9))]), PLAIN.but(read=(9, 12)))


def test_a_pipe_that_asks_for_just_an_equal_part_of_its_core_is_met():
    # The core gets 9 of the link: 3 for each pipe, all that one asks for, so 3 for each of the others.
    prog = program(*[Fake(pipe, kind="read", bytes=60, peak=peak) for pipe, peak in zip(
        ("MTE2", "MTE3", "FIX"), (3, 9, 9), strict=True)])  # fmt: skip
    times = check(kernel([prog]), PLAIN.but(read=(9, 9)))
    # 60 bytes at 3 a cycle, all at once.
    assert times.cycles == 20


def test_reads_and_writes_and_misses_use_their_own_links():
    prog = program(read(300, place=1), Fake("FIX", kind="write", bytes=200, peak=7, tensor=Y, place=1))
    profile = PLAIN.but(read=(12, 9), write=(10, 8), memory=(6, 5), latency=(3, 5, 40), l2_bytes=150)
    for start in ("warm", "cold", "handed"):
        check(kernel([(0, prog)] * 3 + [(1, program(read(100, tensor=X, place=2)))]), profile, l2_start=start)


def test_tensors_to_which_only_later_phases_add_are_not_handed_over():
    # L2 has room for X alone, which is here as it begins. Zeros of Y before it would have taken its place.
    writes = [Fake("FIX", kind=kind, bytes=100, peak=7, tensor=Y, place=1) for kind in ("write", "atomic")]
    made = kernel([program(read(100, place=1))], *[[program(write)] for write in writes])
    times = check(made, PLAIN.but(l2_bytes=X.size_bytes), l2_start="handed")
    assert times.bytes["memory_read"] == 0


@pytest.mark.parametrize(
    ("layout", "role", "handed", "missed"),
    [
        ("NDC1HWC0", "input", True, 0),
        ("NDC1HWC0", "input", False, 40),
        ("ND", "input", True, 40),  # nobody has brought it into another layout
        ("NDC1HWC0", "output", True, 40),  # what the kernel itself writes comes from no other
    ],
)
def test_where_operands_are_handed_over_all_of_the_cubes_layout_are_there(layout, role, handed, missed):
    other = GmTensor("z", (40,), "int8", 1, role, layout=layout)
    made = kernel([program(read(100, place=1), read(40, tensor=other, place=1))])
    made = replace(made, tensors={**made.tensors, "z": other})
    times = check(made, PLAIN.but(operands_handed=handed), l2_start="handed")
    assert times.bytes["memory_read"] == missed


def test_the_first_of_several_operands_has_its_room_first():
    # L2 has room for all of it, and for 30 bytes of the other: of these 40 are read.
    other = GmTensor("z", (40,), "int8", 1, layout="NDC1HWC0")
    made = kernel([program(read(100, place=1), read(40, tensor=other, place=1))])
    made = replace(made, tensors={**made.tensors, "z": other})
    profile = PLAIN.but(operands_handed=True, l2_bytes=X.size_bytes + 30)
    assert check(made, profile, l2_start="handed").bytes["memory_read"] == 10


class ShortQueues(FakeProfile):
    """Vector cores with queues of one instruction."""

    @property
    def vector_queues(self):
        return {"MTE2": 1, "V": 1}


@pytest.mark.parametrize("vectors", [1, 2, 3, 4])
def test_vector_cores_have_their_own_caps_and_queues(vectors):
    prog = program(*[read(100)] * 3, Fake("V", 20))
    work = [CoreWork(Core("vector", n), 0, lambda: prog) for n in range(vectors)]
    work.append(CoreWork(Core("cube", 0), 1, lambda: program(*[read(200)] * 3)))
    made = Kernel("mixed", (Phase("both", tuple(work)),), {"x": X, "y": Y}, math=None)
    profile = ShortQueues(issue_cycles=1, vector_cap=5, vector_pair=6, read=(20, 15), depths={"MTE2": 2})
    for folded in (True, False):
        check(made, profile, folded=folded)


def test_of_two_results_of_a_pipe_the_newer_is_trailed():
    # Both loads are over when M is issued at 6. The first piece of the older comes at 1 + 20; that of the
    # newer is there, so M begins at once.
    rows = Fake("MTE2", 1, lead=20), Fake("MTE2", 1), Fake("V"), Fake("V"), Fake("V")
    prog = program(*rows, (Fake("M", 2), (), (), [0, 1]))
    times = check(kernel([prog]), PLAIN.but(issue_cycles=1))
    assert times.phases[0].cores[0].busy["M"] == 2


def test_an_empty_phase_and_an_empty_core():
    check(kernel([program()], [program(Fake("M", 3)), program()]), PLAIN.but(barrier_cycles=2))


# --- real programs


@pytest.mark.parametrize("seed", [3, 5, 9])
def test_a_random_call(seed):
    kernels, profile, l2_start = random_call(random.Random(seed))
    for made in kernels:
        check(made, profile, l2_start=l2_start)


def test_a_matrix_product_with_the_unit_flag():
    problem, product, _ = MATMULS[1]
    plan = Tiling(64, 128, 64, 2, 2, used_cores=2, unit_flag=True)
    for made in matmul_kernels(problem, product, tiling=plan):
        check(made, load_profile(product))


# --- what cannot be


def test_what_the_engine_cannot_finish_is_refused(monkeypatch):
    monkeypatch.setattr(phase, "ENGINE", lambda *_: f.STUCK)
    with pytest.raises(ProgramError, match="phase phase 0: an instruction never starts"):
        door.measure_kernel(kernel([program(Fake("M"))]), PLAIN)


def test_a_program_without_steps_has_nothing_to_do():
    made = kernel([Program((), (), {})])
    assert check(made, PLAIN.but(start_cycles=4)).cycles == 4


def test_an_index_outside_of_its_table_is_noticed():
    memory = Checked([1, 2, Nothing()])
    with pytest.raises(IndexError):
        memory[3]
    for wrong in (-1, -3):
        with pytest.raises(IndexError, match="before the begin"):
            memory[wrong]
        with pytest.raises(IndexError, match="before the begin"):
            memory[wrong] = 5
    for look in (bool, lambda cell: cell == 1, lambda cell: cell != 1):
        with pytest.raises(IndexError, match="between two tables"):
            look(memory[2])
    with pytest.raises(TypeError):
        memory[2] + 1


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_what_trails_takes_up_its_pipe_while_what_it_trails_waits_for_a_transfer(depth):
    # Fixpipe starts as soon as it is issued, and so makes room in its short queue, though the product that it
    # trails waits for its tile: the loads behind it are issued meanwhile, on both engines in the same cycles.
    profile = FakeProfile(issue_cycles=1, flag_cycles=2, read=(8, 8), depths={"FIX": depth})
    builder = ProgramBuilder(profile)
    tiles, sums = builder.slots("L1", 32, "tile", 9), builder.slots("L1", 32, "sum", 9)
    for tile, total in zip(tiles, sums, strict=True):
        builder.add(Fake("MTE2", 2, kind="read", bytes=300, writes=(tile,)))
        builder.add(Fake("M", 40, latency=3, reads=(tile,), writes=(total,), lead=10))
        builder.add(Fake("FIX", 5, reads=(total,), trails=True, piece=4))
        builder.add(Fake("MTE3", 2, kind="read", bytes=64))  # it shares the link with the tile of the product
    made = kernel([builder.build()])
    check(made, profile)
    compared = door.time_kernel(made, profile).phases[0].cores[0]
    # The second Fixpipe is issued before its product has its tile.
    assert compared.issue[6] < compared.done[4]


def test_what_trails_makes_room_in_its_queue_for_a_transfer_behind_it():
    # Both Fixpipes trail a product whose tile is still under way. The first one takes up its pipe at once, so
    # the second one is issued, and behind it a load that begins while the tile is under way.
    profile = FakeProfile(issue_cycles=1, read=(8, 8), depths={"FIX": 1})
    builder = ProgramBuilder(profile)
    tile, total = builder.slots("L1", 32, "tile", 2)
    builder.add(Fake("MTE2", 2, kind="read", bytes=3000, writes=(tile,)))
    builder.add(Fake("M", 40, latency=3, reads=(tile,), writes=(total,), lead=10))
    for _ in range(2):
        builder.add(Fake("FIX", 5, reads=(total,), trails=True, piece=4))
    builder.add(Fake("MTE3", 2, kind="read", bytes=64))
    made = kernel([builder.build()])
    check(made, profile)
    spans = door.time_kernel(made, profile).phases[0].cores[0]
    assert spans.start[4] < spans.done[0]


def test_what_trails_starts_behind_another_while_what_it_trails_waits_for_a_transfer():
    # The first product is over early, and with it the Fixpipe that trails it. The second Fixpipe then takes
    # up its pipe, though its product waits for a long tile: so the third one is issued, and behind it a load
    # that begins while that tile is under way.
    profile = FakeProfile(issue_cycles=1, read=(8, 8), depths={"FIX": 1})
    builder = ProgramBuilder(profile)
    tiles, sums = builder.slots("L1", 32, "tile", 2), builder.slots("L1", 32, "sum", 2)
    for tile, size in zip(tiles, (300, 3000), strict=True):
        builder.add(Fake("MTE2", 2, kind="read", bytes=size, writes=(tile,)))
    for tile, total in zip(tiles, sums, strict=True):
        builder.add(Fake("M", 40, latency=3, reads=(tile,), writes=(total,), lead=10))
    for total in (sums[0], sums[1], sums[1]):
        builder.add(Fake("FIX", 5, reads=(total,), trails=True, piece=4))
    builder.add(Fake("MTE3", 2, kind="read", bytes=64))
    made = kernel([builder.build()])
    check(made, profile)
    spans = door.time_kernel(made, profile).phases[0].cores[0]
    assert spans.done[2] < spans.start[7] < spans.done[1]
