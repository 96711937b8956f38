"""Does a probe go to a device and back as files, and do the two commands say what there is to say?"""

import json
import subprocess
import sys
import zipfile

import numpy as np
import pytest

from ascendsim.errors import ConfigError
from ascendsim.studies.identify.folder import read_outputs, write_outputs, write_probe
from ascendsim.studies.identify.judge import candidate_names, identify_outputs
from ascendsim.studies.identify.vectors import Case, cases_of, simulated


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("probe")
    cases = write_probe(made, ("float16", "bfloat16"))
    write_outputs(made, {case: simulated(case, "910B", "block:16:RNE") for case in cases})
    return made


def test_answers_come_back_from_the_folder_to_the_bit(folder):
    outputs = read_outputs(folder)
    assert list(outputs) == list(cases_of(("float16", "bfloat16")))
    for case, got in outputs.items():
        want = simulated(case, "910B", "block:16:RNE")
        assert np.array_equal(got.view(np.uint32), want.view(np.uint32)), case


def test_a_folder_is_identified_format_by_format(folder):
    for found in identify_outputs(read_outputs(folder)):
        assert "block:16:RNE" in [one.model for one in found.left]
        assert found.routes == ("matmul", "grad_input", "grad_weight")


def test_inputs_are_the_bits_of_the_operands(folder):
    with np.load(folder / "inputs.npz") as file:
        first = file["matmul-bfloat16.first"]
    want = Case("matmul", "bfloat16").vectors().a.view(np.uint32) >> 16
    assert np.array_equal(first.view(np.uint16), want)


def test_a_folder_with_answers_takes_no_other_probe(folder, tmp_path):
    # Those of a simulated model would be taken for the device's, and the device's own would be lost.
    answered = (folder / "outputs.npz").read_bytes()
    with pytest.raises(ConfigError, match=r"outputs.npz holds answers to an earlier probe; name another"):
        write_probe(folder, ("float16",))
    assert (folder / "outputs.npz").read_bytes() == answered
    write_probe(tmp_path, ("float16",))
    write_probe(tmp_path, ("bfloat16",))


def test_answers_of_some_calls_are_enough(folder, tmp_path):
    some = {case: got for case, got in read_outputs(folder).items() if case.name == "matmul-float16"}
    write_probe(tmp_path, ("float16", "bfloat16"))
    write_outputs(tmp_path, some)
    (found,) = identify_outputs(read_outputs(tmp_path))
    assert (found.format, found.routes) == ("float16", ("matmul",))


def respelt(folder, **changes):
    """Write other things into the file of a probe; None: leave one out."""
    document = json.loads((folder / "probe.json").read_text()) | changes
    kept = {key: value for key, value in document.items() if value is not None}
    (folder / "probe.json").write_text(json.dumps(kept))


def cut(path):
    """Leave what a script wrote that was ended on its way."""
    path.write_bytes(path.read_bytes()[:200])


def one_array(path):
    """Write what numpy.save makes, under the name of an archive."""
    with path.open("wb") as file:
        np.save(file, np.ones(2, np.int16))


def no_array(path):
    """Write an archive whose member is not numpy's."""
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("matmul-float16", b"abc")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda at: (at / "probe.json").unlink(), "probe.json is missing; `ascendsim probe --out"),
        (lambda at: (at / "probe.json").write_text("{}"), "is no probe of this version"),
        (lambda at: (at / "probe.json").write_text("{"), "is no probe of this version"),
        (lambda at: (at / "probe.json").write_text('["ascendsim probe 2"]'), "is no probe of this version"),
        (lambda at: (at / "probe.json").write_bytes(b"\xff"), "is no probe of this version"),
        (lambda at: respelt(at, cases=None), "is no probe of this version"),
        (lambda at: respelt(at, cases=["matmul-float16"]), "is no probe of this version"),
        (lambda at: respelt(at, cases=[{"route": "matmul"}]), "is no probe of this version"),
        (lambda at: respelt(at, cases=[{"name": ["matmul-float16"]}]), "holds no call of .*probe.json"),
        (lambda at: (at / "outputs.npz").unlink(), "outputs.npz is missing; run `python run_on_device.py`"),
        (lambda at: (at / "outputs.npz").write_bytes(b"zip"), "cannot be read as an .npz"),
        (lambda at: (at / "outputs.npz").write_bytes(b""), "cannot be read as an .npz"),
        (lambda at: cut(at / "outputs.npz"), "cannot be read as an .npz"),
        (lambda at: one_array(at / "outputs.npz"), "cannot be read as an .npz"),
        (lambda at: no_array(at / "outputs.npz"), r"matmul-float16 of outputs.npz is bytes\d+ \(\);"),
        (
            lambda at: np.savez(at / "outputs.npz", x=np.ones(2)),
            r"holds no call of .*probe.json; it has \['x'\]",
        ),
        (
            lambda at: np.savez(at / "outputs.npz", **{"matmul-float16": np.ones((2, 2), np.int16)}),
            r"matmul-float16 of outputs.npz is int16 \(2, 2\); it must be int16 \(\d+, 8\)",
        ),
    ],
)
def test_a_folder_that_is_not_whole_says_so(tmp_path, spoil, words):
    write_probe(tmp_path, ("float16",))
    write_outputs(tmp_path, {Case("matmul", "float16"): simulated(Case("matmul", "float16"), "910B")})
    spoil(tmp_path)
    with pytest.raises(ConfigError, match=words):
        read_outputs(tmp_path)


def test_formats_without_a_probe_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="there is none for 'float64'; it takes float16, bfloat16"):
        write_probe(tmp_path, ("float64",))
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        write_probe(tmp_path / "file", ("float16",))


def test_the_script_runs_and_its_answers_can_be_read(tmp_path):
    pytest.importorskip("torch")
    write_probe(tmp_path, ("float32",))
    command = [sys.executable, "run_on_device.py", "cpu"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    outputs = read_outputs(tmp_path)
    assert len(outputs) == 3
    # A processor adds in some order of its own: near, but perhaps none of ours.
    for case, got in outputs.items():
        exact = case.vectors().a.astype(np.float64) @ case.vectors().b.astype(np.float64)
        rows = [at for at, asked in enumerate(case.vectors().questions) if asked == "products"]
        np.testing.assert_allclose(got[rows], exact[rows], rtol=1e-3, atol=0.5)


# The commands


def test_the_commands_write_simulate_and_identify(answer, tmp_path):
    told = answer("probe", "--out", str(tmp_path), "--dtype", "float16", "--simulate", "block:16:RZ")
    assert "3 calls in" in told
    assert "run `python run_on_device.py` there" in told
    assert "910B answers under block:16:RZ, simulated" in told
    printed = answer("identify", str(tmp_path))
    assert printed.startswith("float16 (matmul, grad_input, grad_weight): ")
    assert "\n  block:16:RZ\n" in printed
    assert "only with matmul: Mmads of 16" in printed
    (record,) = json.loads(answer("identify", str(tmp_path), "--json"))
    assert record["left"][0]["model"] in printed
    assert record["candidates"] == len(candidate_names("float16"))


def test_mistakes_are_told(refusal, tmp_path):
    assert "identify: " in refusal("identify", str(tmp_path))
    assert "there is none for 'int8'" in refusal("probe", "--out", str(tmp_path), "--dtype", "int8")
    assert "accumulation model" in refusal("probe", "--out", str(tmp_path), "--simulate", "blok:16:RNE")


def test_none_of_ours_prints_the_nearest(answer, tmp_path):
    write_probe(tmp_path, ("float32",))
    case = Case("matmul", "float32")
    write_outputs(tmp_path, {case: simulated(case, "910B", "block:4:RNE") * np.float32(1 + 2**-20)})
    printed = answer("identify", str(tmp_path))
    assert "0 of" in printed
    assert "none of our models; the nearest, by the share of sums:" in printed
