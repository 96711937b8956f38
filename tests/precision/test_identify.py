"""Is every accumulation model found from its answers alone, also from files of a device?"""

import json
import subprocess
import sys
import zipfile
from itertools import product

import numpy as np
import pytest

from ascendsim.errors import ConfigError
from ascendsim.numerics.accumulation import AccumulationModel
from ascendsim.numerics.casts import round_to
from ascendsim.numerics.dtypes import dtype
from ascendsim.ops.plan import Plan, Tiling
from ascendsim.studies.identify.folder import read_outputs, write_outputs, write_probe
from ascendsim.studies.identify.judge import (
    Predictions,
    ReductionCut,
    answers,
    candidate_names,
    cuts,
    identify_format,
    identify_outputs,
    predictions,
    slices,
    telling_cuts,
)
from ascendsim.studies.identify.vectors import (
    DEPTH,
    FORMATS,
    ProbeCase,
    cases_of,
    operands,
    simulated,
    vectors_of,
)

# --- Is every accumulation model found from its answers alone, however the kernels cut the reduction? --

# Every kind, and every rounding, block, option and pairing at least once.
MODELS = [
    "exact:RNE",
    "exact:RZ",
    "exact-mmad:RNA",
    "seq:RNE",
    "seq:RNA",
    "seq:RZ",
    "seq-muladd:RNE",
    "seq-muladd:RZ",
    "block:2:RNE",
    "block:4:RNE",
    "block:8:RNE",
    "block:16:RNE",
    "block:32:RNE",
    "block:4:RZ",
    "block:16:RNA",
    "block-add:4:RNE:RNE",
    "block-add:16:RZ:RNE",
    "tree:4:adjacent:RNE",
    "tree:4:halves:RNE",
    "tree:16:adjacent:RZ",
    "align:4:F26:RNE",
    "align:4:F24:RZ:acc",
    "align:8:F25:RZ",
    "align:16:F23:RZ:acc",
    "align:16:F24:RNE:acc",
    "block:4:RNE+split3",
    "block:4:RNE+ftz-in",
    "block:4:RNE+ftz-acc",
    "block:4:RNE+saturate",
    "seq:RNE+split3",
]
# Where every product is exact in float32 and far from its ends, these change nothing that float16 could show.
SAME_IN_FLOAT16 = {"+split3", "+ftz-acc", "+saturate"}


def answered(fmt, model, product="910B", routes=("matmul", "grad_input", "grad_weight"), **options):
    cases = [ProbeCase(route, fmt) for route in routes]
    return {case: simulated(case, product, model, **options) for case in cases}


def left(found):
    return [agreeing.model for agreeing in found.left]


def cut_of(found, model):
    """Return the Mmads and parts of a grad_weight under which a model agrees."""
    (own,) = (one for one in found.left if one.model == model)
    return own.mmad["grad_weight"], own.parts["grad_weight"]


def without_assumption(found):
    """Return the models that agree if every kernel takes all products in one Mmad."""
    return [
        one.model
        for one in found.left
        if set(one.mmad.values()) == {DEPTH} and set(one.parts.values()) == {1}
    ]


@pytest.mark.parametrize("fmt", ["float16", "bfloat16", "float32"])
def test_sums_end_by_subtracting_what_is_large_so_that_rounding_is_what_is_left(fmt):
    # Beside 2^26 stand at most two terms of 2^-20 of it, or 31 times 2, which is less.
    v = ProbeCase("matmul", fmt).vectors()
    for question, row in zip(v.questions, v.a.astype(np.float64), strict=True):
        left = abs(row.sum()) / abs(row).max()
        if question in ("block", "pairing", "cut", "tie"):
            assert 0 < left <= 2 * 2.0**-20 or (question == "tie" and not left)
        elif question == "cancelling":
            assert left == 0


def test_each_depth_of_a_cut_is_asked_by_two_equal_terms():
    v = ProbeCase("matmul", "float32").vectors()
    rows = [row[row != 0] for question, row in zip(v.questions, v.a, strict=True) if question == "cut"]
    asked = [tuple(sorted(abs(row) / abs(row).max())) for row in rows]
    # Of either sign in two places, and in a third.
    assert sorted(asked) == sorted([(2.0**-below, 2.0**-below, 1, 1) for below in range(20, 29)] * 5)


def test_there_are_thirty_models():
    assert len(set(MODELS)) == 30
    assert set(MODELS) <= set(candidate_names("float32"))


@pytest.mark.parametrize("model", MODELS)
def test_a_model_is_found_from_float32_answers(model):
    # Under our own plans, which take these reductions in one Mmad.
    found = identify_format("float32", answered("float32", model, tiling="search"))
    assert model in left(found)
    # Alone, unless one Mmad takes the whole reduction: then two names mean one thing.
    twins = {"exact:RNE", "exact-mmad:RNE"}, {"exact:RZ", "exact-mmad:RZ"}, {"exact:RNA", "exact-mmad:RNA"}
    same = next((twin for twin in twins if model in twin), {model})
    assert set(without_assumption(found)) == same
    assert set(left(found)[: len(same)]) == same


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_a_model_is_among_those_left_under_the_plans_of_the_products_library(model):
    # Its grids take shorter Mmads, so that a model is found among those that assume something of the cut.
    assert model in left(identify_format("float32", answered("float32", model)))


@pytest.mark.parametrize("model", [*MODELS[3:25:3], "fp16-acc(seq:RNE)", "fp16-acc(block:16:RNE)"])
def test_a_model_or_its_class_is_found_from_float16_answers(model):
    # A result of 16 bits hides the accumulator; sums that cancel do not.
    found = identify_format("float16", answered("float16", model))
    assert model in left(found)
    for other in without_assumption(found):
        plain = other.partition("+")[0]
        exact = plain.replace("exact-mmad", "exact") == model.replace("exact-mmad", "exact")
        # Products of float16 are exact in float32, so that rounding them changes nothing.
        unrounded = plain.replace("seq-muladd", "seq") == model.replace("seq-muladd", "seq")
        assert exact or unrounded, other
        assert other.removeprefix(plain) in SAME_IN_FLOAT16 | {""}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fmt", "product"), [("float16", "910B"), ("bfloat16", "910_95"), ("float32", "910B")]
)
def test_every_candidate_is_found_in_every_format(fmt, product):
    lost = [
        model
        for model in candidate_names(fmt)
        if model not in left(identify_format(fmt, answered(fmt, model, product)))
    ]
    assert lost == []


@pytest.mark.parametrize("fmt", ["float16", "float32"])
@pytest.mark.parametrize("base_k", [16, 32, 48])
def test_however_the_kernels_cut_the_reduction(fmt, base_k):
    made = {
        **answered(fmt, "block:16:RNE", routes=["matmul"], tiling=Tiling(64, 16, base_k)),
        **answered(fmt, "block:16:RNE", routes=["grad_input"], tiling=Tiling(64, 16, base_k)),
        **answered(fmt, "block:16:RNE", routes=["grad_weight"], tiling=Tiling(64, 16, base_k)),
    }
    assert "block:16:RNE" in left(identify_format(fmt, made))


@pytest.mark.parametrize("base_k", [16, 48])
@pytest.mark.parametrize("model", ["seq:RNE+saturate", "block:8:RNE+saturate"])
def test_where_an_mmad_ends_shows_in_what_saturates(model, base_k):
    # Infinity becomes the largest value when an Mmad ends, so what is taken away after that comes off it, and
    # before that not: at any length of Mmad these sums are others, wherever the blocks begin.
    made = answered("float32", model, routes=["grad_weight"], tiling=Tiling(64, 16, base_k))
    found = identify_format("float32", made)
    assert model in left(found)
    assert model.partition("+")[0] not in left(found)


def test_and_where_parts_of_it_are_added_in_float32():
    # Two cores of four share the pixels, and add what they have atomically.
    tiling = Tiling(64, 16, 32, k_split=2, used_cores=4)
    options = {"tiling": tiling, "deterministic": True}
    found = identify_format("float32", answered("float32", "block:4:RNE", routes=["grad_weight"], **options))
    assert "block:4:RNE" in left(found)


@pytest.mark.parametrize("fmt", ["float16", "float32"])
def test_and_where_three_cores_share_fractals_that_come_out_uneven(fmt):
    # Eight fractals: three, three and two, as the library of 910B deals those of a small batch.
    tiling = Tiling(64, 16, 16, used_cores=3, k_dim=3)
    options = {"tiling": {"grad_weight": Plan("wgrad_fractals", tiling)}, "deterministic": True}
    found = identify_format(fmt, answered(fmt, "exact-mmad:RNE", routes=["grad_weight"], **options))
    assert cut_of(found, "exact-mmad:RNE") == (16, 3)


MMADS = [
    *(("float16", name) for name in ("910B", "910B4", "910_93", "910_95", "310P", "910")),
    *(("float32", name) for name in ("910B", "910B4", "910_93", "910_95")),
]


@pytest.mark.parametrize(("fmt", "product"), MMADS)
def test_the_pixels_of_a_grad_weight_are_one_mmad(fmt, product):
    # Each Mmad rounds once, so that sums tell where one ends: those of no shorter Mmads are the same.
    found = identify_format(fmt, answered(fmt, "exact-mmad:RNE", product, routes=["grad_weight"]))
    assert cut_of(found, "exact-mmad:RNE") == (DEPTH, 1)


@pytest.mark.parametrize("product", ["910_95", "310P"])
def test_on_other_products(product):
    found = identify_format("float16", answered("float16", "block:16:RZ", product))
    assert without_assumption(found) == ["block:16:RZ"]


@pytest.mark.slow  # two more sets of predictions, one for each way of reading
def test_how_each_kernel_reads_float32_where_hf32_is_allowed():
    # A matrix product sets the bit for ties away from zero, convolution backward leaves it.
    routes = ("matmul", "grad_weight")
    found = identify_format("hf32", answered("hf32", "block:8:RNE", "910B", routes))
    assert dict(found.readings) == {"matmul": "in 11 bits, RNA", "grad_weight": "in 11 bits, RNE"}
    # 12 bits times 12 bits have 24: no product has a low half on both sides that would be left out.
    assert "block:8:RNE" in without_assumption(found)


def test_a_device_that_does_not_read_hf32_is_seen_to_read_float32():
    (case,) = (ProbeCase("matmul", "hf32"),)
    plain = simulated(ProbeCase("matmul", "float32"), "910B", "block:4:RNE")
    found = identify_format("hf32", {case: plain})
    assert dict(found.readings) == {"matmul": "as it is"}
    assert "block:4:RNE" in left(found)


def test_a_sum_in_another_order_is_none_of_ours():
    case = ProbeCase("matmul", "float32")
    v = case.vectors()
    backwards = answers(AccumulationModel.parse("seq:RNE"), v.a[:, ::-1], v.b[::-1], ReductionCut(DEPTH, 1))
    found = identify_format("float32", {case: backwards})
    assert left(found) == []
    assert 0.3 < found.nearest[0].share < 1
    assert list(found.nearest) == sorted(found.nearest, key=lambda near: -near.share)


def test_one_wrong_sum_leaves_no_model():
    case = ProbeCase("matmul", "float32")
    got = simulated(case, "910B", "block:4:RNE")
    got[0, 0] = np.nextafter(got[0, 0], np.float32(np.inf))
    found = identify_format("float32", {case: got})
    assert left(found) == []
    assert found.nearest[0].model == "block:4:RNE"
    assert found.nearest[0].share == 1 - 1 / got.size


def test_the_evidence_names_what_each_question_leaves():
    found = identify_format("float32", answered("float32", "block:4:RNE", routes=["matmul"]))
    asked = {one.question: one for one in found.evidence}
    v = vectors_of(ProbeCase("matmul", "float32").stored)
    assert sum(one.sums for one in found.evidence) == v.a.shape[0] * v.b.shape[1]
    # What all questions leave, each of them leaves.
    assert all(len(found.left) <= one.left <= found.candidates for one in found.evidence)
    assert asked["block"].left < 20 < asked["tie"].left
    assert asked["subnormal"].left < found.candidates


def test_models_that_are_left_are_parted_by_float32_accumulators():
    # Under Mmads of 16 a block of 32 is one of 16; in one Mmad they differ.
    found = identify_format("float16", answered("float16", "block:16:RNE", routes=["matmul"]))
    assert sorted(model for members in found.classes for model in members) == sorted(left(found))
    (own,) = [members for members in found.classes if "block:16:RNE" in members]
    assert "block:16:RNE+split3" in own
    assert "block:32:RNE" not in own
    assert "block:32:RNE" in left(found)


def test_a_nan_agrees_with_a_nan_alone_and_a_zero_with_either_zero():
    answers = np.array([[[np.nan, 0.0, 1.0, np.inf, 2.0]]], np.float32)
    beyond = np.array([[False, False, False, False, True]])
    got = np.array([[np.nan, -0.0, np.nan, -np.inf, 3.0]], np.float32)
    agreed = Predictions(("exact:RNE",), (), answers, beyond).agree_with(got)
    # The last is beyond the format: not compared.
    assert agreed.tolist() == [[[True, True, False, False, True]]]


@pytest.mark.parametrize("depth", [128, 100, 40])
@pytest.mark.parametrize("unit", [8, 16])
def test_a_cut_deals_whole_fractals_and_cuts_each_part_in_mmads(depth, unit):
    asked, fractals = [], -(-depth // 16)
    for parts in (1, 2, 3, 4, 8):
        longest = depth if parts == 1 else 16 * -(-fractals // parts)
        asked += [(base, parts, longest) for base in range(longest, 0, -unit)]
    assert cuts(depth, unit) == tuple((base, parts) for base, parts, _ in asked)
    for base, parts, longest in asked:
        ends = [(at, min(at + longest, depth)) for at in range(0, depth, longest)]
        mmads = [[slice(at, min(at + base, end)) for at in range(first, end, base)] for first, end in ends]
        assert list(slices(ReductionCut(base, parts), depth)) == mmads
        assert len(mmads) <= parts


def test_the_models_that_are_asked_about():
    three, blocks = ("RNE", "RNA", "RZ"), (2, 4, 8, 16, 32, 64)
    plain = {f"{kind}:{r}" for kind in ("exact", "exact-mmad", "seq", "seq-muladd") for r in three}
    plain |= {f"block:{k}:{r}" for k in blocks for r in three}
    plain |= {f"block-add:{k}:{r}:{s}" for k in blocks for r in ("RNE", "RZ") for s in ("RNE", "RZ")}
    plain |= {f"tree:{k}:{p}:{r}" for k in blocks for p in ("adjacent", "halves") for r in ("RNE", "RZ")}
    for f, k, r in product((23, 24, 25, 26), (4, 8, 16, 32), ("RNE", "RZ")):
        plain |= {f"align:{k}:F{f}:{r}", f"align:{k}:F{f}:{r}:acc"}
    options = ("+split3", "+ftz-in", "+ftz-acc", "+saturate")
    usual = ("block:4:RNE", "block:8:RNE", "block:16:RNE", "block:32:RNE", "seq:RNE", "seq-muladd:RNE")
    plain |= {model + option for model in usual for option in options}
    halves = {f"fp16-acc({kind}:RNE)" for kind in ("seq", "seq-muladd", *(f"block:{k}" for k in blocks))}
    for name in ("bfloat16", "float32"):
        assert set(candidate_names(name)) == plain
    assert set(candidate_names("float16")) == plain | halves
    assert all(len(set(names)) == len(names) for names in map(candidate_names, ("float16", "float32")))


def test_what_a_format_cannot_hold_is_not_compared():
    # The largest value of float16 is 65504; of float32 nothing is converted, so that all is compared.
    made = predictions("float16", None)
    assert made.beyond[~np.isfinite(made.answers)].all()
    assert not made.beyond[np.abs(made.answers) < 65504].any()
    assert 0 < made.beyond.mean() < 0.5
    assert not predictions("float32", None).beyond.any()


# --- Does a probe go to a device and back as files, and do the two commands say what there is to say? --


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
    want = ProbeCase("matmul", "bfloat16").vectors().a.view(np.uint32) >> 16
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
    write_outputs(
        tmp_path, {ProbeCase("matmul", "float16"): simulated(ProbeCase("matmul", "float16"), "910B")}
    )
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
    case = ProbeCase("matmul", "float32")
    write_outputs(tmp_path, {case: simulated(case, "910B", "block:4:RNE") * np.float32(1 + 2**-20)})
    printed = answer("identify", str(tmp_path))
    assert "0 of" in printed
    assert "none of our models; the nearest, by the share of sums:" in printed


# --- Are the sums of a probe of their formats, and the same in every call, however it is cut? ----------


@pytest.mark.parametrize("fmt", FORMATS)
def test_every_operand_is_of_the_format(fmt):
    case = ProbeCase("matmul", fmt)
    v = case.vectors()
    for values in (v.a, v.b):
        assert np.array_equal(round_to(values, case.stored), values)
    assert v.a.shape == (len(v.questions), DEPTH)
    assert not v.a[:, 96:].any()


@pytest.mark.parametrize("fmt", ["float16", "float32"])
def test_the_three_calls_compute_the_same_sums(fmt):
    v = ProbeCase("matmul", fmt).vectors()
    a, b = v.a.astype(np.float64), v.b.astype(np.float64)
    first, second = operands("grad_input", a, b)
    assert np.array_equal(np.einsum("bkmo,knij->bnmo", first, second)[0, :, :, 0].T, a @ b)
    first, second = operands("grad_weight", a, b)
    made = np.einsum("bmop,bnop->mn", first, second)
    assert np.array_equal(made[: len(a)], a @ b)
    assert not made[len(a) :].any()


@pytest.mark.parametrize(
    "text",
    ["seq:RZ", "block:4:RNE", "block:64:RNE", "exact-mmad:RNE", "tree:16:halves:RZ", "seq:RNE+saturate"],
)
def test_cuts_that_are_left_out_answer_like_one_that_is_not(text):
    model, v = AccumulationModel.parse(text), ProbeCase("matmul", "float32").vectors()
    a, b = v.a[::7], v.b
    kept = {answers(model, a, b, cut).tobytes() for cut in telling_cuts(model, DEPTH, 8)}
    assert {answers(model, a, b, cut).tobytes() for cut in cuts(DEPTH, 8)} == kept


def test_a_cut_covers_the_reduction_once():
    for cut in cuts(DEPTH, 8):
        covered = [at for part in slices(cut, DEPTH) for mmad in part for at in range(mmad.start, mmad.stop)]
        assert covered == list(range(DEPTH))


def test_a_case_is_a_plain_value():
    case = ProbeCase("matmul", "hf32")
    assert case == ProbeCase("matmul", "hf32") != ProbeCase("matmul", "float32")
    assert case.stored.name == "float32"


# --- Are the sums of a probe those that its questions say, place by place? --------------------------


PROBED = ("float16", "bfloat16", "float32")
LARGE = 2.0**26  # its last bit in float32 is 8
SIGNS = (1, -1)


def asked(fmt):
    """Return what each question asks: the products of the first column, place -> value."""
    v, found = vectors_of(dtype(fmt)), {}
    for question, row in zip(v.questions, v.a.astype(np.float64), strict=True):
        found.setdefault(question, []).append({int(at): float(row[at] * 4096) for at in np.flatnonzero(row)})
    return found


def negative(sums):
    return {place: -value for place, value in sums.items()}


def blocks():
    # Half a last bit beside a large product that is cancelled far away or at once, before it, and two of them
    # in places that meet first in a block that holds both.
    for far in (1, 2, 3, 4, 5, 7, 8, 12, 15, 16, 24, 31, 32, 48, 63):
        yield {0: LARGE, far: 4, 80: -LARGE}
        yield {0: LARGE, far: 4, far + 1: -LARGE}
        yield {0: 4, far: LARGE, 80: -LARGE}
        yield {0: LARGE, 32: 4, 32 + far % 32: 4, 80: -LARGE}
    # Quarters of a last bit.
    for count in (2, 3, 4, 5, 8, 9, 16, 17, 31):
        yield {0: LARGE, **{32 + at: 2 for at in range(count)}, 80: -LARGE}


def pairings():
    # (the large one, what cancels it, a small one) among the first places.
    for large, other, small in ((0, 1, 2), (0, 2, 1), (0, 3, 1), (0, 4, 2), (0, 8, 1), (0, 8, 4), (1, 3, 2)):
        yield {large: LARGE, other: -LARGE, small: 4, 64: 1}


def probe_cuts():
    # Two equal terms 2^-20 to 2^-28 of the largest, in its block, and beside an accumulator that has it.
    for small in (64, 32, 16, 8, 4, 2, 1, 0.5, 0.25):
        for place in (1, 64):
            term = {0: LARGE, place: small, place + 1: small, place + 2: -LARGE}
            yield from (term, negative(term))
        yield {0: LARGE, 32: small, 33: small, 80: -LARGE}


def ties():
    # Of a last bit of 8 the halves are 4, of an even value and of an odd one; beside them less and more.
    for sign in SIGNS:
        for odd in (0, 8):
            for part in (1, 3, 4, 4.25, 5, 7):
                for near in SIGNS:
                    begin = {0: LARGE, 1: odd} if odd else {0: LARGE}
                    plain = {**begin, 32: near * part, 80: -LARGE}
                    beside = {**begin, 32: near * part, 33: 0.25, 80: -LARGE}
                    for one in (plain, beside):
                        yield one if sign > 0 else negative(one)


@pytest.mark.parametrize("fmt", PROBED)
def test_what_is_asked_of_float32_accumulators_is_asked_in_every_format(fmt):
    found = asked(fmt)
    assert found["block"] == list(blocks())
    assert found["pairing"] == list(pairings())
    assert found["cut"] == list(probe_cuts())
    assert found["tie"] == list(ties())


@pytest.mark.parametrize(("fmt", "fraction"), [("float16", 10), ("bfloat16", 7), ("float32", 23)])
def test_the_last_rounding_is_asked_beside_a_tie_of_the_format(fmt, fraction):
    # 2^15 in the second column, of ones: 2^27 in the first. Half a last bit of float32 is 2^27 x 2^-24 = 8.
    large, tie, want = 2.0**27, 2.0 ** (27 - fraction - 1), []
    for sign in SIGNS:
        for odd in (0, 2 * tie):
            for part in (8, -4, 8.5, 4):
                begin = {0: large} if fmt == "float32" else {0: large + odd, 1: tie}
                one = {**begin, 2: part}
                want.append(one if sign > 0 else negative(one))
    assert asked(fmt)["last rounding"] == want


@pytest.mark.parametrize(("fmt", "fraction"), [("float16", 10), ("bfloat16", 7), ("float32", 23)])
def test_each_bit_of_an_operand_from_the_eighth_on_is_asked_for(fmt, fraction):
    want = []
    for low in range(8, fraction + 1):
        bit, last = 2.0**-low, 2.0**-fraction
        for value in (1 + bit, 1 + 3 * bit, 1 + bit + last):
            want += [{0: value, 64: -1}, {0: -value, 64: 1}]
    assert asked(fmt).get("operand", []) == want


@pytest.mark.parametrize(("fmt", "least"), [("float16", -14), ("bfloat16", -126), ("float32", -126)])
def test_the_ends_of_the_range_are_asked_for(fmt, least):
    # Operands of four, of one and of three quarters of half the smallest normal.
    half = 2.0 ** (least - 1) * 4096
    small = [{0: 4 * half}, {0: half}, {0: 4, 1: -0.75 * half}]
    large = [{0: 2.0**16, 64: -(2.0**16), 65: 3}]
    if fmt != "float16":
        # Times 2^-60, 2^12 less than in the first column: sums from 2^-126 down to 2^-130 of normal operands.
        for sum_ in (2.0**-66, 2.0**-67, 2.0**-68, 2.0**-70):
            small += [{0: sum_ * 4096}, {0: 2.0**-65 * 4096, 64: (sum_ - 2.0**-65) * 4096}]
        most = 2.0**127
        large = [{0: 0.75 * most, 64: most}, {0: most, 1: most, 64: -most}, *large]
    assert asked(fmt)["subnormal"] == small
    assert asked(fmt)["overflow"] == large


@pytest.mark.parametrize(("fmt", "fraction"), [("float16", 10), ("bfloat16", 7), ("float32", 23)])
def test_what_is_drawn_is_drawn_alike_everywhere(fmt, fraction):
    found, draw = asked(fmt), np.random.default_rng(0)
    assert len(found["cancelling"]) == 48
    for number, one in enumerate(found["cancelling"]):
        # Eight bits times 2^2 to 2^23, and the same again to be taken away: in order, or mixed.
        half = int(draw.integers(4, 32))
        sizes = draw.integers(128, 256, half) / 128 * 2.0 ** draw.integers(2, 24, half)
        terms = np.r_[sizes, -sizes] * draw.choice([-1, 1])
        places = draw.permutation(2 * half) if number % 2 else range(2 * half)
        assert one == dict(sorted(zip(map(int, places), map(float, terms), strict=True)))
    draw, bits = np.random.default_rng(2), 2.0**fraction
    for one in found["products"]:
        full = np.floor(draw.uniform(1, 2, 8) * bits) / bits
        assert one == dict(enumerate((64 * full * draw.choice([-1, 1], 8)).tolist()))
    assert len(found["products"]) == 16


@pytest.mark.parametrize(("fmt", "fraction"), [("float16", 10), ("bfloat16", 7), ("float32", 23)])
def test_the_columns_have_three_sizes_signs_and_full_significands(fmt, fraction):
    b, draw, bits = vectors_of(dtype(fmt)).b.astype(np.float64), np.random.default_rng(1), 2.0**fraction
    assert b.shape == (128, 8)
    sizes = 4096, 1, 2.0**-12 if fmt == "float16" else 2.0**-60
    assert (b[:, :3] == sizes).all()
    signs = np.where(draw.random(128) < 0.5, -4096, 4096)
    assert (b[:, 3] == signs).all()
    # All bits of the significand set, and the first and last of them.
    assert (b[:, 4] == 2048 * (2 - 1 / bits)).all()
    assert (b[:, 5] == 4096 * (1 + 1 / bits)).all()
    assert (b[:, 6:] == 4096 * np.floor(draw.uniform(1, 2, (128, 2)) * bits) / bits).all()


def test_the_questions_come_in_one_order():
    v = vectors_of(dtype("float32"))
    order = ("block", "pairing", "block", "cut", "tie", "cancelling", "last rounding", "products")
    order += ("subnormal", "overflow", "operand")
    changes = [name for at, name in enumerate(v.questions) if at == 0 or name != v.questions[at - 1]]
    assert tuple(changes) == order
    # Another seed draws other sums, of the same questions.
    other = vectors_of(dtype("float32"), seed=5)
    assert other.questions == v.questions
    differs = (other.a != v.a).any(axis=1)
    assert {v.questions[at] for at in np.flatnonzero(differs)} == {"cancelling", "products"}
