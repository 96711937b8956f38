"""Is the compiled walk of L2 the slow one, over the slices that the instructions name?"""

import random
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ascendsim import ConvProblem, estimate, load_profile
from ascendsim.errors import ProgramError
from ascendsim.program.instruction import Traffic
from ascendsim.program.places import GmTensor
from ascendsim.timing import compiled_phase as fast
from ascendsim.timing.compiled_forms import FormBook, PhaseRows
from ascendsim.timing.kernel import measure_kernel
from ascendsim.timing.l2.account import account, account_of_lanes, asks_for_slices, left_by
from ascendsim.timing.l2.phase import HIT, Lane, PhaseLanes, comparable, lanes_of
from ascendsim.timing.l2.slices import share_of
from ascendsim.timing.times import CostBook
from tests.helpers import oracles_l2
from tests.helpers.both_engines import PRODUCTS, random_call, random_matmul, random_tiling, random_times
from tests.helpers.toy_machines import Fake, FakeProfile, kernel, program
from tests.timing.test_engines import SMALL_PROBLEMS

# --- Is the compiled walk the slow one of `oracles_l2`, number for number? -----------------------------

SMALL = tuple(
    GmTensor(name, (size,), "int8", 1, cached=cached)
    for name, size, cached in (("a", 700, True), ("b", 90, True), ("c", 333, False), ("d", 50, False))
)


# --- random phases -----------------------------------------------------------------------------------------


@st.composite
def transfers(draw, tensors=SMALL):
    """A transfer: most name one of few slices, with bytes that need not be those of others that name it."""
    tensor = draw(st.sampled_from(tensors))
    kind = draw(st.sampled_from(["read", "read", "write", "atomic"]))
    place = draw(st.one_of(st.none(), st.integers(0, 5)))
    size = draw(st.sampled_from([1, 10, 33, 100]))
    return Fake("MTE2", kind=kind, bytes=size, peak=10, tensor=tensor, place=place)


groups = st.tuples(st.integers(1, 5), st.lists(transfers(), max_size=12))
phases = st.lists(st.lists(groups, min_size=1, max_size=5), min_size=1, max_size=3)
rests = st.dictionaries(
    st.sampled_from(["a", "b", "c", "gone", "lost"]),
    st.tuples(st.integers(0, 900), st.integers(0, 900)).map(lambda pair: (max(pair), min(pair))),
)
starts = st.one_of(st.sampled_from(["cold", "warm", "handed"]), rests)


def kernel_of(phases, tensors=SMALL):
    """A kernel of phases of groups (cores, rows); each group has a signature of its own."""
    work = [
        [(number, program(*rows)) for number, (cores, rows) in enumerate(groups) for _ in range(cores)]
        for groups in phases
    ]
    return kernel(*work, tensors=tensors)


def assert_equal(made, profile, start):
    """Both accounts of a kernel say the same, and leave the same."""
    fast, slow = account(made, profile, start), oracles_l2.account(made, profile, start)
    assert fast.bytes == slow.bytes
    assert fast.outcomes == slow.outcomes
    left, expected = left_by(made, profile, start), oracles_l2.left_by(made, profile, start)
    assert list(left.items()) == list(expected.items())


@settings(max_examples=150, deadline=None)
@given(phases, st.integers(1, 2000), starts, st.sampled_from([1.0, 0.5]))
def test_random_phases(phases, capacity, start, efficiency):
    assert_equal(kernel_of(phases), FakeProfile(l2_bytes=capacity, shared_efficiency=efficiency), start)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.lists(transfers(), min_size=1, max_size=4), min_size=60, max_size=80), st.integers(1, 900))
def test_more_groups_than_a_number_has_bits(rows, capacity):
    assert_equal(
        kernel_of([[(1 + number % 2, row) for number, row in enumerate(rows)]]),
        FakeProfile(l2_bytes=capacity),
        "cold",
    )


@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from(["cold", "warm", "handed"]))
def test_tensors_too_large_for_products_of_their_bytes(data, start):
    # Nothing here is a power of two, so that every share leaves a rest.
    sizes = [data.draw(st.integers(10**9, 10**12)) for _ in range(3)]
    tensors = tuple(GmTensor(name, (size,), "int8", 1) for name, size in zip("abc", sizes, strict=True))
    rows = st.lists(transfers(tensors), max_size=8)
    large = st.tuples(st.integers(1, 5), rows).map(
        lambda group: (group[0], [replace(row, bytes=row.bytes * 3**17) for row in group[1]])
    )
    drawn = data.draw(st.lists(st.lists(large, min_size=1, max_size=3), min_size=1, max_size=2))
    assert_equal(kernel_of(drawn, tensors), FakeProfile(l2_bytes=data.draw(st.integers(1, 10**12))), start)


@given(st.integers(0, 2**61 - 1), st.data())
def test_a_share_is_exact_however_large_the_product(value, data):
    whole = data.draw(st.integers(1, 2**61 - 1))
    part = data.draw(st.integers(0, whole))
    assert share_of(value, part, whole) == value * part // whole


@pytest.mark.parametrize("value", [2**31 - 1, 2**31, 2**61 - 1])
@pytest.mark.parametrize("part", [0, 1, 2**31 - 1, 2**31, 2**61 - 1])
def test_a_share_at_the_edges_of_the_short_way(value, part):
    whole = 2**61 - 1
    assert share_of(value, part, whole) == value * part // whole


# --- real kernels ------------------------------------------------------------------------------------------

LAYERS = (
    ConvProblem((8, 64, 28, 28), (64, 64, 3, 3), padding=1),
    ConvProblem((5, 48, 15, 17), (80, 48, 1, 1), stride=2),
    ConvProblem((2, 3, 44, 44), (64, 3, 7, 7), stride=2, padding=3),
)


@pytest.mark.parametrize("product", ["910A", "910B2", "310P3", "950PR_9589"])
@pytest.mark.parametrize("problem", LAYERS, ids=lambda problem: f"{problem.weight}")
def test_real_kernels(product, problem):
    made = estimate(problem, product=product, output_mask=(True, True, False)).kernels
    rest = "cold"
    for result in made:
        total = sum(tensor.size_bytes for tensor in result.kernel.tensors.values())
        # All of it fits; or some; or hardly any.
        for capacity in (2 * total, total // 2, total // 37):
            profile = load_profile(product, overrides={"l2.capacity_bytes": capacity})
            for start in ("warm", "cold", "handed", rest):
                assert_equal(result.kernel, profile, start)
        rest = oracles_l2.left_by(result.kernel, profile, rest)


# --- lanes -------------------------------------------------------------------------------------------------

A = SMALL[0]
READ, WRITE = (Traffic(A, kind, 100, 10) for kind in ("read", "write"))


def lane(cores, traffics, slices):
    return Lane(cores, np.array(traffics, np.int32), np.array(slices, np.int64))


def lanes_account(*lanes, start="cold", capacity=10**6, tensors=SMALL):
    made = kernel([], tensors=tensors)
    return account_of_lanes([PhaseLanes((READ, WRITE), lanes)], made, FakeProfile(l2_bytes=capacity), start)


def shares(made):
    """The part of each transfer that memory serves, lane by lane."""
    (phase,) = made.phases
    return [[phase.outcomes[number].fetched for number in numbers] for numbers in phase.numbers]


def test_outcomes_are_given_by_number_with_plain_hits_first():
    made = lanes_account(lane(1, [0, 0, 1], [4, 4, 4]), lane(1, [], []), lane(1, [1, 0], [5, 5]))
    (phase,) = made.phases
    assert [numbers.tolist() for numbers in phase.numbers] == [[1, 0, 0], [], [0, 0]]
    assert all(numbers.dtype == np.int32 for numbers in phase.numbers)
    assert phase.outcomes == (HIT, HIT._replace(fetched=1))
    # 200 read by the one and 100 by the other; 100 are written by each.
    assert made.bytes == {
        "l2_read": 300, "l2_write": 200, "memory": 100, "memory_read": 100, "memory_write": 0
    }  # fmt: skip


def test_transfers_that_come_to_the_same_have_one_outcome():
    # Alone each core fetches all; so do two of whom each has its own slice, for another reason.
    made = lanes_account(lane(1, [0], [0]), lane(2, [0], [1]))
    assert made.phases[0].outcomes == (HIT, HIT._replace(fetched=1))
    assert shares(made) == [[1], [1]]


@pytest.mark.parametrize("step", [1, 10**6, -3, 10**15])
@pytest.mark.parametrize("begin", [0, -7, 2**62])
def test_slices_may_have_any_numbers(step, begin):
    first, second = ([0, 3, 1, 0], [3, 3, 2])
    made = [
        lanes_account(
            *[lane(cores, [0] * len(slices), [start + by * number for number in slices])
              for cores, slices in ((1, first), (2, second))]
        )
        for start, by in ((0, 1), (begin, step))
    ]  # fmt: skip
    assert shares(made[0]) == shares(made[1])
    assert made[0].bytes == made[1].bytes
    # Slice 3 is read by one core of the second group in the first round, and by the first group in the next:
    # they share its 100 bytes. The other core of the second group has a slice of its own.
    assert shares(made[0])[0] == [1, Fraction(1, 2), 1, 0]
    assert shares(made[0])[1] == [Fraction(150, 200), 0, 1]


@settings(max_examples=60, deadline=None)
@given(phases, st.integers(1, 2000), st.integers(-(10**6), 10**6), st.integers(1, 20), st.booleans())
def test_numbers_of_slices_tell_only_which_are_equal(phases, capacity, begin, step, back):
    # Some numbers in between name no slice; numbers far apart are sorted, others are not.
    profile, made = FakeProfile(l2_bytes=capacity), kernel_of(phases)
    groups = [
        [(cores, CostBook(profile).price(program(*rows), "cube")) for cores, rows in phase]
        for phase in phases
    ]
    lanes = [lanes_of(phase) for phase in groups]
    other = [
        phase._replace(
            lanes=tuple(
                lane._replace(slices=begin + (-step if back else step) * lane.slices) for lane in phase.lanes
            )
        )
        for phase in lanes
    ]
    first, second = (account_of_lanes(numbered, made, profile, "cold") for numbered in (lanes, other))
    assert first.bytes == second.bytes
    for one, two in zip(first.phases, second.phases, strict=True):
        assert one.outcomes == two.outcomes
        assert [n.tolist() for n in one.numbers] == [n.tolist() for n in two.numbers]


@pytest.mark.parametrize("step", [1, 2])
def test_numbers_that_no_slice_has_count_for_nothing(step):
    # 14 slices of 100 bytes in a tensor of 700 count for 50 each. The last 350 bytes of it are there, so that
    # the first seven miss.
    one = lane(1, [0] * 14, range(0, 14 * step, step))
    made = lanes_account(one, start={"a": (350, 0)}, tensors=SMALL[:1])
    assert shares(made) == [[Fraction(1, 2)] * 7 + [0] * 7]
    assert made.bytes["memory_read"] == 350


def test_a_phase_and_a_kernel_without_transfers():
    profile, made = FakeProfile(), kernel([], tensors=SMALL)
    for start in ("warm", "cold", "handed", {"a": (10, 3)}):
        assert account_of_lanes([], made, profile, start).phases == ()
        (phase,) = account_of_lanes([PhaseLanes((), ())], made, profile, start).phases
        assert phase == ((), (HIT,))
    # What does not fit has gone even if nothing happens: 25 of 40 bytes, half of them dirty.
    assert left_by(made, FakeProfile(l2_bytes=25), {"a": (40, 20)}) == {"a": (25, 13)}


def test_lanes_of_programs_name_traffics_and_slices_by_number():
    read = Fake("MTE2", kind="read", bytes=100, peak=10, tensor=A, place=7)
    other = replace(read, place=8, kind="write")
    priced = CostBook(FakeProfile()).price(program(read, other, Fake("V"), read), "cube")
    made = lanes_of([(3, priced), (1, priced)])
    assert made.traffics == (READ, WRITE)
    assert [(lane.cores, lane.traffics.tolist(), lane.slices.tolist()) for lane in made.lanes] == [
        (3, [0, 1, 0], [0, 1, 0]),
        (1, [0, 1, 0], [0, 1, 0]),
    ]


def test_lanes_with_traffic_of_an_unlisted_tensor_are_refused():
    with pytest.raises(ProgramError, match="moves bytes of a, which is not among its tensors b"):
        lanes_account(lane(1, [0], [0]), tensors=SMALL[1:2])


# -------------------------------------------------------------------------------------------------------
# Do phases keep the promise that no two transfers name the same slice? Are times the same without it?
# -------------------------------------------------------------------------------------------------------

LAYER = ConvProblem((2, 40, 9, 11), (48, 40, 3, 3), padding=1)
STRIDED = ConvProblem((3, 64, 12, 12), (32, 64, 3, 3), stride=2, padding=1)
GROUPS = ConvProblem((2, 24, 10, 10), (48, 3, 3, 3), padding=1, groups=8)
SMALL_L2 = {"l2.capacity_bytes": 60_000}
# What is not row after row is gathered first.
VIEWS = {"grad_output": (48 * 99, 1, 48 * 11, 48)}
# Problem, format, options.
CALLS = [
    (LAYER, "float16", {}),
    (LAYER, "float16", {"strides": VIEWS}),
    (LAYER, "float32", {"cube_math_type": 1, "deterministic": True}),
    (STRIDED, "float16", {}),
    (STRIDED, "float16", {"deterministic": True}),
    (GROUPS, "float16", {}),
]


def kernels_of_calls(profile):
    """Return the kernels of all calls."""
    made = [estimate(problem, dtype, product=profile, **options) for problem, dtype, options in CALLS]
    return [result.kernel for estimated in made for result in estimated.kernels]


def random_kernels():
    """Return the kernels of random calls, with their profiles."""
    rng = random.Random(11)
    calls = [random_call(rng) for _ in range(60)]
    return [(kernel, profile) for kernels, profile, _ in calls for kernel in kernels]


def slices(phase):
    """Return the slices that all transfers of a phase name."""
    made = [instruction for work in phase.work for instruction in work.build().instructions]
    return [(gm.tensor.name, tuple(map(comparable, gm.index))) for one in made if (gm := one.gm) is not None]


@pytest.mark.slow
def test_no_slice_is_named_twice():
    told = random_kernels()
    told += [
        (each_kernel, None) for product in PRODUCTS for each_kernel in kernels_of_calls(load_profile(product))
    ]
    met = set()
    for each_kernel, _ in told:
        for phase in each_kernel.phases:
            if phase.apart:
                met.add(phase.name)
                found = slices(phase)
                assert len(found) == len(set(found)), (each_kernel.name, phase.name)
    names = {
        "zero fill",
        "cast",
        "gather",
        "ordered sum",
        "dilation",
        "transdata",
        "turned weights",
        "regroup",
    }
    assert met == names


@pytest.mark.parametrize(
    "start", ["warm", *(pytest.param(start, marks=pytest.mark.slow) for start in ("cold", "handed"))]
)
def test_times_are_those_with_slices_found(start):
    small = load_profile("910B2", overrides=SMALL_L2)
    told = [*random_kernels(), *[(each_kernel, small) for each_kernel in kernels_of_calls(small)]]
    promised = [
        (each_kernel, profile) for each_kernel, profile in told if any(p.apart for p in each_kernel.phases)
    ]
    assert promised
    for each_kernel, profile in promised:
        asked = replace(
            each_kernel, phases=tuple([phase._replace(apart=False) for phase in each_kernel.phases])
        )
        for folded in (True, False):
            options = {"folded": folded, "l2_start": start}
            assert measure_kernel(each_kernel, profile, **options) == measure_kernel(
                asked, profile, **options
            )


# --- Of which tensors does it count which slice a transfer names, where L2 holds all of them? ----------

PROBLEM = ConvProblem(input=(3, 32, 20, 20), weight=(48, 32, 3, 3), padding=1)


def test_those_that_are_read_where_cores_lose_by_reading_together():
    read, added, both = (GmTensor.of(name, (8,), "float32") for name in ("read", "added", "both"))
    traffics = [
        *(Traffic(tensor, "read", 32, 64) for tensor in (read, both)),
        Traffic(both, "write", 32, 64),
        Traffic(added, "atomic", 32, 64),
    ]
    assert load_profile("910B2").links["l2_read"].shared_efficiency < 1
    assert asks_for_slices(traffics, load_profile("910B2")) == {"read", "both"}
    assert load_profile("950PR_9589").links["l2_read"].shared_efficiency == 1
    assert asks_for_slices(traffics, load_profile("950PR_9589")) == frozenset()


@pytest.mark.parametrize("product", ["910B2", "950PR_9589", "910A"])
@pytest.mark.parametrize("gradient", ["grad_input", "grad_weight"])
def test_cycles_and_bytes_are_those_with_all_slices_told_apart(product, gradient, monkeypatch):
    profile = load_profile(product)
    asked = []
    only = fast.only_hits
    monkeypatch.setattr(fast, "only_hits", lambda *args: asked.append(only(*args)) or asked[-1])
    few = random_times(PROBLEM, gradient, profile, 4, seed=2)
    # The layer fits in L2, so that the question is worth something.
    assert any(asked)
    monkeypatch.setattr(fast, "only_hits", lambda *_: False)
    assert random_times(PROBLEM, gradient, profile, 4, seed=2) == few


# -------------------------------------------------------------------------------------------------------
# Do equal numbers of the compiled engine mean equal slices, as the instructions name them one by one?
# -------------------------------------------------------------------------------------------------------


def numbers(phase, profile):
    """The slices of all transfers of a phase, by the engine's numbers and by those of each instruction."""
    works = [(work.core.kind, work.build()) for work in phase.work]
    book, costs = FormBook(profile), CostBook(profile)
    for kind, each_program in works:
        book.check(each_program, kind)
    moved = PhaseRows(book, [each_program for _, each_program in works]).transfers(None, apart=False)
    found = [own.slices for own in moved]
    lanes = lanes_of([(1, costs.price(each_program, kind)) for kind, each_program in works]).lanes
    none = np.empty(0, np.int64)
    return np.concatenate([none, *found]).tolist(), np.concatenate(
        [none, *(lane.slices for lane in lanes)]
    ).tolist()


def assert_numbered_alike(kernels, profile):
    """Transfers have one number if, and only if, they name one slice; phases that promise it share none."""
    for each_kernel in kernels:
        for phase in each_kernel.phases:
            found, named = numbers(phase, profile)
            assert len(found) == len(named)
            assert len(set(zip(found, named, strict=True))) == len(set(found)) == len(set(named))
            assert not phase.apart or len(set(named)) == len(named), phase.name


@pytest.mark.parametrize("seed", range(30))
def test_of_random_calls(seed):
    kernels, profile, _ = random_call(random.Random(1000 + seed))
    assert_numbered_alike(kernels, profile)


@pytest.mark.parametrize("seed", range(30))
def test_of_random_tilings(seed):
    assert_numbered_alike(*random_tiling(random.Random(1000 + seed), SMALL_PROBLEMS))


@pytest.mark.parametrize("seed", range(30))
def test_of_random_matrix_products(seed):
    assert_numbered_alike(*random_matmul(random.Random(1000 + seed)))
