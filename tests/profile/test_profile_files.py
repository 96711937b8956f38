"""Do bad product files say why, and do a user's own file and overrides work?"""

import os
import random
import re
import shutil
from fnmatch import fnmatchcase
from fractions import Fraction
from math import inf, nan
from pathlib import Path

import pytest

from ascendsim import ConvProblem, estimate
from ascendsim.cli.checks import _require_known
from ascendsim.errors import AscendSimError, ConfigError
from ascendsim.numerics.dtypes import ELEMENTS, find
from ascendsim.profile import ShippedProduct, configs_directory, list_products, load_profile
from ascendsim.profile.check import Problem, hint, problems_of
from ascendsim.profile.schema import (
    CUBE_BYTES,
    TREE,
    Each,
    Kind,
    Maybe,
    children,
    integer,
    listed,
    node_at,
    number,
    truth,
    word,
)
from ascendsim.rules import resolve
from tests.helpers.calls import conv
from tests.helpers.toy_machines import PLAIN, refusal, toy_split, write

# --- Do bad product files say why, and do a user's own file and overrides work? ------------------------

L1_BT = {"pipe": "MTE1", "bytes_per_cycle": 64, "head_cycles": 4, "latency_cycles": 10}
# A cube that multiplies HF32, and nothing is said of its mantissa.
CUBE = {
    "m0": 16,
    "n0": 16,
    "rates": {name: {"k0": 8, "block_k": 8} for name in ("float16", "float32", "hf32")},
    "mmad_head_cycles": 2,
    "mmad_latency_cycles": 20,
    "same_l0c_spacing_cycles": 10,
}


# ---- Do bad files say why?


def test_all_problems_of_a_file_come_in_one_error(tmp_path):
    path = write(
        tmp_path,
        """
        base = "910B3"
        [cores]
        cube = { value = "20", source = "guess", confidence = "measured" }
        vector = { value = 40, confidence = "sure" }
        [links.memory]
        efficency = { value = 0.9, source = "guess", confidence = "measured" }
        efficiency = { value = 0.95, source = "guess", confidence = "assumed" }
        [paths.GM_L0C]
        [l2]
        capacity_bytes = 5
        line_bytes = { vaule = 512, source = "guess", confidence = "measured" }
        """,
    )
    message = refusal(path)
    assert f"{path}: 9 problems" in message
    for line in (
        "cores.cube.value: got '20', expected an integer from 1 to 4096",
        "cores.vector.source: missing; expected a text that says where the value comes from",
        "cores.vector.confidence: got 'sure', expected one of vendor file, vendor doc, measured",
        "links.memory.efficency: unknown key; did you mean efficiency?",
        "links.memory.efficiency: an assumed figure must carry a range",
        "paths.GM_L0C: unknown key; did you mean",
        "l2.line_bytes.value: missing; expected an integer from 1 to 1048576",
        "l2.line_bytes.vaule: unknown key; did you mean value?",
        "l2.capacity_bytes: got 5, expected a figure { value, source, confidence }, its value an integer",
    ):
        assert f"{path}: {line}" in message


def test_texts_keys_values_and_what_does_not_fit_are_told_together(tmp_path):
    text = """
        base = "910B3"
        variant = "a/b"
        evidence = 3
        sources = "mine"
        fou = 1
        [cores]
        cube = { value = 30, source = "guess", confidence = "measured" }
        vector = { value = 20, source = "guess", confidence = "measured" }
        [links.memory]
        efficiency = { value = "many", source = "guess", confidence = "measured" }
        """
    path = write(tmp_path, text)
    message = refusal(path)
    assert f"{path}: 6 problems" in message
    for line in (
        "evidence: got 3, expected a text",
        "variant: got 'a/b', expected a name",
        "sources: got 'mine', expected a table",
        "fou: unknown key",
        "links.memory.efficiency.value: got 'many'",
        "cores.vector: got 20 for 30 cube cores",
    ):
        assert f"{path}: {line}" in message
    # Nobody asks whether what is wrong by itself fits: 20 vector cores may be right beside what was meant.
    message = refusal(write(tmp_path, text.replace("value = 30", 'value = "ten"')))
    assert "cores.cube.value: got 'ten'" in message
    assert "got 20 for" not in message


def test_a_variant_that_cannot_be_read_is_told_with_why(tmp_path):
    path = write(tmp_path, 'base = "910B3"\ndefault_variant = "b"\n[variants]\nb = 3\n[variants.c]\n')
    message = refusal(path)
    assert f"{path}: variants.b: got 3, expected a table of figures" in message
    assert f"{path}: unknown variant 'b'" in message


def test_a_missing_figure_is_named_and_never_filled_in(tmp_path):
    text = (configs_directory() / "910B.toml").read_text()
    path = write(tmp_path, re.sub(r"(?m)^issue_cycles = .*$", "", text))
    assert "scalar.issue_cycles: missing; expected a figure" in refusal(path)


def test_a_problem_in_a_variant_names_the_variant(tmp_path):
    text = (configs_directory() / "910B.toml").read_text()
    text = text.replace(
        'cores.cube = { value = 24, source = "INI Ascend910B2.ini"', "cores.cube = { value = 0"
    )
    message = refusal(write(tmp_path, text))
    assert "variants.910B2.cores.cube.value: got 0, expected an integer from 1 to 4096" in message
    assert "variants.910B2.cores.cube.source: missing" in message


@pytest.mark.parametrize(
    ("figure", "why"),
    [
        ('value = 0.9, source = "x", confidence = "assumed", range = [0.95, 1.0]', "the value inside"),
        ('value = 0.9, source = "x", confidence = "assumed", range = [0.9]', "[low, high]"),
        ('value = 0.9, source = "", confidence = "measured"', "where the value comes from"),
        ('value = nan, source = "x", confidence = "measured"', "a number from 0.01 to 1"),
        ('value = true, source = "x", confidence = "measured"', "a number from 0.01 to 1"),
        ('value = 0.9, source = "x", confidence = "measured", sorce = "y"', "did you mean source?"),
    ],
)
def test_a_bad_figure_says_why(tmp_path, figure, why):
    message = refusal(write(tmp_path, f'base = "910B"\n[links.memory]\nefficiency = {{ {figure} }}'))
    assert "links.memory.efficiency" in message
    assert why in message


@pytest.mark.parametrize(
    ("path", "value"), [("load3d.L0A.cycles_per_stride", 0), ("cores.cube", 10**9), ("cores.vector", 4097)]
)
def test_a_figure_that_no_machine_has_is_refused(path, value):
    assert f"{path}.value: got {value}, expected an integer" in refusal("910B", {path: value})


def test_at_most_three_paths_are_told_and_a_file_speaks_of_itself_at_the_top_alone(tmp_path):
    paths = tuple(f"{table}.x" for table in "abcd")
    assert hint("x", paths) == "; did you mean a.x or b.x or c.x?"
    assert hint("A", (*paths, "a.y")) == "; did you mean a.x or a.y?"
    assert hint("qq", ("a", "b")) == "; known are a, b"
    assert hint("qq", ()) == ""
    number = '{ value = 1, source = "x", confidence = "measured" }'
    text = f'base = "910B"\nvarian = "x"\n[cores]\nvarian = {number}'
    said = refusal(write(tmp_path, text))
    assert "varian: unknown key; did you mean variant?" in said
    assert "cores.varian: unknown key; known are cube, vector" in said


def test_a_base_that_does_not_exist_is_told_with_the_file_that_names_it(tmp_path):
    path = write(tmp_path, 'base = "nope"')
    assert refusal(path).startswith(f"{path}: base: unknown product 'nope'")
    above = write(tmp_path, 'base = "mine.toml"', "above.toml")
    assert refusal(above).startswith(f"{above}: base: {path}: base: unknown product")


def test_a_text_figure_must_be_among_its_alternatives(tmp_path):
    figure = 'value = "seq:RNE", source = "x", confidence = "assumed", range = ["block:16:RNE"]'
    message = refusal(write(tmp_path, f'base = "910B"\n[accumulation]\nfloat16 = {{ {figure} }}'))
    assert "accumulation.float16: the range must list the alternatives" in message


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"cores__vector": 0}, "cores.vector: got 0"),
        ({"paths.L0C_L1.pipe": "V", "queues": {"cube": {"M": 4}}}, "no queue depth"),
        ({"accumulation": {"float16": "seq:RNE"}}, "accumulation.float32: missing"),
        ({"paths.L1_BT": L1_BT}, "paths.L1_BT: goes through BT, but there is no buffers.BT"),
        ({"cube": CUBE}, "cube.hf32_mantissa_bits: missing, though cube.rates.hf32 exists"),
        (
            {"paths.GM_L1.spread_cycles": 1000},
            "paths.GM_L1.spread_cycles: got 1000, expected at most the latency_cycles",
        ),
    ],
)
def test_figures_that_contradict_each_other_are_refused(changes, why):
    with pytest.raises(ConfigError, match=re.escape(why)):
        toy_split(**changes)


def test_results_must_have_a_way_out_of_the_cube():
    with pytest.raises(ConfigError, match="results cannot leave the cube"):
        toy_split(without=("L0C_GM",))


def test_broken_toml_says_the_line(tmp_path):
    message = refusal(write(tmp_path, "[cores]\ncube = {\n"))
    assert "is not valid TOML" in message
    assert "line 2" in message


def test_a_file_that_is_not_there_or_not_text(tmp_path):
    assert "cannot be read: No such file" in refusal(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    assert "not text in UTF-8" in refusal(tmp_path / "bytes.toml")


def test_a_file_may_not_be_its_own_base(tmp_path):
    write(tmp_path, 'base = "two.toml"', "one.toml")
    write(tmp_path, 'base = "one.toml"', "two.toml")
    assert "leads back to itself" in refusal(tmp_path / "one.toml")


def test_what_a_file_says_about_itself_is_checked_too(tmp_path):
    message = refusal(write(tmp_path, 'base = 910\nvariants = "B1"\nsources = 3'))
    for key in ("base: got 910", "variants: got 'B1'", "sources: got 3"):
        assert key in message
    message = refusal(write(tmp_path, "[variants]\nsmall = 3"))
    assert "variants.small: got 3, expected a table of figures" in message


@pytest.mark.parametrize("name", ["x/../y", "x\\\\y", "", "x\\u0000", "x\\n"])
def test_a_variant_is_a_name_that_files_can_have(tmp_path, name):
    # Those of a report folder do: with a slash they would lie elsewhere, or nowhere.
    file = tmp_path / "mine.toml"
    file.write_text(f'base = "910B3"\nvariant = "{name}"\n')
    with pytest.raises(ConfigError, match=r"variant: got '.*', expected a name without / and"):
        load_profile(file)
    file.write_text(f'base = "910B3"\n[variants."{name}".cores]\n')
    with pytest.raises(ConfigError, match=r"variants: got '.*', expected a name without / and"):
        load_profile(file)


def test_an_unknown_product_gets_a_hint():
    assert "did you mean 910B or 910B" in refusal("ascend910bx")
    assert "did you mean 310P3 or 310P" in refusal("Ascend310P33")
    # Several are equally near: one step away are 910 and the variants of its successor.
    assert "did you mean 910B1 or 910 or 910B4-1?" in refusal("911")
    products = "products are 310P, 910, 910B, 910_93, 910_95; `ascendsim profiles` lists their variants. "
    assert f"unknown product 'gpu'; {products}The path of a .toml file" in refusal("gpu")


def test_a_file_without_a_base_is_told_of_it(tmp_path):
    words = 'with a line such as base = "910B2" a file says only what differs'
    assert refusal(write(tmp_path, "")).endswith(words)
    # Below a base no whole table can be missing.
    assert words not in refusal(write(tmp_path, 'base = "910B2"\n[paths.L1_L0A]\npip = 3'))


def test_the_name_of_a_family_leads_to_its_variants():
    # The platform files have 950PR and 950DT variants alone; the nearest name of a product would be 910.
    told = refusal("950pr")
    assert "variants begin so, such as 950PR_" in told
    assert "did you mean" not in told


@pytest.mark.parametrize(
    ("name", "product"), [("A2", "910B"), ("a3", "910_93"), ("A5", "910_95"), ("950", "910_95")]
)
def test_a_product_has_the_names_under_which_it_is_sold(name, product):
    assert load_profile(name).variant == load_profile(product).variant


# ---- Do a user's own file and overrides work?


def test_a_file_of_one_s_own_changes_what_it_says_and_nothing_else(tmp_path):
    path = write(
        tmp_path,
        """
        base = "910B3"
        [links.memory]
        efficiency = { value = 0.93, source = "our stream test", confidence = "measured" }
        """,
        "lab.toml",
    )
    mine, base = load_profile(path), load_profile("910B3")
    assert (mine.product, mine.variant) == ("910B", "lab")
    assert mine.figures["links.memory.efficiency"].source == "our stream test"
    differing = {path for path in base.figures if mine.figures[path] != base.figures[path]}
    totals = {f"links.memory.{which}_bytes_per_cycle" for which in ("total", "vector_total")}
    assert differing == {"links.memory.efficiency", *totals}


def test_a_base_beside_the_file_is_found_from_anywhere(tmp_path, monkeypatch):
    write(tmp_path, 'base = "910"', "one.toml")
    path = write(tmp_path, 'base = "one.toml"\nvariant = "two"', "two.toml")
    monkeypatch.chdir("/")
    assert load_profile(path).variant == "two"


def test_a_product_is_made_once_as_long_as_nothing_changes():
    # Loaded here: those that many others have come after are made again.
    b2 = load_profile("910B2")
    assert load_profile("910B") is load_profile("910B2") is b2
    assert load_profile("910B1") is not b2
    assert load_profile("910B", {}) is b2
    assert load_profile("910B", {"cores.cube": 24}) is not b2


CUBES = '[cores]\ncube = { value = %d, source = "guess", confidence = "measured" }\n'


def test_an_edited_file_is_read_again_and_so_is_its_base(tmp_path):
    # Texts of one length, and the times of the first ones: only what stands there tells them apart.
    base = write(tmp_path, 'base = "910B3"\n' + CUBES % 11, "base.toml")
    mine = write(tmp_path, 'base = "base.toml"\n')
    times = {path: path.stat() for path in (base, mine)}
    first = load_profile(mine)
    assert first.cores.cube == 11
    for path, text, cubes in (
        (base, 'base = "910B3"\n' + CUBES % 12, 12),
        (mine, 'base = "base.toml"\n' + CUBES % 13, 13),
        (mine, 'base = "base.toml"\n' + CUBES % 14, 14),
        (mine, 'base = "base.toml"\n', 12),
        (base, 'base = "910B1"\n' + CUBES % 12, 12),
    ):
        path.write_text(text)
        os.utime(path, ns=(times[path].st_atime_ns, times[path].st_mtime_ns))
        assert load_profile(mine).cores.cube == cubes
    assert first.cores.cube == 11


def test_a_file_that_is_taken_away_is_missed(tmp_path):
    mine = write(tmp_path, 'base = "910B3"\n')
    load_profile(mine)
    mine.unlink()
    assert "cannot be read" in refusal(mine)


def look_in(folder, monkeypatch):
    """Take a folder for that of the shipped files."""
    for module in ("files",):
        monkeypatch.setattr(f"ascendsim.profile.{module}.configs_directory", lambda: folder)


def test_an_edited_generation_is_read_again(tmp_path, monkeypatch):
    folder = tmp_path / "configs"
    shutil.copytree(configs_directory(), folder)
    look_in(folder, monkeypatch)
    before = load_profile("910B")
    path = folder / "generations" / f"{before.npu_arch}.toml"
    text = path.read_text()
    assert before.generation.deterministic_sum == "in order"
    path.write_text(
        text.replace('deterministic_sum = { value = "in order"', 'deterministic_sum = { value = "tree"')
    )
    assert load_profile("910B").generation.deterministic_sum == "tree"


def test_overrides_replace_values_and_leave_a_trace(b2):
    p = load_profile("910B", {"cores.cube": 30, "links.memory.efficiency": 0.8})
    assert p.cores.cube == 30
    assert p.links["memory"].total_bytes_per_cycle == Fraction(711111, 1000)  # 1.6e6 x 0.8 / 1800
    figure = p.figures["cores.cube"]
    assert (figure.value, figure.confidence) == (30, "override")
    assert "910B2 has 24" in figure.source
    assert b2.cores.cube == 24


def test_vector_cores_follow_cube_cores_that_are_changed_alone(tmp_path, b2):
    for given, vectors in (({"cores.cube": 30}, 60), ({"cores.cube": 30, "cores.vector": 30}, 30)):
        p = load_profile("910B", given)
        assert (p.cores.cube, p.cores.vector) == (30, vectors)
    figure = load_profile("910B", {"cores.cube": 30}).figures["cores.vector"]
    assert figure.source == "2 beside each of cores.cube, as before that was changed"
    assert figure.confidence == "derived"
    assert load_profile("910B", {"cores.cube": 24}).figures["cores.vector"] == b2.figures["cores.vector"]
    assert load_profile(write(tmp_path, 'base = "910B3"\n' + CUBES % 11)).cores.vector == 22
    # Cores of the 310P are no pairs.
    assert load_profile("310P", {"cores.cube": 4}).cores.vector == load_profile("310P").cores.vector
    # More than there may be do not follow.
    assert "got 48 for 4000 cube cores" in refusal("910B", {"cores.cube": 4000})


def test_what_was_measured_is_said_to_be_of_the_product_without_changes(tmp_path, b2):
    b3 = load_profile("910B3")
    assert b3.evidence.startswith("cube, paths and streams measured")
    mine = write(tmp_path, 'base = "910B3"\n' + CUBES % 11)
    changed = "without the change of cores.cube and cores.vector"
    assert load_profile(mine).evidence == f"of 910B3 as it is, {changed}: {b3.evidence}"
    # A file above it counts all that differs from what was measured, and one that changes nothing nothing.
    above = write(tmp_path, 'base = "mine.toml"\n[clock]\n' + CLOCK, "above.toml")
    told = "without the change of cores.cube, cores.vector and clock.cube_mhz"
    assert load_profile(above).evidence == f"of 910B3 as it is, {told}: {b3.evidence}"
    assert load_profile(write(tmp_path, 'base = "910B3"\n', "same.toml")).evidence == b3.evidence
    # Who measured the file's own product says so.
    said = write(tmp_path, 'base = "910B3"\nevidence = "our own runs"\n' + CUBES % 11, "said.toml")
    assert load_profile(said).evidence == "our own runs"
    told = "of 910B2 as it is, without the change of links.memory.efficiency: "
    assert load_profile("910B", {"links.memory.efficiency": 0.8}).evidence == told + b2.evidence
    assert load_profile("910B", {"links.memory.efficiency": 0.9}).evidence == b2.evidence
    # Overrides on a file of one's own are changes of what was measured, as nothing was of the file itself.
    told = f"of 910B3 as it is, {changed}: {b3.evidence}"
    assert load_profile(mine, {"cores.cube": 12}).evidence == told
    assert load_profile(mine, {"cores.cube": 20}).evidence == b3.evidence
    many = {f"buffers.{name}.capacity_bytes": 98304 for name in ("L1", "L0A", "L0B", "L0C")}
    told = load_profile("910B", many | {"clock.cube_mhz": 1000}).evidence
    assert " and 1 more: cube, paths" in told


CLOCK = 'cube_mhz = { value = 1650, source = "power-capped rack", confidence = "measured" }\n'


@pytest.mark.parametrize(
    ("overrides", "why"),
    [
        ({"cores.cub": 3}, "cores.cub: no such figure; did you mean cores.cube?"),
        # A part of a path is nearer than another path of like letters, l2.capacity_bytes.
        ({"L1.capacity_bytes": 3}, "no such figure; did you mean buffers.L1.capacity_bytes?"),
        ({"buffers.l1": 3}, "did you mean buffers.L1.capacity_bytes or buffers.L1.alignment_bytes?"),
        ({"cores.cube": 0}, "cores.cube.value: got 0, expected an integer from 1 to 4096"),
        ({"paths.L0C_UB.bytes_per_cycle": 3}, "paths.L0C_UB.bytes_per_cycle: no such figure"),
        ({"sync.barrier_cycles": 3}, "it follows from barrier_us"),
        ({"cores.vector": 0}, "expected at least 1 where core_structure is split"),
        (
            {"cores.cube": 200, "cores.vector": 48},
            "got 48 for 200 cube cores, expected equally many for each",
        ),
        (
            {"cores.vector": 50},
            "got 50 for 24 cube cores, expected equally many for each where core_structure",
        ),
        ({"cores.vector": 50}, "such as 48 or 72"),
    ],
)
def test_bad_overrides_say_why(overrides, why):
    assert why in refusal("910B", overrides)


# ---- Are the words true?

DOCUMENT = Path(__file__).parents[2] / "docs" / "profiles.md"


def test_the_documented_file_of_one_s_own_loads(tmp_path):
    example = re.search(r"```toml\n(base = .*?)```", DOCUMENT.read_text(), re.S)[1]
    mine = load_profile(write(tmp_path, example))
    assert (mine.clock.cube_mhz, mine.links["memory"].efficiency) == (1650, 0.93)


def test_the_documented_overrides_say_what_is_printed():
    example = re.search(r"```python\n(.*?)```", DOCUMENT.read_text(), re.S)[1]
    space = {}
    exec(example, space)
    printed = re.search(r"\.source +# (.*)", example)[1]
    assert space["profile"].figures["cores.cube"].source == printed


def test_the_document_names_what_plain_names_mean():
    rows = re.findall(r"(?m)^\| (\S+) \| (\S+) \| [^|]*\|$", DOCUMENT.read_text())
    assert dict(row for row in rows if row[0] in PLAIN) == PLAIN


# ---- Is one more file in configs/ one more product?


@pytest.fixture
def one_more(tmp_path, monkeypatch):
    """A copy of configs/ with a product that is nothing but a base and more cores."""
    folder = tmp_path / "configs"
    shutil.copytree(configs_directory(), folder)
    figure = '{ value = 32, source = "made up", confidence = "derived" }'
    write(folder, f'base = "910B"\n[cores]\ncube = {figure}\n', "910X.toml")
    look_in(folder, monkeypatch)
    return folder


def test_a_file_more_is_a_product_with_one_variant(one_more):
    found = {product.name: product for product in list_products()}
    assert set(found) == {*PLAIN, "910X"}
    assert found["910X"] == ShippedProduct("910X", "910X", (), "910B")
    made = load_profile("Ascend910X")
    assert (made.product, made.variant, made.cores.cube) == ("910X", "910X", 32)
    # Of one's own, elsewhere, it is still a 910B.
    elsewhere = shutil.copy(one_more / "910X.toml", one_more.parent)
    assert load_profile(elsewhere).product == "910B"


@pytest.mark.usefixtures("one_more")
def test_the_rules_know_it_by_its_architecture():
    assert resolve(conv(), "910X").product == "910B"
    assert resolve(conv(), "910x", "hardware") == resolve(conv(), load_profile("910X"), "hardware")
    assert _require_known("910X") is None
    with pytest.raises(ConfigError, match=r"rules: unknown product '910Y'; did you mean 910\?"):
        resolve(conv(), "910Y")


# --- Does the check of a tree of figures take what is right, and place what is wrong? ------------------

COUNT = integer(1, 9)


def figure(value=5, **parts):
    return {"value": value, "source": "a page", "confidence": "measured"} | parts


def problems(node, given):
    return list(problems_of(node, given))


@pytest.mark.parametrize(
    ("kind", "right", "wrong"),
    [
        (integer(1, 10**30), [1, 10**30], [0, -1, 1.0, True, "1", None, [1], 10**31]),
        (integer(1, 9), [1, 9], [0, 10]),
        (
            number(0.01, 1e300),
            [0.01, 1, 1e300],
            [0.009, 1.1e300, 10**301, 0, -1.0, nan, inf, -inf, True, "1", None],
        ),
        (number(0.01, 1), [0.01, 1, 1.0], [1.001, 0]),
        (word(), ["x", " "], ["", 1, None, True, b"x"]),
        (word("RNE", "RZ"), ["RNE", "RZ"], ["rne", "", 1, ["RNE"], {}]),
        (truth(), [True, False], [0, 1, "true", None]),
    ],
)
def test_a_kind_is_strict(kind, right, wrong):
    for value in right:
        assert problems(kind, figure(value)) == []
    for value in wrong:
        assert [problem[:2] for problem in problems(kind, figure(value))] == [(("value",), "wrong")]


def test_a_list_is_checked_item_by_item():
    kind = listed("digits", COUNT)
    assert problems(kind, figure([])) == []
    assert problems(kind, figure([1, 9])) == []
    assert problems(kind, figure((1,))) == [Problem(("value",), "wrong", (1,))]
    assert problems(kind, figure([1, 0, "1"])) == [
        Problem(("value", "1"), "wrong", 0),
        Problem(("value", "2"), "wrong", "1"),
    ]
    # Its range lists lists.
    assert problems(kind, figure([1], range=[[1], [2]])) == []
    assert problems(kind, figure([1], range=[[1], 2])) == [Problem(("range", "1"), "wrong", 2)]


def test_the_parts_of_a_figure_are_told_in_order_and_strangers_last():
    given = {"other": 1, "confidence": "sure", "source": " ", "range": [0], "fitted_on": ["a", 2], "note": ""}
    assert problems(COUNT, given) == [
        Problem(("value",), "missing"),
        Problem(("source",), "wrong", " "),
        Problem(("confidence",), "wrong", "sure"),
        Problem(("range", "0"), "wrong", 0),
        Problem(("note",), "wrong", ""),
        Problem(("fitted_on", "1"), "wrong", 2),
        Problem(("other",), "unknown"),
    ]
    assert problems(COUNT, 5) == [Problem((), "wrong", 5)]
    assert problems(COUNT, {}) == [Problem((name,), "missing") for name in ("value", "source", "confidence")]


@pytest.mark.parametrize(
    ("kind", "given", "rule"),
    [
        (COUNT, figure(confidence="assumed"), "must carry a range"),
        (COUNT, figure(range=[1, 4]), "with the value inside"),
        (COUNT, figure(range=[6, 9]), "with the value inside"),
        (COUNT, figure(range=[5]), "with the value inside"),
        (COUNT, figure(range=[1, 5, 9]), "with the value inside"),
        (word(), figure("a", range=["b", "c"]), "the value among them"),
        (truth(), figure(True, range=[False]), "the value among them"),
        (COUNT, figure(fitted_on=["a"]), "a fitted figure"),
        (COUNT, figure(without=4), "a fitted figure"),
        (COUNT, figure(without=5, fitted_on=["a"]), "a fitted figure"),
        (COUNT, figure(without=4, fitted_on=["a"], confidence="derived"), "a fitted figure"),
    ],
)
def test_the_parts_of_a_figure_must_fit_each_other(kind, given, rule):
    (problem,) = problems(kind, given)
    assert problem.place == ()
    assert problem.fault == "figure"
    assert rule in problem.rule


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (COUNT, figure(confidence="assumed", range=[5, 5])),
        (COUNT, figure(range=[1, 9])),
        (word(), figure("a", range=["b", "a"])),
        (truth(), figure(True, range=[False, True], confidence="assumed")),
        (COUNT, figure(without=4, fitted_on=["a"], note="why")),
    ],
)
def test_a_figure_may_carry_more(kind, given):
    assert problems(kind, given) == []


def test_tables_want_what_they_must_and_allow_what_they_may():
    node = {"cores": {"cube": COUNT, "spare": Maybe(COUNT)}, "queues": Each(("M", "V", "FIX"), ("M",), COUNT)}
    right = {"cores": {"cube": figure()}, "queues": {"M": figure(), "FIX": figure()}}
    assert problems(node, right) == []
    wrong = {"queues": {"V": figure(0), "X": figure()}, "more": {}}
    assert problems(node, wrong) == [
        Problem(("cores",), "missing"),
        Problem(("queues", "M"), "missing"),
        Problem(("queues", "V", "value"), "wrong", 0),
        Problem(("queues", "X"), "unknown"),
        Problem(("more",), "unknown"),
    ]
    assert problems(node, right | {"cores": [1]}) == [Problem(("cores",), "wrong", [1])]


# ---- Limits


def numbers():
    """Every figure of the schema that is a number, by its dotted path, and its limits."""

    def below(node, path):
        if isinstance(node, Kind):
            if node.limits is not None and not node.listed:
                yield ".".join(path), node.limits
            return
        for key, (entry, _) in children(node).items():
            yield from below(entry, (*path, key))

    return dict(below(TREE, ()))


LIMITS = numbers()


def test_every_number_of_the_schema_has_limits():
    # Beyond them, 64 bits overflow and the engines part; a figure without a limit would be asked by nobody.
    assert len(LIMITS) > 200
    assert all(0 <= least < most <= 1 << 40 for least, most in LIMITS.values())


def test_beyond_its_limits_no_figure_is_taken():
    for path, (least, most) in LIMITS.items():
        kind = node_at(tuple(path.split(".")))
        assert kind.fits(least)
        assert kind.fits(most)
        for value in (least - 1, most + 1, 2**63, 10**18, 10**400, -(10**400), 1e308, inf, nan):
            assert not kind.fits(value), path
    for path in random.Random(3).sample(sorted(set(LIMITS) & set(load_profile("910B2").figures)), 12):
        with pytest.raises(ConfigError, match=f"{path}.value: got .*, expected an? [a-z]+ from "):
            load_profile("910B2", {path: LIMITS[path][1] + 1})


MILLION, RATES = 10**6, (0.001, 10**6)
# The first pattern that a path has says its limits: of numbers in order, sizes, shares, rates and cycles.
SAID_LIMITS = {
    "cores.vector": (0, 4096),
    "cores.cube": (1, 4096),
    "package.dies": (1, 4096),
    "clock.*": (1, MILLION),
    "energy.nominal_mhz": (1, MILLION),
    "energy.leakage_exponent": (0, 8),
    "energy.voltage_v.*": (0.01, 100),
    "energy.*": (0, 10**9),
    "queues.*": (1, 2**20),
    # Bytes of one core: no buffer is less than a block.
    "buffers.*.capacity_bytes": (32, 2**26),
    "buffers.*.alignment_bytes": (1, 4096),
    "paths.*.buffer_bytes": (1, 2**26),
    # Of the chip, and of one access.
    "l2.capacity_bytes": (1, 2**40),
    "l2.*": (1, 2**20),
    "*.request_bytes": (1, 2**20),
    "*.fractal_bytes": (1, 2**20),
    "*.unit_flag_bytes": (1, 2**20),
    "vector.bytes_per_cycle": (1, 2**20),
    "vector.group_repeats.*": (1, 2**20),
    "cube.rates.*.block_k": (1, 2**20),
    "cube.rates.*.k0": (4, 128),
    "cube.[mn]0": (8, 64),
    "cube.hf32_mantissa_bits": (1, 23),
    "*.m_stall_share": (0, 1),
    "*_share": (0.01, 1),
    "*efficiency": (0.01, 1),
    "*.row_cycles": RATES,
    "*.turned_cycles": RATES,
    "*bytes_per_cycle": RATES,
    "*tb_per_s": RATES,
    "*gb_per_s": RATES,
    # What costs nothing where it is not known would be no figure.
    "paths.*.least_cycles": (1, MILLION),
    "*.spread_cycles": (1, MILLION),
    "*.in_turn_cycles": (1, MILLION),
    "*.cycles_per_stride": (1, MILLION),
    "*.most_cycles": (1, MILLION),
    "fixpipe.matrix_least_cycles": (1, MILLION),
    "vector.*repeat_cycles.*": (1, MILLION),
    "vector.kind_*": (1, MILLION),
    "*_us": (0, MILLION),
    "*cycles*": (0, MILLION),
}


def test_the_limits_are_those_that_are_said():
    said = {path: next(v for p, v in SAID_LIMITS.items() if fnmatchcase(path, p)) for path in LIMITS}
    assert said == LIMITS
    # Sides of the cube are powers of two, between the least and the largest.
    for path in ("cube.m0", "cube.rates.float16.k0"):
        least, most = LIMITS[path]
        fits = [side for side in range(1, 2 * most + 1) if node_at(tuple(path.split("."))).fits(side)]
        assert fits == [2**at for at in range(12) if least <= 2**at <= most]


def test_what_every_product_has():
    def needed(*place):
        return {key for key, (_, required) in children(node_at(place)).items() if required}

    assert needed("buffers") == {"L1", "L0A", "L0B", "L0C", "UB"}
    assert needed("paths") == {"GM_L1", "GM_UB", "UB_GM", "L1_L0A", "L1_L0B"}
    assert needed("cube", "rates") == needed("accumulation") == {"float16"}
    assert needed("queues") == {"cube"}
    repeats = {"unary", "binary", "multiply_add", "cast", "divide", "exp", "transpose"}
    assert needed("vector", "repeat_cycles") == repeats | {"reduce_add_16bit", "reduce_add_32bit"}


def test_elements_of_a_format_have_its_bytes():
    # Of hifloat8 numpy knows nothing; HF32 lies in memory as float32.
    for name, size in CUBE_BYTES.items():
        assert size == (4 if name == "hf32" else find(name, ELEMENTS).itemsize), name


SMALL = (ConvProblem((2, 32, 9, 9), (48, 32, 3, 3), padding=1), ConvProblem((1, 16, 8, 8), (16, 16, 1, 1), 2))


def assert_both_engines_answer(product, path, value):
    try:
        profile = load_profile(product, {path: value})
    except ConfigError:
        return  # with its others it makes no machine
    for problem in SMALL:
        found = []
        for engine in ("compiled", "simpy"):
            try:
                result = estimate(problem, product=profile, engine=engine, l2_start="cold")
                found.append((result.cycles, result.time_us))
                assert 0 < result.time_us < 1e15
            except AscendSimError as error:
                found.append(str(error))
        assert found[0] == found[1], (path, value)


def at_limits(product):
    figures = load_profile(product).figures
    return [(product, path, limit) for path in figures if path in LIMITS for limit in LIMITS[path]]


@pytest.mark.parametrize("product", ["910B2", "310P3", "950PR_9589"])
def test_at_drawn_limits_both_engines_answer_alike(product):
    for asked in random.Random(37).sample(at_limits(product), 10):
        assert_both_engines_answer(*asked)


@pytest.mark.slow
@pytest.mark.parametrize("product", ["910B2", "310P3", "950PR_9589", "910A"])
def test_at_all_limits_both_engines_answer_alike(product):
    for asked in at_limits(product):
        assert_both_engines_answer(*asked)
