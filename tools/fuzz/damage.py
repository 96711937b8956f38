"""Whether damaged files, odd command lines, damaged stores and ends at any moment lose or hang anything."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

import numpy as np

from ascendsim import AscendSimError, Plan, Tiling, load_profile, read_plans, write_plans
from ascendsim.cli import main
from ascendsim.cli.checks import calls_in_file
from ascendsim.cli.parser import make_parser
from ascendsim.cli.tensors import read_npz
from ascendsim.errors import DataError
from ascendsim.files import printable, write_npz
from ascendsim.rules import load_rules
from ascendsim.studies.engine.run import Store
from ascendsim.validate.schema import read_lines
from ascendsim.workloads import load_workload
from fuzz.files import CALL, JSON, VALUES
from fuzz.judge import must
from tests.helpers.report_samples import points
from tests.studies.test_study_engine import check_killed, engine
from tests.workloads.test_onnx_models import node, save

ROOT = Path(__file__).parents[2]
LAYER = ["--input", "1,16,6,6", "--weight", "16,16,3,3", "--padding", "1"]
PLAN = Plan("dgrad", Tiling(16, 16, 16))


def _model(path):
    nodes = [node("Conv", ["image", "w"], "out", pads=[1, 1, 1, 1], kernel_shape=[3, 3])]
    save(path, nodes, {"w": (16, 3, 3, 3)})


def _copied(name):
    return lambda path: path.write_bytes((ROOT / name).read_bytes())


# By format: the ending, who reads it, who writes one that is whole.
FORMATS = {
    "product": (".toml", load_profile, _copied("configs/910.toml")),
    "rules": (".toml", load_rules, _copied("configs/rules/documented.toml")),
    "network": (".toml", load_workload, _copied("ascendsim/workloads/alexnet.toml")),
    "plans": (".toml", read_plans, lambda path: write_plans(path, {"grad_input": PLAN})),
    "plans in JSON": (".json", read_plans, lambda path: write_plans(path, {"grad_input": PLAN})),
    "calls": (".json", calls_in_file, lambda path: path.write_text(json.dumps(CALL))),
    "npz": (".npz", read_npz, lambda path: write_npz(path, {"input": np.ones((1, 2, 4, 4), np.float16)})),
    "model": (".onnx", load_workload, _model),
    "table": (".csv", lambda path: read_lines(path, "a table"), _copied("ascendsim/studies/model_error.csv")),
}


@cache
def _whole(name):
    """Return the bytes of a file that nobody has damaged."""
    ending, _, make = FORMATS[name]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"whole{ending}"
        make(path)
        return path.read_bytes()


def damaged(pick, content):
    """Return bytes with one to three places flipped, cut, doubled, left out, or changed for odd words."""
    made = bytearray(content)
    for _ in range(pick.choice((1, 1, 2, 3))):
        first = pick.randrange(len(made) + 1)
        last = min(len(made), first + pick.choice((1, 2, 8, 64, 1000)))
        kind = pick.randrange(6)
        if kind == 0 and made:
            made[pick.randrange(len(made))] ^= 1 << pick.randrange(8)
        elif kind == 1:
            del made[pick.choice((first, last)) :]
        elif kind == 2:
            made[first:first] = made[first:last] * pick.choice((1, 2, 1000))
        elif kind == 3:
            del made[first:last]
        elif kind == 4:
            made[first:last] = pick.randbytes(pick.randrange(1, 9))
        elif words := [*re.finditer(rb"[\w.+-]+|\"[^\"\n]*\"", made)]:
            word = pick.choice(words)
            made[word.start() : word.end()] = str(pick.choice((*VALUES, *JSON[:8]))).encode()
    return bytes(made)


def damaged_file(pick):
    """Read a file of any format that is damaged: it is read, or refused in words that can be printed."""
    name = pick.choice(sorted(FORMATS))
    ending, read, _ = FORMATS[name]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"damaged{ending}"
        path.write_bytes(damaged(pick, _whole(name)))
        try:
            read(path)
        except AscendSimError as error:
            said = str(error)
            must(said == printable(said) and len(said) < 4000, f"{name}: {said[:200]!r}")
            return f"{name} refused"
    return f"{name} read"


LINES = (
    ["run", *LAYER, "--cycles-only"],
    ["run", *LAYER, "--cycles-only", "--json"],
    ["run", *LAYER],
    ["run", "alexnet", "--cycles-only"],
    ["profiles", "910B"],
    ["profiles", "--json"],
    ["check", "call.json"],
    ["validate", "table.csv"],
    ["calibrate", "table.csv"],
    ["probe", "folder"],
    ["identify", "folder"],
    ["completion", "bash"],
    ["study", "hardware", "s3b1_3x3", "--trials", "1", "--no-interval", "--store", "store.sqlite"],
    ["study", "traffic", "s3b1_3x3"],
)
WORDS = (
    *(
        "",
        "-",
        "--",
        "0",
        "1",
        "-1",
        "2",
        "16",
        "1e9",
        "nan",
        "inf",
        "99999999999999999999",
        "a,b",
        ",",
        "1,2",
    ),
    *("910B", "310P", "910C", "float16", "int8", "input", "grad_input", "cold", "search", "\ud800", "a\0b"),
    *("call.json", "folder", ".", "/dev/null", "nowhere/x", "x" * 5000, "\x1b[2J", "paths.GM_L1=x2"),
)


@cache
def _flags(command):
    """Return the flags of a command, with those of all its questions."""
    listed = make_parser()[1]
    kinds = [parser for name, parser in listed.items() if command in (name, *name.split())]
    return sorted({flag for parser in kinds for flag in parser._option_string_actions}) or ["--help"]


def command_line(pick):
    """Run a command with one to three words changed, added or left out; it answers with its exit status."""
    words = list(pick.choice(LINES))
    for _ in range(pick.choice((0, 1, 1, 2, 3))):
        at, odd = pick.randrange(1, len(words) + 1), pick.choice((*WORDS, *_flags(words[0])))
        words[at : at + pick.choice((0, 1))] = [odd][: pick.choice((1, 1, 1, 0))]
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        Path("call.json").write_bytes(_whole("calls"))
        Path("table.csv").write_bytes(_whole("table"))
        try:
            answer = main([*words, "--most-instructions", "2000000"] if words[0] == "run" else words)
        except SystemExit as end:
            answer = end.code
    must(answer in (0, 1, 2, None), f"exit status {answer} of {words}")
    return f"exit {answer or 0}"


@cache
def _store():
    """Return the bytes of a store with the answers of six calls."""
    os.environ["STUDY_LOG"] = os.devnull
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.sqlite"
        with Store(path) as store:
            engine(store).answer(points())
        return path.read_bytes()


def damaged_store(pick):
    """Open a store that is damaged, and ask it: each answer is the right one, or the file is refused."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.sqlite"
        content = bytearray(_store())
        # Single bits, which leave a file that still looks like a store, more often than all else.
        for _ in range(pick.choice((1, 8, 50))):
            content[pick.randrange(len(content))] ^= 1 << pick.randrange(8)
        path.write_bytes(content if pick.random() < 0.7 else damaged(pick, _store()))
        try:
            with Store(path) as store:
                found = [answer.cycles for _, answer in engine(store).answer(points())]
        except DataError as error:
            must(str(path) in str(error) and "\n" not in str(error), error)
            return "refused"
    must(found == [1, 2, 3, 4, 5, 6], found)
    return "answered"


def killed_study(pick):
    """Kill a study at three moments: no answer is lost, and at the end each is there."""
    with tempfile.TemporaryDirectory() as folder:
        check_killed(Path(folder), 60, "counted", [pick.uniform(0, 1.2) for _ in range(3)])
    return "ran"


def interrupted(pick):
    """Interrupt a command at any moment: one line, 130, and no second of computing after it."""
    words = pick.choice((["run", "s3b1_3x3", "--batch", "64"], ["study", "precision", "--jobs", "1"]))
    code = (
        f"import sys\nfrom ascendsim.cli import main\nprint('loaded', flush=True)\nsys.argv[1:] = {words!r}"
    )
    line = [sys.executable, "-c", f"{code}\nsys.exit(main())"]
    # A shell that starts us in the background has us, and the commands that we start, ignore interrupts.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        time.sleep(pick.uniform(0.02, 3))
        before = _processor_seconds(process.pid)
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
        _, ended, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(ended)
    must(process.returncode in (0, 130), f"{process.returncode}: {said[-500:]}")
    must("Traceback" not in said, said[-2000:])
    late = used.ru_utime + used.ru_stime - before
    must(process.returncode == 0 or late < 1, f"{late:.1f} s of a processor after the interrupt")
    return "ran"


def _processor_seconds(pid):
    """Return what a process has computed so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
