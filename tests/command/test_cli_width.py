"""Is no line wider than the terminal that it is printed on?"""

from contextlib import suppress

import pytest

from ascendsim.cli import main
from ascendsim.report.terminal import LEAST_WIDTH, make_console, print_table
from ascendsim.studies.table import text_table

SMALL = ("--input", "1,16,6,6", "--weight", "32,16,3,3", "--padding", "1")
CYCLES = ("run", *SMALL, "--cycles-only")
FIVE = tuple(word for name in ("910B", "910_93", "910_95", "310P", "910") for word in ("--product", name))
CORES = "cores.cube=20"
QUICK = ("--jobs", "1", "--no-interval")
COMMANDS = [
    ("--help",),
    *((*words, "--help") for words in (["run"], ["profiles"], ["check"], ["validate"], ["probe"])),
    *((*words, "--help") for words in (["identify"], ["study"], ["completion"])),
    *(("study", name, "--help") for name in ("hardware", "tiling", "precision", "codesign")),
    ("run", *SMALL),
    ("run", *SMALL, "--details"),
    ("run", *SMALL, "--layout", "NC1HWC0"),
    ("run", *SMALL, *FIVE),
    (*CYCLES, *FIVE, "--details"),
    (*CYCLES, "--accumulation", "seq:RNE", "--product", "910_95"),
    ("run", "--workload", "FILE"),
    ("run", "--workload", "FILE", "--details"),
    ("run", "--workload", "FILE", *FIVE),
    ("profiles",),
    ("profiles", "910_95"),
    ("check", *SMALL),
    ("probe", "--out", "PROBE", "--dtype", "float16"),
]
# These take longer, and print their tables as the ones above do: on the narrowest terminal alone.
LONGER = [
    (*CYCLES, "--out", "OUT"),
    (*CYCLES, "--product", "910_95", "--product", "910B", "--interval", "--details"),
    ("study", "hardware", "--network", "FILE", "--change", CORES, *QUICK),
    ("study", "codesign", "--network", "FILE", "--cost", "cores.cube", "--change", CORES, *QUICK),
    ("study", "tiling", "a", "--network", "FILE", "--gradient", "input", "--tilings", "4", *QUICK),
    ("study", "precision", *SMALL, "--jobs", "1"),
]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Files that the commands name."""
    folder = tmp_path_factory.mktemp("wide")
    layer = "input = [16, 6, 6], weight = [16, 16, 3, 3], padding = 1"
    (folder / "two.toml").write_text(
        f'layers = [{{ name = "a", {layer}, count = 3 }}, {{ name = "b", {layer} }}]'
    )
    return folder


def wide_lines(words, width, files, capsys, tmp_path):
    """The lines that a command prints and that are wider; but for paths that cannot be cut."""
    names = {"FILE": files / "two.toml", "OUT": tmp_path / "out", "PROBE": tmp_path / "probe"}
    said = [str(names.get(word, word)) for word in words]
    with suppress(SystemExit):
        assert main(said) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines
    return [line for line in lines if len(line) > width and str(tmp_path) not in line]


@pytest.mark.usefixtures("fresh_store")
@pytest.mark.parametrize(
    "words", [*COMMANDS, *(pytest.param(words, marks=pytest.mark.slow) for words in LONGER)], ids=" ".join
)
def test_no_line_is_wider_than_the_terminal(words, files, monkeypatch, capsys, tmp_path):
    for width in (80,) if words in LONGER else (80, 100, 200):
        monkeypatch.setenv("COLUMNS", str(width))
        assert not wide_lines(words, width, files, capsys, tmp_path / str(width))


def test_a_table_that_fits_no_terminal_stands_in_blocks(monkeypatch, capsys):
    # Two names and 9 numbers of 20 digits want 2 x 8 + 9 x 22 columns: of 80, three numbers a block.
    rows = tuple((f"row{at}", f"part{at}", *[str(10**19 + at)] * 9) for at in range(2))
    table = text_table("wide", ("row", "part", *(f"n{at}" for at in range(9))), {0, 1}, rows)
    monkeypatch.setenv("COLUMNS", "80")
    print_table(make_console(), table)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    heads = [line.split() for line in lines if line.startswith("row ")]
    assert heads == [
        ["row", "part", *(f"n{at}" for at in part)] for part in ((0, 1, 2), (3, 4, 5), (6, 7, 8))
    ]
    assert sum(line.startswith("row0") and line.count(str(10**19)) == 3 for line in lines) == 3
    # Nothing is lost where a single word is wider than the terminal: it is folded.
    print_table(make_console(), text_table("", ("path",), {0}, (("x" * 300,),)))
    text = capsys.readouterr().out
    assert text.count("x") == 300
    assert max(map(len, text.splitlines())) <= 80
    # In a pipe that asks for no width a row is one line.
    monkeypatch.delenv("COLUMNS")
    print_table(make_console(), table)
    assert sum("row0" in line for line in capsys.readouterr().out.splitlines()) == 1
    assert LEAST_WIDTH < 80
