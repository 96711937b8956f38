"""Does a frozen mapping stay as it is, does it travel, and is an attribute worked out once?"""

import contextlib
import copy
import json
import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Barrier

import pytest

from ascendsim.frozen import FrozenMap, cached_property

MADE = FrozenMap({"b": 2, "a": 1})
CHANGES = {
    "set": lambda m: m.__setitem__("a", 3),
    "delete": lambda m: m.__delitem__("a"),
    "in place": lambda m: m.__ior__({"c": 3}),
    "clear": lambda m: m.clear(),
    "pop": lambda m: m.pop("a"),
    "pop with a default": lambda m: m.pop("c", None),
    "popitem": lambda m: m.popitem(),
    "setdefault": lambda m: m.setdefault("c", 3),
    "setdefault of what is there": lambda m: m.setdefault("a", 3),
    "update": lambda m: m.update(c=3),
    "update with nothing": lambda m: m.update(),
    "begin again": lambda m: m.__init__({"c": 3}),
    "an attribute": lambda m: setattr(m, "note", 3),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_nothing_changes_it(change):
    with pytest.raises((TypeError, AttributeError)):
        change(MADE)
    assert list(MADE.items()) == [("b", 2), ("a", 1)]


def test_every_method_of_a_dict_that_changes_one_is_refused():
    # Asked of Python itself: whatever method a dict has gets arguments that would change it.
    arguments = [(), ("a",), ("a", 5), ({"z": 1},)]
    for name in set(dir(dict)) - set(dir(object)) | {"__init__"}:
        for given in arguments:
            made = FrozenMap({"b": 2, "a": 1})
            with contextlib.suppress(TypeError, KeyError, AttributeError):
                getattr(made, name)(*given)
            assert made == {"b": 2, "a": 1}, (name, given)


def test_it_is_a_copy_of_what_it_was_made_of():
    source = {"a": 1}
    made = FrozenMap(source)
    source["a"] = 2
    assert made == {"a": 1}


def test_it_says_what_to_do_instead():
    with pytest.raises(TypeError, match="FrozenMap cannot be changed; make a dict of it"):
        MADE["a"] = 3


def test_reading_is_that_of_a_dict():
    assert MADE == {"a": 1, "b": 2} == dict(MADE)
    assert {**MADE, "c": 3} == MADE | {"c": 3} == {"a": 1, "b": 2, "c": 3}
    assert type(MADE | {"c": 3}) is dict  # a new dict, free to be changed
    assert json.dumps(MADE) == '{"b": 2, "a": 1}'
    assert repr(MADE) == "FrozenMap({'b': 2, 'a': 1})"


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_it_pickles_and_is_frozen_again(protocol):
    again = pickle.loads(pickle.dumps(MADE, protocol))
    assert type(again) is FrozenMap
    assert list(again.items()) == list(MADE.items())
    with pytest.raises(TypeError):
        again["a"] = 3


def test_a_deep_copy_has_its_own_values_and_a_copy_needs_none():
    inner = [1]
    made = FrozenMap(inner=inner)
    deep = copy.deepcopy(made)
    assert type(deep) is FrozenMap
    assert deep == made
    assert deep["inner"] is not inner
    assert copy.copy(made) is made


def test_equal_maps_have_one_hash_whatever_their_order():
    assert hash(FrozenMap({"a": 1, "b": 2})) == hash(MADE)
    assert len({MADE, FrozenMap({"a": 1, "b": 2}), FrozenMap({"a": 1})}) == 2


def test_a_map_of_what_has_no_hash_has_none():
    with pytest.raises(TypeError, match="unhashable"):
        hash(FrozenMap({"a": [1]}))


@dataclass(frozen=True)
class Line:
    """Notes what it has in the moment in which its length is worked out."""

    begin: int
    end: int
    noted: list = field(default_factory=list, compare=False)

    @cached_property
    def length(self):
        """The length."""
        self.noted.append(set(vars(self)))
        return self.end - self.begin


class Closed(Line):
    @cached_property
    def length(self):
        shorter = super().length
        self.noted.append(set(vars(self)))
        return shorter + 1


def test_an_attribute_is_worked_out_once_for_each_object():
    one, other = Line(2, 5), Line(2, 9)
    assert (one.length, other.length, one.length, other.length) == (3, 7, 3, 7)
    assert len(one.noted) == len(other.noted) == 1
    assert one == Line(2, 5)
    assert Line.length.__doc__ == "The length."


def test_nobody_sees_what_an_attribute_would_be_without_an_override():
    line = Closed(2, 5)
    assert (line.length, line.length) == (4, 4)
    assert line.noted == [{"begin", "end", "noted"}] * 2


def test_threads_that_work_an_attribute_out_at_once_get_one_object():
    meeting = Barrier(2)

    class Held:
        @cached_property
        def known(self):
            meeting.wait(30)
            return {}

    held = Held()
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(lambda _: held.known, range(2))
    assert first is second is held.known


def test_an_attribute_that_cannot_be_worked_out_is_tried_again():
    class Late:
        tries = 0

        @cached_property
        def answer(self):
            self.tries += 1
            return 6 // (self.tries - 1)

    late = Late()
    with pytest.raises(ZeroDivisionError):
        _ = late.answer
    assert late.answer == 6


def test_an_attribute_travels_with_its_object():
    line = Line(2, 5)
    assert line.length == 3
    assert vars(pickle.loads(pickle.dumps(line)))["length"] == 3
