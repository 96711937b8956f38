"""What does the command leave to a shell: which words are completed, and what is logged?"""

import logging
import os
import re
import shutil
import subprocess
import sys
from types import FunctionType

import numba
import pytest
from numba.core import event

from ascendsim import ConvProblem, estimate
from ascendsim.cli import main
from ascendsim.cli.parser import make_parser
from ascendsim.cli.shell import CLEAR, COMPILING, SHELLS, told
from ascendsim.native import build as telling
from ascendsim.native.build import build
from ascendsim.ops import many
from tests.helpers import native_functions as plain

# --- Does a shell that has read our script complete commands, options, products and networks? ----------

COMPLETE = """
COMP_WORDS=({words}); COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))
_shtab_ascendsim; printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture
def made(capsys):
    pytest.importorskip("shtab", reason="shtab is not installed: `ascendsim completion` has nothing to write")

    def script(shell):
        assert main(["completion", shell]) == 0
        return capsys.readouterr().out

    return script


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("ascendsim prof", {"profiles"}),
        ("ascendsim run --cycles", {"--cycles-only"}),
        ("ascendsim run --product 910B", {"910B", "910B1", "910B2", "910B3", "910B4"}),
        ("ascendsim run --network mob", {"mobilenet_v2"}),
        ("ascendsim study hard", {"hardware"}),
    ],
)
def test_bash_completes(made, words, expected):
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash here")
    *before, last = words.split()
    quoted = " ".join(f'"{word}"' for word in (*before, last))
    done = subprocess.run(
        [bash, "--norc"],
        input=made("bash") + COMPLETE.format(words=quoted),
        capture_output=True,
        text=True,
        check=True,
    )
    assert expected <= set(done.stdout.split()), done.stderr


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_gets_a_script_that_names_every_command(made, shell):
    text = made(shell)
    for command in ("run", "profiles", "check", "validate", "probe", "identify", "study"):
        assert command in text


def test_without_shtab_the_command_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "shtab", None)  # an import of it fails
    assert main(["completion", "bash"]) == 2
    assert "needs shtab, which is not installed" in capsys.readouterr().err


def test_another_shell_is_refused(capsys):
    assert main(["completion", "fish"]) == 2
    assert "invalid choice: 'fish'" in capsys.readouterr().err


# --- Is `-v` the only way to hear the package, and can a program that imports it listen? ---------------

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


def shown(text):
    """Return what a terminal has shown, line by line: all that stood in each of them."""
    return [line.split(CLEAR) for line in text.split("\n")]


@pytest.mark.parametrize("terminal", [True, False])
def test_a_person_is_told_what_is_compiled_in_one_line_that_goes(monkeypatch, capsys, terminal):
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    logger = logging.getLogger(telling.LOGGER)
    with told(wanted=False):
        for function in ("one", "two"):
            logger.info(telling.STARTED, function)
            logger.debug(telling.AT, function, 1, 3, "part")
            logger.info(telling.DONE, function, 0.5)
    logger.info(telling.STARTED, "three")
    each = [
        [
            f"compiling {function}, which is in no cache yet",
            f"compiling {function}: 1 of 3 functions, part",
            "",
        ]
        for function in ("one", "two")
    ]
    expected = [[COMPILING], ["", *each[0], *each[1]]] if terminal else [[""]]
    assert shown(capsys.readouterr().err) == expected


def test_a_line_ends_before_the_terminal_does(monkeypatch, capsys):
    # A longer one would go on in the next line, which stays when this one goes.
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "20")
    with told(wanted=False):
        logging.getLogger(telling.LOGGER).debug(telling.AT, "one", 1, 3, "part")
    assert shown(capsys.readouterr().err)[1] == ["", "compiling one: 1 of"]


def test_each_function_is_told_as_its_turn_comes(caplog):
    functions = (plain.scaled, plain.chained)
    with caplog.at_level(logging.DEBUG, logger=telling.LOGGER):
        build(functions, ("int64[]", "int64"), False)
    # The entry first, then what it calls; and no function of the compiler's own.
    *turns, done = [record.getMessage() for record in caplog.records]
    assert turns == [
        "compiling chained, which is in no cache yet",
        "compiling chained: 1 of 2 functions, chained",
        "compiling chained: 2 of 2 functions, scaled",
    ]
    assert re.fullmatch(r"compiled chained in \d+\.\d s", done)


KERNEL = """
import logging, sys
logging.basicConfig(stream=sys.stdout, format="%(message)s")
logging.getLogger("ascendsim.native.build").setLevel(logging.INFO)
import numba, numpy as np
from ascendsim.numerics.accumulation import AccumulationModel
from ascendsim.numerics.compiled.accumulate import accumulate
numba.njit(lambda x: x + 1)(1)
ones = np.ones((4, 4), np.float32)
accumulate(AccumulationModel.parse("seq:RNE"), ones, ones, ones.copy())
"""


def test_functions_of_others_that_are_in_no_module_compile_as_ever(caplog):
    others = FunctionType((lambda x: x + 1).__code__, {}, "others")
    others.__module__ = None
    caplog.set_level(logging.INFO, telling.LOGGER)
    with event.install_listener("numba:compile", telling.Asked("ascendsim.numerics")):
        assert numba.njit(others)(3) == 4
    assert not caplog.messages


def test_a_model_that_is_compiled_is_told_too_and_only_once(tmp_path):
    runs = [
        subprocess.run(
            [sys.executable, "-c", KERNEL],
            env=os.environ | {"XDG_CACHE_HOME": str(tmp_path), "NUMBA_CACHE_DIR": ""},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()
        for _ in range(2)
    ]
    # Each function that is asked for has two lines, with nothing between them; the caller's own has none.
    begun, done = runs[0][::2], runs[0][1::2]
    assert begun
    assert all(line.startswith("compiling ") and "lambda" not in line for line in begun)
    assert [line.split()[1].rstrip(",") for line in begun] == [line.split()[1] for line in done]
    assert runs[1] == []


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


@pytest.mark.parametrize(("workers", "times"), [(1, 0), (2, 1)])
def test_the_engine_is_compiled_before_several_processes_start(monkeypatch, workers, times):
    # One process compiles when it comes to it; two would both, and unheard.
    asked = []
    monkeypatch.setattr(many, "get_ready", lambda: asked.append("ready"))
    monkeypatch.setattr(many, "in_order", lambda *_: asked.append("started"))
    item = many.Item(ConvProblem(input=(1, 16, 6, 6), weight=(16, 16, 1, 1)))
    many.estimate_many([item, item], workers=workers)
    assert asked == ["ready"] * times + ["started"]
