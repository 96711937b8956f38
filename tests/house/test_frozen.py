"""Does a frozen mapping stay as it is, and does it travel?"""

import contextlib
import copy
import json
import pickle

import pytest

from ascendsim.frozen import FrozenMap

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
