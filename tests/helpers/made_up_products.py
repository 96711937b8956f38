"""A product of a few figures, and a call that is a formula of them, for studies reckoned by hand."""

from types import SimpleNamespace

from ascendsim.studies.sweep import Sweep


def made_up_call(monkeypatch, figures, time):
    """Return a call for studies, and the overrides and plans that it was asked for.

    `figures` are (value, range) by name; `time` makes microseconds of their values. Cycles are tenths of a
    microsecond. The call has one cube kernel, whose plan is "plan".
    """
    assumed = {path: SimpleNamespace(value=value, range=ends) for path, (value, ends) in figures.items()}
    asked = []

    def load(_, overrides=None):
        values = {path: value for path, (value, _) in figures.items()} | (overrides or {})
        return SimpleNamespace(values=values, overrides=overrides, assumed=lambda: assumed)

    def call(profile, plans):
        asked.append((profile.overrides, plans))
        time_us = time(**profile.values)
        return SimpleNamespace(time_us=time_us, cycles=round(10 * time_us), plans={"grad_input": "plan"})

    monkeypatch.setattr("ascendsim.studies.sweep.load_profile", load)
    return call, asked


def made_up_sweep(monkeypatch, figures, time):
    """Return the sweep about such a call."""
    return Sweep.of("toy", made_up_call(monkeypatch, figures, time)[0])
