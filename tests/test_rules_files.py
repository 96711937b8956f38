"""Does a rule set load only if it says everything, and say where it does not?"""

import subprocess
import sys
from pathlib import Path

import pytest

from ascendsim.errors import ConfigError
from ascendsim.profile import list_products, load_profile
from ascendsim.rules import load_rules, resolve, rule_product, rule_set_names
from ascendsim.rules.loader import product_names, rules_directory
from tests.rules_calls import conv


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
    assert all(limit.max >= 0 or limit.at_most for limit in rules.convolution.limits)


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
        ("[convolution.empty]\nfour_pads = 'all'\n", r"four_pads: got 'all', expected one of 'sides'"),
        ("[convolution.formats]\nfour = ['NCHW']\n", r"formats: got the key 'four', expected a number"),
        ("[convolution.dtypes]\n910B = 3\n", r"dtypes\.910B: got 3, expected a list"),
        ("[[convolution.limits]]\nof = 'stride'\nmax = 1\nstatus = 5\nsource = 'x'\n", r"status: got 5"),
        ("[[convolution.limits]]\nof = 'stride'\n", r"limits\[0\]: status is missing"),
        ("[convolution]\nproducts = ['310B']\n", r"convolution\.dtypes has no 310B"),
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
    with pytest.raises(ConfigError, match=r"alone\.toml: convolution is missing"):
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
