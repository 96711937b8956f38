"""Does a shell that has read our script complete commands, options, products and networks?"""

import shutil
import subprocess
import sys

import pytest

from ascendsim.cli import main
from ascendsim.cli.shell import SHELLS

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
