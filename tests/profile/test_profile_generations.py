"""Does a product do around the cube what its generation does, and can a machine of one's own do otherwise?"""

import re
import shutil
import tomllib

import pytest

from ascendsim import ConvProblem, estimate
from ascendsim.errors import ConfigError
from ascendsim.profile import Generation, configs_directory, files, list_products, load_profile
from tests.helpers.shipped_products import refusal, write
from tests.helpers.toy_profiles import toy_split

PRODUCTS = ("910B", "910_93", "910_95", "310P", "910")
FOLDER = configs_directory() / "generations"
NARROW = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "hifloat8")


def choices(profile):
    """What differs between generations, without the formats."""
    core = profile.generation
    return core.deterministic_sum, core.squeezes_groups, core.half_accumulator, core.inf_nan_at_launch


# ---- The shipped tables


def test_every_product_has_a_table_and_every_table_a_product():
    archs = {load_profile(product).npu_arch for product in PRODUCTS}
    assert {path.stem for path in FOLDER.glob("*.toml")} == archs | {"other"}


def test_the_tables_are_no_products():
    assert {product.name for product in list_products()} == set(PRODUCTS)
    for path in FOLDER.glob("*.toml"):
        with pytest.raises(ConfigError, match="unknown product"):
            load_profile(path.stem)


@pytest.mark.parametrize(
    ("product", "expected"),
    [
        # The operators squeeze on every generation but 3510; the oldest cubes can add up in float16, but
        # their conversions only saturate.
        ("910", ("in order", True, True, False)),
        ("310P", ("in order", True, True, False)),
        ("910B", ("in order", True, False, True)),
        ("910_93", ("in order", True, False, True)),
        ("910_95", ("tree", False, False, True)),
    ],
)
def test_what_the_generations_choose(product, expected):
    assert choices(load_profile(product)) == expected


def test_which_formats_can_overflow_to_inf():
    formats = {product: load_profile(product).generation.inf_nan_formats for product in PRODUCTS}
    two = ("float16", "bfloat16")
    assert formats == {"910": (), "310P": (), "910B": two, "910_93": two, "910_95": NARROW}


def test_a_choice_is_a_figure_with_a_source():
    figure = load_profile("910_95").figures["generation.deterministic_sum"]
    assert (figure.value, figure.source[:5], figure.confidence) == ("tree", "OPSNN", "vendor file")
    assert "ops-nn" in load_profile("910_95").sources["OPSNN"]


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.toml")), ids=lambda path: path.stem)
def test_the_sources_of_a_table_are_used(path):
    content = tomllib.loads(path.read_text())
    sources = content.pop("sources", {})
    figures = [entry for entry in content.values() if "value" in entry] + list(content["hf32_ties"].values())
    texts = " ".join(figure["source"] + " " + figure.get("note", "") for figure in figures)
    assert all(re.search(rf"\b{tag}\b", texts) for tag in sources)
    assert not set(sources) & {tag for product in PRODUCTS for tag in product_sources(product)}


def product_sources(product):
    """Tags of a product's own file: a table may not use the same for something else."""
    return tomllib.loads((configs_directory() / f"{product}.toml").read_text())["sources"]


# ---- A machine of one's own


def test_a_machine_that_is_no_product_makes_the_plainest_choices(tmp_path):
    arch = '[npu_arch]\nvalue = "9999"\nsource = "ours"\nconfidence = "measured"'
    mine = load_profile(write(tmp_path, f'base = "910"\n{arch}'))
    for profile in (mine, toy_split()):
        assert choices(profile) == ("in order", False, False, True)
        assert profile.generation.inf_nan_formats == NARROW
        assert profile.generation.fixpipe_saturated_formats == ()
    assert mine.figures["generation.squeezes_groups"].source.startswith("not a product")


def test_the_architecture_decides_and_not_the_base(tmp_path):
    arch = '[npu_arch]\nvalue = "3510"\nsource = "ours"\nconfidence = "measured"'
    newer = load_profile(write(tmp_path, f'base = "910B3"\n{arch}'))
    assert choices(newer) == choices(load_profile("910_95"))
    assert choices(load_profile("910B", {"npu_arch": "3510"})) == choices(newer)


@pytest.mark.parametrize("arch", ["../910B", "generations/2201", "other", ""])
def test_an_architecture_is_no_path(arch):
    if arch:
        assert choices(load_profile("910B", {"npu_arch": arch})) == choices(toy_split())
    else:
        with pytest.raises(ConfigError, match=r"npu_arch\.value: got '', expected a text"):
            load_profile("910B", {"npu_arch": arch})


def test_a_file_of_one_s_own_says_what_it_does_otherwise(tmp_path):
    path = write(
        tmp_path,
        """
        base = "910B3"
        [generation]
        deterministic_sum = { value = "tree", source = "our own kernel", confidence = "measured" }
        hf32_ties.matmul = { value = "RZ", source = "our own kernel", confidence = "measured" }
        """,
    )
    mine, usual = load_profile(path).generation, load_profile("910B3").generation
    assert (mine.deterministic_sum, mine.hf32_ties["matmul"]) == ("tree", "RZ")
    assert mine.hf32_ties["convolution_backward"] == usual.hf32_ties["convolution_backward"]
    assert mine.squeezes_groups is usual.squeezes_groups


def test_an_override_changes_the_kernels():
    # One pixel of float16 in two groups: the squeeze is one more cast of grad_weight on its way to float32.
    problem = ConvProblem((1, 2, 1, 1), (2, 1, 1, 1), groups=2)

    def names(squeezes):
        profile = load_profile("910B", {"generation.squeezes_groups": squeezes})
        keywords = {"output_dtypes": (None, "float32", None), "output_mask": (False, True, False)}
        result = estimate(problem, dtype="float16", product=profile, rules="documented", **keywords)
        return [kernel.name for kernel in result.kernels]

    assert set(names(True)) - set(names(False)) == {"squeeze_grad_weight", "cast_grad_weight"}


# ---- Do bad tables say why?


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            'deterministic_sum = {value = "any"',
            "deterministic_sum.value: got 'any', expected one of in order, t",
        ),
        ("squeezes_groups = {value = 1", "squeezes_groups.value: got 1, expected true or false"),
        (
            'inf_nan_formats = {value = ["float64"]',
            "inf_nan_formats.value.0: got 'float64', expected a list of fl",
        ),
        (
            'inf_nan_formats = {value = "float16"',
            "inf_nan_formats.value: got 'float16', expected a list of float16",
        ),
        (
            'hf32_ties.matmul = {value = "RN"',
            "hf32_ties.matmul.value: got 'RN', expected one of RNE, RNA, RZ",
        ),
        (
            'hf32_ties.matrix = {value = "RNE"',
            "hf32_ties.matrix: unknown key; known are convolution_backward, ",
        ),
        ("half_acumulator = {value = true", "half_acumulator: unknown key; did you mean half_accumulator?"),
    ],
)
def test_a_bad_choice_says_why(tmp_path, text, why):
    path = write(tmp_path, f'base = "910B"\n[generation]\n{text}, source = "x", confidence = "measured"}}')
    assert f"{path}: generation.{why}" in refusal(path)


def test_a_choice_without_a_source_does_not_load(tmp_path):
    path = write(tmp_path, 'base = "910B"\n[generation]\nhalf_accumulator = true')
    assert "generation.half_accumulator: got True, expected a figure { value, source" in refusal(path)


def test_overrides_of_choices_say_why():
    assert "generation.squeezes_group: no such figure; did you mean generation.squeezes_groups?" in refusal(
        "910B", {"generation.squeezes_group": True}
    )


def test_a_mistake_in_a_table_is_told_with_the_table(tmp_path, monkeypatch):
    copied = tmp_path / "configs"
    shutil.copytree(configs_directory(), copied)
    monkeypatch.setattr(files, "configs_directory", lambda: copied)
    table = copied / "generations" / "2201.toml"
    text = table.read_text().replace("squeezes_groups", "squeezes_group")
    table.write_text(text.replace('value = "in order"', 'value = "random"'))
    message = refusal("910B")
    for line in (
        "generation.squeezes_groups: missing; expected a figure",
        "generation.squeezes_group: unknown key; did you mean squeezes_groups?",
        "generation.deterministic_sum.value: got 'random', expected one of in order, tree",
    ):
        assert f"{table}: {line}" in message
    table.write_text("deterministic_sum = {")
    assert f"{table}: is not valid TOML" in refusal("910B")


# ---- Are the words true?

DOCUMENT = (configs_directory().parent / "docs" / "profiles.md").read_text()
SECTION = DOCUMENT.partition("## Generations of the core")[2].partition("\n## ")[0]


def test_the_document_explains_every_choice():
    rows = re.findall(r"(?m)^\| `(\w+)", SECTION)
    assert rows == list(Generation._fields)


def test_the_document_names_the_products_of_each_table():
    named = dict(re.findall(r"(\d{4})\n? ?\(([\w, ]+)\)", SECTION))
    assert {arch: text.split(", ") for arch, text in named.items()} == {
        arch: sorted((p for p in PRODUCTS if load_profile(p).npu_arch == arch), key=PRODUCTS.index)
        for arch in ("1001", "2002", "2201", "3510")
    }


def test_the_documented_table_of_one_s_own_loads(tmp_path):
    example = re.search(r"```toml\n(.*?)```", SECTION, re.S)[1]
    assert load_profile(write(tmp_path, example)).generation.deterministic_sum == "tree"
