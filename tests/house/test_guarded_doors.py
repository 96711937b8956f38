"""Do all doors compute under the default arithmetic, whatever mode the caller has set in its thread?

Every call is made plainly, then under each mode, then plainly again: what is remembered from a call under a
mode must not be another answer either.
"""

import gc
import re
import struct
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from functools import _lru_cache_wrapper
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from threading import get_ident
from types import SimpleNamespace

import numpy as np
import pytest

import ascendsim
from ascendsim import Item, estimate_many, precision
from ascendsim.native import default_arithmetic as guard
from ascendsim.numerics.factor import Threads
from ascendsim.numerics.hifloat8 import HiFloat8Array
from ascendsim.profile import list_products, load_profile
from ascendsim.studies.identify import judge
from ascendsim.studies.identify.vectors import ProbeCase
from tests.helpers.format_samples import MODES, mode, modes_set
from tests.helpers.guarded_calls import CALLS, LAYER, PROBLEM, PRODUCT, SUBNORMAL, TINY, USUAL, backward, told
from tests.helpers.guarded_exports import STUDIES, TORCH, exported, leaves, not_called, shown

pytestmark = pytest.mark.skipif(not MODES, reason="this processor's modes are not known here")
TABLE = {**CALLS, **STUDIES, **TORCH}
# What is compiled stays compiled.
KEPT = ("ascendsim.native", "ascendsim.numerics.compiled")


def memories():
    """Return what calls have remembered so far; what is compiled is left out, and stays."""
    # Not by isinstance: lazy objects of torch would be woken up.
    found = [one for one in gc.get_objects() if type(one) is _lru_cache_wrapper]
    ours = ((one, str(getattr(one, "__module__", ""))) for one in found)
    return [one for one, module in ours if module.startswith("ascendsim.") and not module.startswith(KEPT)]


def forget(remembered):
    for one in remembered:
        one.cache_clear()


def bits(value):
    """Return a value as what can be compared bit for bit."""
    if isinstance(value, HiFloat8Array):
        return bits(value.codes)
    if isinstance(value, float):
        return struct.pack("<d", value)
    if isinstance(value, np.ndarray | np.generic):
        return str(value.dtype), value.shape, value.tobytes()
    if type(value).__module__.startswith("torch"):
        return bits(value.detach().contiguous().numpy())
    if is_dataclass(value):
        return type(value).__name__, [
            bits(getattr(value, field.name)) for field in fields(value) if field.compare
        ]
    if isinstance(value, Mapping):
        return [(str(key), bits(held)) for key, held in value.items()]
    if isinstance(value, tuple | list | SimpleNamespace):
        return [bits(held) for held in value]
    return repr(value)


# On these inputs no mode can change anything, guard or not: bits are cut and integers compared.
STEADY = {
    *(
        "numerics.casts.cast_twin",
        "numerics.casts.hf32",
        "numerics.casts.round_to",
    ),
    *("numerics.hifloat8.round_hifloat8", "numerics.hifloat8.round_hybrid"),
    *(
        "numerics.dtypes.ulps",
        "ops.tiling.legal_tilings.legal_tilings",
        "ops.tiling.plan_files.read_plans",
    ),
    *("ops.tiling.vendor.operators.operator_plan", "profile.files.profile_from_tree"),
    "studies.arithmetic.formats.format_of",
}
# Modes under which what is remembered is made anew; and what takes long runs under no others.
FRESH = ("up", "ftz and daz")
LONG = {
    *("studies.codesign.study_codesign", "studies.hardware.gains.study_hardware", "studies.levers.steps_of"),
    *("studies.identify.folder.read_outputs", "studies.uncertainty.intervals", "studies.tuning.tune.export"),
}


def test_every_export_is_called_or_has_a_reason_not_to_be():
    pytest.importorskip("torch", reason="the door of PyTorch is among the exports")
    names, reasons = set(exported()), not_called()
    assert sorted(names - set(TABLE) - set(reasons)) == [], "call it in a table, or say why not"
    assert sorted((set(TABLE) | set(reasons)) - names) == [], "exported no longer"
    assert set(TABLE) & set(reasons) == set()


def test_what_is_a_step_of_a_door_is_shown_nowhere():
    pytest.importorskip("torch", reason="the door of PyTorch is among the exports")
    steps = {name for name, reason in not_called().items() if reason.endswith("shown nowhere")}
    assert "ops.reference.ordered.ordered_dgrad" in steps
    assert shown() & steps == set()


def needs_torch(name):
    return pytest.mark.skipif(name in TORCH and not find_spec("torch"), reason="torch is not installed")


# Several names stand for one call where they are parts of one work; the first of them says what it is.
ONE_EACH = [
    (call, name)
    for call, name in {call: name for name, calls in reversed(TABLE.items()) for call in calls}.items()
]
EACH_CALL = pytest.mark.parametrize(
    ("call", "name"), [pytest.param(call, name, id=name, marks=needs_torch(name)) for call, name in ONE_EACH]
)


def hold(call, kinds=MODES):
    """Hold a call under each mode against the plain one; what it has remembered, too."""
    expected = bits(call())
    remembered = memories()
    for kind in kinds:
        if kind in FRESH:
            forget(remembered)
        with mode(kind):
            before = modes_set()
            found = call()
            after = modes_set()
        assert bits(found) == expected, kind
        assert after == before, kind
        if kind in FRESH:
            assert bits(call()) == expected, f"remembered from {kind}"


@EACH_CALL
def test_no_mode_of_the_caller_changes_a_bit(call, name):
    hold(call, FRESH if name in LONG else MODES)


@pytest.mark.parametrize("kind", MODES)
def test_a_function_without_a_guard_does_not_hold(kind):
    third = np.float32([1 / 3, -1 / 3])
    hold(lambda: third.copy(), [kind])
    with pytest.raises(AssertionError, match=kind):
        hold(lambda: (SUBNORMAL + SUBNORMAL, third * third[0]), [kind])


@contextmanager
def opened(which):
    """Take guards away: that of the door alone ("outermost"), or those of what it calls as well ("all")."""
    real, inside = guard._access(), []

    # A guard that finds another word than the default writes twice: as it begins, and as it ends.
    def write(word):
        inside.pop() if word else inside.append(word)

    door = guard._Access(lambda: 1, write, 0, 1, None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(guard, "_access", lambda: real if inside and which == "outermost" else door)
        patch.setattr(guard, "is_default", lambda *_: False)
        yield


def answered(call):
    try:
        return bits(call())
    except Exception as error:  # such as a value that is off the grid to which it was rounded
        return repr(error)


GROUPS = {tuple(calls): name for name, calls in reversed(TABLE.items())}


@pytest.mark.slow  # a minute: whether the test above can fail of a door changes as seldom as the door does
@pytest.mark.parametrize(
    ("calls", "name"),
    [pytest.param(calls, name, id=name, marks=needs_torch(name)) for calls, name in GROUPS.items()],
)
def test_without_guards_some_mode_does_change_each(calls, name):
    expected = [bits(call()) for call in calls]
    remembered = memories()

    def changed(at, which, kind):
        with opened(which), mode(kind):
            forget(remembered)
            return answered(calls[at]) != expected[at]

    # The likely ones first: one that changes something is enough.
    kinds = sorted(MODES, key=lambda kind: kind not in FRESH)
    tried = product(("outermost", "all"), kinds, range(len(calls)))
    found = any(changed(at, which, kind) for which, kind, at in tried)
    forget(remembered)
    assert found == (name not in STEADY)


# ---- What the table leaves out


@pytest.fixture(params=MODES)
def set_by_caller(request):
    """Set a mode; whoever asks is told its word."""
    with mode(request.param):
        yield modes_set()


DEFAULT = modes_set() if MODES else 0


def test_what_takes_seconds_begins_under_the_default(set_by_caller, monkeypatch, tmp_path):
    words = []
    monkeypatch.setattr(judge, "identify_format", lambda *_: words.append(modes_set()))
    monkeypatch.setattr(
        precision, "read_outputs", lambda _: words.append(modes_set()) or {ProbeCase("a", "float16"): 0}
    )
    precision.identify(tmp_path)
    judge.identify_outputs({ProbeCase("a", "float16"): 0})
    assert words == [DEFAULT] * 3
    assert modes_set() == set_by_caller


@pytest.mark.usefixtures("set_by_caller")
def test_threads_of_a_call_begin_under_the_default(monkeypatch):
    met, own = [], Threads.run

    def watched(self, function, tasks):
        def told_of(*task):
            met.append((get_ident(), modes_set()))
            return function(*task)

        return own(self, told_of, tasks)

    monkeypatch.setattr(Threads, "run", watched)
    backward(USUAL, timing=False, threads=2)
    assert {word for _, word in met} == {DEFAULT}
    assert len({thread for thread, _ in met}) == 2


def test_estimates_of_other_processes_are_the_same():
    items = [Item(PROBLEM, product=PRODUCT), Item(LAYER, product=PRODUCT)]
    expected = [bits(told(one)) for one in estimate_many(items, workers=1)]
    with mode("up"):
        assert [bits(told(one)) for one in estimate_many(items, workers=2)] == expected


@pytest.mark.parametrize("kind", MODES)
def test_product_files_that_were_listed_under_a_mode_are_read_well(kind):
    expected = load_profile(PRODUCT).told
    forget(memories())
    with mode(kind):
        list_products()
    assert load_profile(PRODUCT).told == expected


# What picks one of its numbers computes nothing; a step of a door computes under the guard of that.
PICKED = {
    *("studies/engine/measure.parts_us", "studies/modes/choice.lost", "studies/modes/losses.top"),
    *("studies/records.shortest", "studies/records.longest", "studies/records._times"),
    *("studies/tuning/records.least", "studies/verdicts.low", "studies/verdicts.high"),
    *("validate/schema.measured", "validate/schema.counters", "torch/ledger.time_us"),
}
OF_DOORS = {"report/page/__init__.ridge", "validate/row_fit.room"}
PROPERTY = re.compile(r"    @property\n((?:    @.*\n)*)    def (\w+)\(self\) -> .*\bfloat\b.*:\n")


def test_a_property_that_computes_floats_is_guarded():
    root = Path(ascendsim.__path__[0])
    found = {
        f"{file.relative_to(root).with_suffix('').as_posix()}.{name}"
        for file in root.rglob("*.py")
        for guards, name in PROPERTY.findall(file.read_text())
        if "@default_arithmetic" not in guards and "@default_floats" not in guards
    }
    assert found == PICKED | OF_DOORS


def test_a_generator_is_not_guarded_in_vain():
    def numbers():
        yield 0.1 + 0.2

    with pytest.raises(TypeError, match="numbers is a generator"):
        guard.default_arithmetic(numbers)


def test_plain_floats_load_no_code_where_the_default_is_set(monkeypatch):
    asked = []
    real = guard._access()
    monkeypatch.setattr(guard, "_access", lambda: asked.append(1) or real)
    tenth = guard.default_floats(lambda: float("0.1"))
    assert (tenth(), asked) == (0.1, [])
    for kind in MODES:
        with mode(kind):
            found = tenth()
        assert found.hex() == (0.1).hex()
    assert len(asked) == len(MODES)


@needs_torch("torch.dispatch.Simulation")
def test_a_backward_in_another_thread_than_its_forward(set_by_caller):
    from ascendsim.torch import Setting, convolution

    def gradients(wait):
        grad_output, input, weight, _ = (tensor.clone().requires_grad_() for tensor in leaves(USUAL))
        made = convolution(input, weight, None, 1, 1, setting=Setting(PRODUCT))
        wait(made.backward, grad_output.detach())
        return bits([input.grad, weight.grad])

    def elsewhere(function, *given):
        with ThreadPoolExecutor(1) as pool:  # begins with the mode of this thread
            assert pool.submit(modes_set).result() == set_by_caller
            pool.submit(function, *given).result()

    assert gradients(elsewhere) == gradients(lambda function, *given: function(*given))


@needs_torch("torch.dispatch.Simulation")
def test_what_torch_computes_itself_keeps_the_mode_of_the_script():
    from torch.nn.functional import conv2d

    from ascendsim.torch import Simulation

    def run():
        return bits(conv2d(*leaves(TINY)[1:3], padding=1))

    plain = run()
    with mode("ftz and daz"):
        by_torch = run()
        with Simulation(PRODUCT, layers="none of them"):
            assert run() == by_torch
    assert by_torch != plain
