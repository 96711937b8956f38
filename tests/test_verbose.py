"""Is `-v` the only way to hear the package, and can a program that imports it listen?"""

import logging

import pytest

from ascendsim import ConvProblem, estimate
from ascendsim.cli import main
from ascendsim.cli.parser import make_parser
from ascendsim.cli.shell.verbose import COMPILING, told

SMALL = ("--input", "1,16,6,6", "--weight", "16,16,1,1", "--cycles-only", "--mask", "input")


def test_the_command_tells_what_it_times_only_if_it_is_asked_to(capsys):
    assert main(["run", *SMALL]) == 0
    quiet = capsys.readouterr()
    assert quiet.err == ""
    for words in (["run", *SMALL, "-v"], ["-v", "run", *SMALL]):
        assert main(words) == 0
        loud = capsys.readouterr()
        assert "ascendsim.ops.graph_times: grad_input on 910B2: " in loud.err
        assert loud.out == quiet.out


@pytest.mark.parametrize(("terminal", "lines"), [(True, [COMPILING]), (False, [])])
def test_a_person_is_told_once_that_code_is_compiled(monkeypatch, capsys, terminal, lines):
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    compiled = logging.getLogger("ascendsim.native.build")
    with told(wanted=False):
        for function in ("one", "two"):
            compiled.info("compiling %s, which is in no cache yet", function)
    compiled.info("compiling %s, which is in no cache yet", "three")
    assert capsys.readouterr().err.splitlines() == lines


def test_a_command_after_a_verbose_one_is_quiet_again(capsys):
    main(["run", *SMALL, "--verbose"])
    capsys.readouterr()
    main(["run", *SMALL])
    assert capsys.readouterr().err == ""
    assert logging.getLogger("ascendsim").level == logging.NOTSET


def test_a_program_hears_the_package_through_logging(caplog):
    problem = ConvProblem(input=(1, 16, 6, 6), weight=(16, 16, 1, 1))
    with caplog.at_level(logging.DEBUG, logger="ascendsim"):
        estimate(problem, dtype="float16", product="910B", output_mask=(True, False, False))
    timed = [record for record in caplog.records if record.name == "ascendsim.ops.graph_times"]
    # Changes of layout of grad_output and weight, the product, and its change back.
    assert len(timed) == 4
    assert timed[2].getMessage().startswith("grad_input on 910B2: ")


def test_every_command_takes_it():
    _, commands = make_parser()
    assert "study" in commands
    for name, command in commands.items():
        assert "-v" in command._option_string_actions, name


@pytest.mark.parametrize("name", ["ascendsim", "ascendsim.ops.graph_times"])
def test_nothing_is_said_where_nobody_listens(name):
    # Without a handler of its own Python would print warnings of a library on standard error.
    assert any(isinstance(made, logging.NullHandler) for made in logging.getLogger("ascendsim").handlers)
    assert logging.getLogger(name).getEffectiveLevel() >= logging.WARNING
