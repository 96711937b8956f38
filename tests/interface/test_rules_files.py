"""Does a rule set load only if it says everything, and is an answer that is remembered the right one?"""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ascendsim import convolution_backward
from ascendsim.errors import AclnnError, ConfigError
from ascendsim.profile import list_products, load_profile
from ascendsim.rules import load_rules, loader, resolve, rule_product, rule_set_names
from ascendsim.rules.loader import product_names, rules_directory
from tests.helpers.calls import answer, conv

# --- Does a rule set load only if it says everything, and say where it does not? -----------------------


@pytest.fixture
def own(tmp_path):
    """Write a rule set over `documented` and return its path."""

    def write(text, base="documented"):
        path = tmp_path / "own.toml"
        path.write_text(f'base = "{base}"\n{text}')
        return path

    return write


@pytest.mark.parametrize("name", rule_set_names())
def test_every_shipped_set_loads_and_names_its_sources(name):
    rules = load_rules(name)
    assert (rules.name, bool(rules.title)) == (name, True)
    assert all(limit.source for part in (rules.convolution, rules.tbc) for limit in part.limits)
    assert all((limit.max is None) == bool(limit.at_most) for limit in rules.convolution.limits)


def test_every_product_of_the_simulator_is_known_to_the_rules():
    known, shipped = {product.name for product in product_names()}, {p.name for p in list_products()}
    assert known - shipped == {"310B", "310"}
    # By its name, or by its architecture.
    assert {rule_product(load_profile(name)) for name in shipped} <= known


def test_the_cube_math_rows_are_complete():
    for name in rule_set_names():
        rules = load_rules(name)
        for part in (rules.convolution, rules.tbc):
            for product in part.products:
                rows = part.cube_math[product]
                assert set(rows) >= set(part.dtypes[product])
                assert all(len(row) == 4 for row in rows.values())


def test_a_set_of_ones_own(own):
    path = own('title = "mine"\n[convolution]\nproducts_3d = []\n')
    rules = load_rules(path)
    assert (rules.name, rules.title, rules.convolution.products_3d) == ("own", "mine", ())
    assert rules.convolution.dtypes == load_rules("documented").convolution.dtypes
    with pytest.raises(ValueError, match="check 28"):
        resolve(conv(), "910B", path)


def test_a_set_that_changes_is_read_again(own):
    path = own('title = "first"\n')
    first = load_rules(path)
    assert load_rules(path) is first
    own('title = "second"\n[convolution]\nproducts_3d = []\n')
    assert load_rules(path).title == "second"
    with pytest.raises(ValueError, match="check 28"):
        resolve(conv(), "910B", path)
    own("nonsense")
    with pytest.raises(ConfigError, match="not valid TOML"):
        load_rules(path)


def test_a_base_that_changes_is_read_again(own, tmp_path):
    own('title = "first"\n')
    upper = tmp_path / "upper.toml"
    upper.write_text('base = "own.toml"\n')
    assert load_rules(upper).title == "first"
    own('title = "second"\n')
    assert load_rules(upper).title == "second"


def test_a_limit_without_a_largest_value_is_refused(own):
    path = own("[[convolution.limits]]\nof = 'stride'\nstatus = 161002\nsource = 'none'\n")
    with pytest.raises(ConfigError, match=r"convolution\.limits\[0\], of stride: .* neither max"):
        load_rules(path)
    path.write_text(path.read_text() + "max = 63\n")
    assert answer(conv(stride=64), "910B", path) == (161002, "24b")


@pytest.mark.parametrize("name", [[], None, 7, b"documented", {}, object()])
def test_what_names_no_rule_set(name):
    with pytest.raises(ConfigError, match=r"rules is .*; it must be the name of a rule set"):
        load_rules(name)


def test_a_path_with_a_nul(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read: embedded null"):
        load_rules(tmp_path / "a\0b.toml")


def test_a_base_beside_the_file(own, tmp_path):
    own('title = "mine"\n')
    upper = tmp_path / "upper.toml"
    upper.write_text('base = "own.toml"\n[tbc]\nproducts = []\n')
    assert load_rules(str(upper)).title == "mine"
    assert load_rules(str(upper)).tbc.products == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[convolution]\nbatchs = true\n",
            r"own\.toml\.convolution: unknown key 'batchs'; did you mean batch\?",
        ),
        ("[convolution]\nbatch = 1\n", r"convolution\.batch: got 1, expected bool"),
        ("[convolution]\nproducts = '910B'\n", r"convolution\.products: got '910B', expected a list"),
        ("[convolution]\nproducts = [1]\n", r"convolution\.products\[0\]: got 1, expected str"),
        ("convolution = 3\n", r"convolution: got 3, expected a table"),
        ("from_cube = true\ntbc = 1.5\n", r"tbc: got 1\.5, expected a table"),
        ("[tbc]\nproducts = ['910']\ndtypes = { 910 = [] }\n", r"tbc\.output_dtypes has no 910"),
        ("[convolution.empty]\nfour_pads = 'all'\n", r"four_pads: got 'all', expected one of 'sides'"),
        ("[convolution.formats]\nfour = ['NCHW']\n", r"formats: got the key 'four', expected a number"),
        ("[convolution.dtypes]\n910B = 3\n", r"dtypes\.910B: got 3, expected a list"),
        ("[[convolution.limits]]\nof = 'stride'\nmax = 1\nstatus = 5\nsource = 'x'\n", r"status: got 5"),
        ("[[convolution.limits]]\nof = 'stride'\n", r"limits\[0\]: status is missing"),
        (
            "[convolution]\nproducts = ['910B', '910C']\n",
            r"products\[1\]: unknown product '910C'; did you",
        ),
        (
            "[convolution]\nproducts_3d = ['910']\nwide_grad_bias = ['A2']\n",
            r"bias\[0\]: unknown product",
        ),
        ("[convolution.empty]\nproducts = ['b']\n", r"empty\.products\[0\]: unknown product 'b'; there is 9"),
        ("[determinism]\nfixed_order = ['950']\n", r"own\.toml\.determinism\.fixed_order\[0\]: unknown prod"),
        ("[convolution.dtypes]\n910C = ['float32']\n", r"convolution\.dtypes: unknown product '910C'"),
        (
            "[convolution.dtypes]\n910B = ['float23']\n",
            r"dtypes\.910B\[0\]: unknown dtype 'float23'; did",
        ),
        (
            "[convolution.formats]\n4 = ['NCWH']\n",
            r"formats\.4\[0\]: unknown format 'NCWH'; did you mean",
        ),
        ("[convolution.formats]\n6 = ['ND']\n", r"formats: unknown rank 6; there is 3, 4, 5"),
        ("[tbc]\nformats = ['ND', 'ncl']\n", r"tbc\.formats\[1\]: unknown format 'ncl'"),
        (
            "[convolution]\nnever_null = ['bias']\n",
            r"never_null\[0\]: unknown parameter 'bias'; did",
        ),
        (
            "[convolution]\nequal_formats = [['inputs']]\n",
            r"_formats\[0\]\[0\]: unknown tensor 'inputs'",
        ),
        ("[convolution]\nrelated_ranks = [2]\n", r"related_ranks\[0\]: unknown rank 2"),
        (
            "[convolution.output_dtypes.910B]\ngrad_input = ['grad_input']\n",
            r"output_dtypes\.910B\.grad_input\[0\]: unknown input 'grad_input'",
        ),
        ("[convolution.output_dtypes.910B]\ninput = []\n", r"output_dtypes\.910B: unknown output 'input'"),
        (
            "[convolution.cube_math.910B]\nfloat16 = ['float16', 'no', 'float16', 'float16']\n",
            r"cube_math\.910B\.float16\[1\]: unknown compute dtype 'no'",
        ),
        (
            "[convolution.cube_math.910B]\nfloat16 = ['float16']\n",
            r"own\.toml: convolution\.cube_math\.910B\.float16: got 1 entries, expected four",
        ),
        ("[convolution.cube_math_warnings]\nfloat16 = [4]\n", r"float16\[0\]: unknown cubeMathType 4"),
        (
            "[[convolution.limits]]\nof = 'stride'\naxes = ['H', 'L']\nstatus = 561103\nsource = ''\n",
            r"limits\[0\]\.axes\[1\]: unknown axis 'L'; there is D, H, W",
        ),
        (
            "[[tbc.limits]]\nof = 'kernel'\nproducts = ['910D']\nstatus = 561103\nsource = ''\n",
            r"tbc\.limits\[0\]\.products\[0\]: unknown product '910D'",
        ),
        ("[convolution]\nproducts = ['310B']\n", r"convolution\.dtypes has no 310B"),
        ("a = " + "[" * 5000, r"own\.toml: is (nested too deep|not valid TOML)"),
        ("base = 3\n", r"Cannot overwrite a value"),
        ("nonsense", r"is not valid TOML"),
    ],
)
def test_a_mistake_is_told_with_its_place(own, text, message):
    with pytest.raises(ConfigError, match=message):
        load_rules(own(text))


def test_a_set_without_a_base_must_say_everything(tmp_path):
    path = tmp_path / "alone.toml"
    path.write_text('title = "alone"\n')
    with pytest.raises(ConfigError, match=r"alone\.toml: determinism is missing"):
        load_rules(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "cannot be read"), (b"\xff\xfe", "is not text"), (b"base = 7", "base: got 7")],
)
def test_files_that_are_none(tmp_path, content, message):
    path = tmp_path / "odd.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        load_rules(path)


def test_a_base_may_not_lead_back(tmp_path):
    path = tmp_path / "circle.toml"
    path.write_text('base = "circle.toml"\n')
    with pytest.raises(ConfigError, match="leads back"):
        load_rules(path)


@pytest.mark.parametrize(("name", "hint"), [("shiped", "did you mean shipped"), ("x", "there is documented")])
def test_an_unknown_set_has_a_hint(name, hint):
    with pytest.raises(ConfigError, match=hint):
        load_rules(name)


def test_the_names_of_products_are_no_rule_set():
    assert "products" in {path.stem for path in rules_directory().glob("*.toml")}
    with pytest.raises(ConfigError):
        load_rules("products")


def test_reading_rules_loads_no_arrays():
    code = "import sys, ascendsim.rules as rules; rules.load_rules(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert not loaded & {"numpy", "numba", "ml_dtypes", "pydantic", "simpy", "rich", "matplotlib"}


def test_the_directory_is_found_from_anywhere():
    assert rules_directory().is_absolute()
    assert isinstance(rules_directory(), Path)


@pytest.mark.parametrize(("length", "message"), [(4096, "unknown rule set 'x"), (4097, "rules is 'x")])
def test_what_is_longer_than_any_path_is_not_looked_for(length, message):
    with pytest.raises(ConfigError, match=message):
        load_rules("x" * length)


# --- Does a call that has been decided before get the same answer, and any other call its own? ---------


def test_an_equal_call_gets_an_equal_decision_with_a_table_of_its_own():
    first = resolve(conv(), "910B")
    first.dtypes["grad_input"] = "int4"
    second = resolve(conv(), "910B")
    assert second.dtypes["grad_input"] == "float32"
    assert second == first._replace(dtypes={**first.dtypes, "grad_input": "float32"})


@pytest.mark.parametrize("name", ["groups", "stride"])
def test_true_is_no_number_where_one_has_been_accepted(name):
    # For Python True == 1, and their hashes are equal.
    one = {"groups": 1, "stride": (1, 1, 1)}[name]
    call = replace(conv(weight=(6, 4, 3, 3, 3), groups=1), **{name: one})
    assert resolve(call, "910B").compute_dtype == "float32"
    bad = replace(call, **{name: True if name == "groups" else (True, 1, 1)})
    for _ in range(2):
        with pytest.raises(AclnnError):
            resolve(bad, "910B")


def test_a_rule_set_that_is_edited_decides_anew(tmp_path):
    own = tmp_path / "own.toml"
    answers = []
    for text in ("base = 'documented'", "base = 'documented'\ndirect_outputs = true"):
        own.write_text(text)
        answers += [resolve(conv(), "910B", own).direct_outputs for _ in range(2)]
    assert answers == [False, False, True, True]


def test_products_have_decisions_of_their_own():
    # 310P has no float32 cube: cubeMathType 1 lets it compute in float16.
    call = conv((2, 4, 6, 7), (6, 2, 3, 3), cube_math_type=1)
    assert [resolve(call, product).compute_dtype for product in ("910B", "310P") * 2] == [
        "hf32",
        "float16",
    ] * 2


def test_numbers_of_other_types_make_the_same_gradients():
    rng = np.random.default_rng(0)
    shapes = (2, 4, 5, 5), (2, 3, 5, 5), (4, 3, 3, 3)
    tensors = [rng.standard_normal(shape).astype(np.float16) for shape in shapes]
    made = [
        convolution_backward(
            *tensors, None, stride, 1, 1, False, 0, one, (True, True, False), 0, timing=False
        )
        for stride, one in ((1, 1), (np.int64(1), np.int32(1)), ([1, 1], 1))
    ]
    for other in made[1:]:
        assert np.array_equal(other.grad_input, made[0].grad_input)
        assert np.array_equal(other.grad_weight, made[0].grad_weight)


def test_the_digest_of_the_rules_is_another_one_for_each_name_and_content(tmp_path, monkeypatch):
    monkeypatch.setattr(loader, "rules_directory", lambda: tmp_path)
    found = []
    for name, content in (("a", "title = 1"), ("a", "title = 2"), ("b", "title = 2")):
        for path in tmp_path.iterdir():
            path.unlink()
        (tmp_path / f"{name}.toml").write_text(content)
        found += [loader.rules_digest(), loader.rules_digest()]
    assert [found.count(digest) for digest in found] == [2] * 6
