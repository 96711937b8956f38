"""Why a call is slow: what each figure of the product does to its time, and what binds behind its bound.

Every number is a run of the call with other figures and its plans held. A figure is halved (a whole number of
1, and one that cannot be halved, is doubled), and those that move most are also made better: the difference
over the step is the derivative of the time by the figure, without any model of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ascendsim.errors import AscendSimError
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.ops.results import Estimate, KernelResult
from ascendsim.profile import Profile, load_profile
from ascendsim.profile.schema import Kind, node_at
from ascendsim.studies.accounts import SHOWN, KernelBound, Lever, LeverAnswer, LeverQuestion
from ascendsim.studies.hardware.figures import sense
from ascendsim.studies.records import LAYOUT_TYPES
from ascendsim.studies.sweep import Sweep, TimedCall, TimedPoint, studied, times

# So many times faster is a pipe that no longer binds: a choice, and no figure of a device.
FASTER = 16
# Figures of a pipe beside its paths; what bytes from and to GM cross belongs to all that move them.
_OF_PIPE = {
    "M": ("cube.",),
    "V": ("vector.",),
    "MTE1": ("load3d.", "load2d.", "l1_write_bytes_per_cycle"),
    "MTE2": ("links.l2_read.", "links.memory."),
    "MTE3": ("links.l2_write.", "links.memory."),
    "FIX": ("fixpipe.", "links.l2_write.", "links.memory."),
}


@default_arithmetic
def study_levers(
    question: LeverQuestion,
    call: TimedCall,
    workers: int | None = None,
    advance: Callable[[str], None] = lambda _: None,
) -> LeverAnswer:
    """Change each figure of the product alone, and make each pipe that binds a kernel fast.

    call     times the call on a product under given plans; workers and advance as of `sweep.times`
    Raises   AscendSimError where the call cannot be timed as it is
    """
    profile = load_profile(question.product)
    sweep = Sweep.of(question.product, call)
    usual = sweep.usual
    steps = steps_of(profile)
    (found,) = times([sweep], [[{path: to} for path, to in steps.items()]], workers, list(steps), advance)
    # Plans that do not fit a half may fit the double.
    again = {
        path: profile.figures[path].value * 2
        for (path, to), point in zip(steps.items(), found, strict=True)
        if point is None and to < profile.figures[path].value
    }
    (more,) = times([sweep], [[{path: to} for path, to in again.items()]], workers, list(again), advance)
    doubled = dict(zip(again, more, strict=True))
    steps |= {path: again[path] for path, point in doubled.items() if point is not None}
    found = [point or doubled.get(path) for path, point in zip(steps, found, strict=True)]
    levers = [
        _lever(path, to, profile, usual, point)
        for (path, to), point in zip(steps.items(), found, strict=True)
    ]
    levers.sort(key=lambda lever: -abs(lever.share or 0.0))
    shown = [one for one in levers[:SHOWN] if one.kernels_us]
    other = {one.figure: _other_way(one) for one in shown if (one.share or 0) > 0}
    (lifted,) = times([sweep], [[{path: to} for path, to in other.items()]], 1, list(other), advance)
    by_figure = {path: (other[path], point) for path, point in zip(other, lifted, strict=True)}
    levers = [_lifted(lever, *by_figure.get(lever.figure, (lever.stepped, None))) for lever in levers]
    bounds = _bounds(sweep, profile)
    return LeverAnswer(question, *studied(profile), usual.time_us, tuple(levers), bounds)


def steps_of(profile: Profile) -> dict[str, Any]:
    """Return the changed value of each figure that is a number and follows from no other."""
    found = {path: _step(path, figure.value) for path, figure in profile.figures.items()}
    return {path: to for path, to in found.items() if to is not None and not path.startswith("energy.")}


def _step(path: str, value: Any) -> Any:
    kind = node_at(tuple(path.split(".")))
    if not isinstance(kind, Kind) or kind.listed or isinstance(value, bool | str) or not value:
        return None
    ways = (value // 2, value * 2) if isinstance(value, int) else (value / 2, value * 2)
    return next((to for to in ways if to and kind.fits(to)), None)


def _other_way(lever: Lever) -> Any:
    """Return the value as far on the other side, by its factor: 2 or a half."""
    halved = lever.value // 2 if isinstance(lever.value, int) else lever.value / 2
    return lever.value * 2 if lever.stepped < lever.value else halved


def _lifted(lever: Lever, to: Any, point: TimedPoint | None) -> Lever:
    """Return a lever with the faster of two values: the step itself, and the one the other way."""
    if point is not None and (lever.stepped_us is None or point.time_us <= lever.stepped_us):
        return lever._replace(better=to, better_us=point.time_us)
    if point is not None or (lever.share or 0) < 0:
        return lever._replace(better=lever.stepped, better_us=lever.stepped_us)
    return lever


def _lever(path: str, to: Any, profile: Profile, usual: Estimate, point: TimedPoint | None) -> Lever:
    value = profile.figures[path].value
    if point is None:
        return Lever(path, value, to, usual.time_us, None, {})
    own = {kernel.name: kernel.time_us for kernel in usual.kernels}
    # A figure may add a kernel, or take one away.
    names = dict.fromkeys([*own, *point.kernels_us])
    more = {name: point.kernels_us.get(name, 0.0) - own.get(name, 0.0) for name in names}
    return Lever(
        *(path, value, to, usual.time_us, point.time_us),
        {name: added for name, added in more.items() if added},
    )


def _bounds(sweep: Sweep, profile: Profile) -> tuple[KernelBound, ...]:
    """Return the bounds of all kernels; for each pipe that binds one the call is timed once more."""
    kernels = sweep.usual.kernels
    behind: dict[str, Mapping[str, KernelResult]] = {}
    for pipe in dict.fromkeys(kernel.bound_by for kernel in kernels):
        try:
            fast = load_profile(sweep.product, overrides=fast_pipe(pipe, profile))
            made = sweep.call(fast, sweep.usual.plans).kernels
        except AscendSimError:
            made = ()
        behind[pipe] = {kernel.name: kernel for kernel in made}
    return tuple(_bound(kernel, behind[kernel.bound_by].get(kernel.name), profile) for kernel in kernels)


def _bound(kernel: KernelResult, then: KernelResult | None, profile: Profile) -> KernelBound:
    return KernelBound(
        kernel.name,
        kernel.kernel.op_type in LAYOUT_TYPES,
        kernel.time_us,
        profile.launch_us(kernel.kernel.blocks_on(kernel.times.cores)),
        kernel.bound_by,
        kernel.busy.get(kernel.bound_by, 0) / max(1, kernel.cycles),
        then.bound_by if then else "",
        then.time_us if then else None,
    )


def fast_pipe(pipe: str, profile: Profile) -> dict[str, Any]:
    """Return the figures of a pipe and of the links that it moves bytes over, each so many times better."""
    paths = [name for name in profile.paths if profile.figures[f"paths.{name}.pipe"].value == pipe]
    begins = *(f"paths.{name}." for name in paths), *_OF_PIPE.get(pipe, ())
    found = {path: _faster(path, profile.figures[path].value) for path in _starting(profile.figures, begins)}
    return {path: to for path, to in found.items() if to is not None}


def _starting(paths: Iterable[str], begins: Sequence[str]) -> list[str]:
    return [path for path in paths if path.startswith(tuple(begins))]


def _faster(path: str, value: Any) -> Any:
    """Return a figure of speed 16 times better, as far as a product may have it; None for other figures."""
    kind = node_at(tuple(path.split(".")))
    # What the cube multiplies in a cycle is no figure of its own.
    way = 1 if path.endswith(".block_k") else sense(path, value)
    if not isinstance(kind, Kind) or not way or not value or kind.limits is None:
        return None
    least, most = kind.limits
    # By so much the first answer comes before the latency, of which little is left.
    if path.endswith(".spread_cycles"):
        return least
    to = value * FASTER if way > 0 else value // FASTER if isinstance(value, int) else value / FASTER
    return type(value)(min(max(to, least), most))
