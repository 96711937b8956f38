"""Do changes of figures, as users state them, become the values that they mean?"""

import pytest

from ascendsim.errors import ConfigError
from ascendsim.profile import Change, contradiction, load_profile, parse_changes, read_changes
from ascendsim.profile.records import DERIVED

PROFILE = load_profile("910B2")
L0C = "buffers.L0C.capacity_bytes"
RATE = "paths.GM_L1.bytes_per_cycle"
MEMORY = "links.memory.nominal_tb_per_s"


def only(text):
    (change,) = parse_changes(text)
    return change


def test_a_factor_multiplies_the_figure_of_the_product():
    assert only(f"{L0C}=x2").on(PROFILE) == {L0C: 2 * PROFILE.buffers["L0C"].capacity_bytes}


def test_a_whole_figure_stays_whole():
    # 24 cores: x1.3 is 31.2, of which 31 are cores.
    value = only("cores.cube=x1.3").on(PROFILE)["cores.cube"]
    assert (value, type(value)) == (31, int)


def test_a_factor_that_rounds_to_what_there_is_is_refused():
    # 24 x 1.01 is 24.24: a study of it would answer that it changes nothing.
    with pytest.raises(ConfigError, match=r"cores\.cube: x1\.01 of 24 is 24 in whole numbers"):
        only("cores.cube=x1.01").on(PROFILE)
    assert only("cores.cube=x1").on(PROFILE) == {"cores.cube": 24}


def test_a_share_is_multiplied_in_tenths_and_not_in_binary():
    # 1.6 TB/s x 1.1 is 1.76; in floats it would be 1.7600000000000002.
    assert only(f"{MEMORY}=x1.1").on(PROFILE) == {MEMORY: 1.76}


def test_a_value_replaces_the_figure():
    assert only("clock.cube_mhz=20").on(PROFILE) == {"clock.cube_mhz": 20}
    assert only(f"{MEMORY}=2.5").on(PROFILE) == {MEMORY: 2.5}


def test_vector_cores_follow_the_cube_cores_that_they_stand_beside():
    # An AI core of the 910B is a cube core with two vector cores.
    assert only("cores.cube=20").on(PROFILE) == {"cores.cube": 20, "cores.vector": 40}
    # Who says both asks for another core, and who says the vector cores alone does.
    assert only("cores.cube=20+cores.vector=20").on(PROFILE) == {"cores.cube": 20, "cores.vector": 20}
    assert only("cores.vector=72").on(PROFILE) == {"cores.vector": 72}
    # AI cores of the 310P hold their vector unit; seven vector cores beside eight of them are others.
    assert only("cores.cube=4").on(load_profile("310P")) == {"cores.cube": 4}


def test_a_list_makes_a_change_of_each_value():
    names = [change.name for change in parse_changes(f"{L0C}=x0.5,x2")]
    assert names == [f"{L0C}=x0.5", f"{L0C}=x2"]


def test_joined_figures_change_together():
    one, two = parse_changes(f"{L0C}=x2,x4+{RATE}=x2")
    assert one.figures == {L0C: "x2", RATE: "x2"}
    assert two.figures == {L0C: "x4", RATE: "x2"}


@pytest.mark.parametrize("text", ["", "=x2", L0C, f"{L0C}=", f"{L0C}=x2,", f"{L0C}=x2+"])
def test_what_is_no_change_is_told_the_form(text):
    with pytest.raises(ConfigError, match="expected PATH=VALUE, PATH=xFACTOR"):
        parse_changes(text)


def test_lists_of_other_lengths_do_not_join():
    with pytest.raises(ConfigError, match="equally many values"):
        parse_changes(f"{L0C}=x2,x4,x8+{RATE}=x1,x2")


def test_a_figure_joins_once():
    with pytest.raises(ConfigError, match="stands there twice"):
        parse_changes(f"{L0C}=x2+{L0C}=x4")


def test_an_unknown_figure_is_told_with_the_nearest():
    with pytest.raises(
        ConfigError, match=r"no such figure of 910B2; did you mean buffers\.L0C\.capacity_bytes"
    ):
        only("buffers.L0C.capacity_byte=x2").on(PROFILE)


def test_a_text_has_no_factor():
    with pytest.raises(ConfigError, match="multiplies a number"):
        only("core_structure=x2").on(PROFILE)


REFUSED = {
    # What is no number is told the rule of the figure, and what the product has.
    "cores.cube=xyz": r"got 'xyz'; expected an integer from 1 to 4096, or a factor .*\(the product has 24\)$",
    # A factor is told with what it makes.
    "cores.cube=x0": r"got x0 of 24, which is 0; expected an integer from 1",
    "cores.cube=x-2": r"got x-2 of 24, which is -48; expected",
    "cores.cube=-5": r"got -5; expected",
    f"{MEMORY}=-1.6": r"got -1\.6; expected a number of at least 0\.001",
    "cores.cube=nan": r"got nan; expected",
    f"{MEMORY}=inf": r"got inf; expected",
    "cores.cube=20.5": r"got 20\.5; expected an integer",
    # Near misses are told how they are written.
    "cores.cube=1e2": r"; did you mean 100\?$",
    "cores.cube=2x": r"; did you mean x2\?$",
    "cores.cube=*1.5": r"; did you mean x1\.5\?$",
    "cores.cube=150%": r"; did you mean x1\.5\?$",
    f"{MEMORY}=1600 GB/s": r"; give the number alone, in the unit that the figure's name ends with$",
    f"{L0C}=256KiB": r"; give the number alone",
    # A yes or no is no number, so that no factor is offered.
    "deterministic_default=yes": r"got 'yes'; expected true or false \(the product has false\)$",
    "load3d.L0A.fast_strides=3": r"got 3; expected a list of integers of at least 1",
    # What follows from other figures would be made anew of them.
    "scalar.start_cycles=x2": r"it follows from start_us beside it; change that instead$",
    "cube.rates.float16.macs_per_cycle=x2": r"it follows from block_k beside it",
}


@pytest.mark.parametrize("text", REFUSED)
def test_a_value_that_a_figure_cannot_have_is_told_with_the_rule(text):
    with pytest.raises(ConfigError, match=f"^change of {text.partition('=')[0]}: .*{REFUSED[text]}"):
        only(text).on(PROFILE)


def test_every_figure_of_every_product_may_have_the_value_it_has():
    for product in ("910", "910B2", "910_93", "910_95", "310P"):
        profile = load_profile(product)
        # Those that follow from others are no figures of a product's file.
        own = [path for path in profile.figures if path.rpartition(".")[2] not in DERIVED]
        assert len(own) > 100
        for path in own:
            value = profile.figures[path].value
            assert Change("same", {path: value}).on(profile) == {path: value}


def test_a_yes_or_no_is_read_as_one():
    change = only("deterministic_default=true")
    assert (change.name, change.on(PROFILE)) == (
        "deterministic_default=true",
        {"deterministic_default": True},
    )


def test_figures_that_no_product_can_have_together_are_told_in_a_line():
    # Each alone may have the value; 12 vector cores cannot stand beside 24 cube cores.
    assert contradiction("910B2", {"cores.cube": 20}) == ""
    told = contradiction("910B2", {"cores.vector": 12})
    assert told.startswith("cores.vector: got 12 for 24 cube cores, expected equally many for each")
    assert "\n" not in told


def test_a_file_names_its_changes(tmp_path):
    path = tmp_path / "changes.toml"
    path.write_text(
        f'[[change]]\nname = "large L0C"\nfigures = {{ "{L0C}" = "x2" }}\n'
        f'[[change]]\nname = "both"\nfigures = {{ "{L0C}" = "x2", "cores.cube" = 20 }}\n'
    )
    large, both = read_changes(path)
    assert (large.name, large.on(PROFILE)) == ("large L0C", only(f"{L0C}=x2").on(PROFILE))
    assert both.on(PROFILE)["cores.cube"] == 20


BAD_FILES = {
    "": "expected \\[\\[change\\]\\]",
    "[[changes]]\nname = 'a'\n": "expected \\[\\[change\\]\\]",
    "[[change]]\nname = 'a'\n": "change\\[0\\] \\(a\\): figures is None",
    "[[change]]\nfigures = { 'a.b' = 1 }\n": "change\\[0\\]: got",
    "[[change]]\nname = 'a'\nfigures = { a.b = 1 }\n": "a is a table; a dotted path stands in quotes",
    "[[change]]\nname = 'a'\nfigures = {'a.b' = 1}\n" * 2: "a is there twice",
    "[[change": "is not valid TOML",
}


@pytest.mark.parametrize("text", BAD_FILES)
def test_a_bad_file_is_told_with_its_place(tmp_path, text):
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=rf"bad\.toml.*{BAD_FILES[text]}"):
        read_changes(path)


def test_a_missing_file_is_told(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        read_changes(tmp_path / "none.toml")


def test_a_bad_value_in_a_file_is_told_as_on_the_command_line(tmp_path):
    path = tmp_path / "changes.toml"
    path.write_text('[[change]]\nname = "a"\nfigures = { "cores.cube" = "2x" }\n')
    (change,) = read_changes(path)
    with pytest.raises(ConfigError, match=r"change of cores\.cube: got '2x'.* did you mean x2\?"):
        change.on(PROFILE)


@pytest.mark.parametrize("text", [f"{L0C}=x2,{RATE}=x2", f"{L0C}=x2+{RATE}=x2,{L0C}=x4", f"{L0C}==2"])
def test_commas_between_figures_lead_to_another_option(text):
    with pytest.raises(ConfigError, match="give each change of its own by another --change"):
        parse_changes(text)
