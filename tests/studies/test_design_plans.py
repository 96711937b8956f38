"""Are the ways to run a call on a design those that are said, and the fastest of them found?"""

from types import SimpleNamespace

from ascendsim.frozen import FrozenMap
from ascendsim.profile import Change
from ascendsim.studies.hardware.plans import Best, Family, Way, _mixed, _parted, gradient_us

L0C, L1 = "buffers.L0C.capacity_bytes", "buffers.L1.capacity_bytes"


def way(grad_input, grad_weight="", design=1, **unused):
    plans = {"grad_input": grad_input} | ({"grad_weight": grad_weight} if grad_weight else {})
    return Way(design, FrozenMap(plans), FrozenMap(unused))


def answer(grad_input, grad_weight, cast=0.0):
    times = {"grad_input": grad_input, "cast_grad_input": cast, "grad_weight": grad_weight, "transdata": 99.0}
    return SimpleNamespace(records=[{"kernel": name, "time_us": us} for name, us in times.items()])


def timed(*rows):
    return [(0.0, one, answers) for one, *answers in rows]


def test_the_time_of_a_gradient_has_its_casts_and_no_other_kernels():
    assert gradient_us(answer(3.0, 5.0, cast=0.5), "grad_input") == 3.5
    assert gradient_us(answer(3.0, 5.0, cast=0.5), "grad_weight") == 5.0


def test_the_fastest_plan_of_each_gradient_makes_a_way_where_none_has_them_all():
    one, other = way("A", "a"), way("B", "b")
    assert _mixed(timed((one, answer(10, 5)), (other, answer(8, 7)))) == [way("B", "a")]
    # One that has them all, or is tried already, needs no more.
    assert _mixed(timed((one, answer(10, 5)), (other, answer(12, 7)))) == []
    known = way("B", "a")
    assert _mixed(timed((one, answer(10, 5)), (other, answer(8, 7)), (known, answer(9, 6)))) == []
    # The slowest of the calls that count together decides; of equal plans the first stays.
    rows = (one, answer(1, 5), answer(10, 5)), (other, answer(8, 7), answer(8, 5))
    assert _mixed(timed(*rows)) == [way("B", "a")]
    assert _mixed(timed((one, answer(8, 5)), (other, answer(8, 5)))) == []
    # What is left unused has no say.
    less = way("C", "c", **{L1: 1})
    assert _mixed(timed((less, answer(1, 1)), (one, answer(10, 5)))) == []
    assert _mixed(timed((less, answer(1, 1)))) == []


def test_plans_that_do_not_fit_together_are_tried_one_by_one():
    fits, refused = way("A", "a"), way("B", "b")
    found = _parted([fits, refused], timed((fits, answer(1, 1))))
    assert found == [way("B", "a"), way("A", "b")]
    # Nothing fits, or nothing is refused; a single plan has no parts; none is tried twice.
    assert _parted([refused], []) == _parted([fits], timed((fits, answer(1, 1)))) == []
    assert _parted([fits, way("B")], timed((fits, answer(1, 1)))) == []
    again = way("B", "a")
    assert _parted([fits, refused, again], timed((fits, answer(1, 1)))) == [way("A", "b")]
    less = way("C", "c", **{L1: 1})
    assert _parted([fits, less], timed((fits, answer(1, 1)))) == []
    assert _parted([fits, refused], timed((less, answer(1, 1)))) == []


FIGURES = ({}, {L0C: "x2"}, {L0C: "x2", L1: "x2"}, {L1: "x2"}, {L0C: "x2"}, {L0C: "x1/2"})
FAMILY = Family("910B2", tuple(Change(str(at), FrozenMap(own)) for at, own in enumerate(FIGURES)), {})


def test_a_design_holds_those_that_have_nothing_more_of_equal_ones_those_before():
    assert FAMILY.inside == ((5,), (0, 5), (0, 1, 3, 4, 5), (0, 5), (0, 1, 5), ())
    assert FAMILY._levels == [[5], [0], [1, 3], [4], [2]]


def test_the_fastest_way_is_the_first_of_equal_ones_unless_one_inside_is_faster():
    one, other, less = way("A"), way("B"), way("C", **{L1: 1})
    rows = [(5.0, less, ("l",)), (5.0, one, ("o",)), (7.0, other, ("x",))]
    assert FAMILY._fastest(rows, []) == Best(less, 5.0, ("l",), 5.0, one)
    assert FAMILY._fastest(rows[:1], []) == Best(less, 5.0, ("l",), 5.0, less)
    inside = [Best(way("D", design=0), us, ("d",), us, way("D")) for us in (6.0, 5.0, 4.0)]
    assert FAMILY._fastest(rows, inside[:2]).way == less
    # Its time is taken over; what parts could do at their own speed is not.
    assert FAMILY._fastest(rows, inside) == Best(way("D", design=0), 4.0, ("d",), 5.0, one)
