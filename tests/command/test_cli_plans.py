"""Does `ascendsim run` take plans from a file, and write those that it took?"""

import json
import tomllib
from pathlib import Path

import pytest

from ascendsim.cli import main

CALL = ("run", "--input", "2,64,14,14", "--weight", "64,64,3,3", "--padding", "1", "--cycles-only")
LAYERS = 'layers = [{ name = "a", input = [16, 6, 6], weight = [16, 16, 3, 3], padding = 1 }]'


def kernels(made):
    return {kernel["name"]: kernel for kernel in made["products"][0]["kernels"]}


@pytest.mark.parametrize("ending", ["toml", "json"])
def test_what_a_run_writes_another_takes(record, tmp_path, ending):
    file = tmp_path / f"plans.{ending}"
    first = record(*CALL[1:], "--write-tiling", str(file))
    again = record(*CALL[1:], "--tiling", str(file))
    assert [kernel["cycles"] for kernel in kernels(first).values()] == [
        kernel["cycles"] for kernel in kernels(again).values()
    ]
    assert again["problem"]["tiling"] == str(file)
    plan, own = (kernels(made)["grad_input"]["plan"] for made in (first, again))
    assert own == plan | {"chosen_by": "user"}
    assert plan["chosen_by"] == "product"


def test_gradients_follow_the_plans_of_a_file_too(record, tmp_path):
    file = tmp_path / "part.toml"
    file.write_text("[grad_weight]\nk_dim = 2\nbase_m = 32\nbase_n = 48\n")
    made = record(*CALL[1:-1], "--tiling", str(file), "--mask", "weight")
    plan = kernels(made)["grad_weight"]["plan"]
    assert (plan["k_dim"], plan["base_m"], plan["base_n"]) == (2, 32, 48)
    assert plan["chosen_by"] == "user, rest product"
    assert made["products"][0]["gradients"]


def test_the_search_can_be_asked_for_by_name(record):
    product = ("--product", "910A", "--mask", "input")
    chosen = [
        kernels(record(*CALL[1:], *product, *words))["grad_input"]["plan"]["chosen_by"]
        for words in ((), ("--tiling", "search"), ("--tiling", "product"))
    ]
    assert chosen == ["product", "search", "product"]


def test_a_network_takes_and_writes_plans_layer_by_layer(record, refusal, tmp_path):
    network, plans, written = (tmp_path / name for name in ("net.toml", "plans.toml", "written.toml"))
    network.write_text(
        LAYERS.replace("}]", '}, { name = "b", input = [16, 6, 6], weight = [16, 16, 1, 1] }]')
    )
    plans.write_text("[grad_input]\nbase_m = 16\n[b.grad_input]\nbase_m = 32\n")
    words = ("--workload", str(network), "--tiling", str(plans), "--write-tiling", str(written))
    layers = record(*words, "--mask", "input")["products"][0]["layers"]
    assert [kernels({"products": [layer]})["grad_input"]["plan"]["base_m"] for layer in layers] == [16, 32]
    made = tomllib.loads(written.read_text())
    assert [made[name]["grad_input"]["base_m"] for name in "ab"] == [16, 32]
    # One layer of the network takes its own plans of the same file.
    one = record("b", *words[:4], "--cycles-only")
    assert kernels(one)["grad_input"]["plan"]["base_m"] == 32
    plans.write_text("[c.grad_input]\nbase_m = 32\n")
    assert "has plans of c, which is no layer of what is run; there is a, b" in refusal("run", *words)


def test_tables_that_nothing_reads_are_told(capsys, tmp_path):
    network, plans = tmp_path / "net.toml", tmp_path / "plans.toml"
    network.write_text(
        LAYERS.replace("}]", '}, { name = "b", input = [16, 6, 6], weight = [16, 16, 1, 1] }]')
    )
    plans.write_text(
        "[grad_weight]\nbase_m = 16\n[a.grad_weight]\nbase_m = 32\n[b.grad_input]\nbase_m = 32\n"
    )
    words = ("--workload", str(network), "--tiling", str(plans), "--cycles-only")
    unused = f"{plans}: not used, as this run makes none of them: "
    for asked, told in (
        ((), ""),  # a is the first layer, of which training makes grad_weight alone
        (("--mask", "input"), f"{unused}grad_weight, a.grad_weight\n"),
    ):
        assert main(["run", *words, *asked]) == 0
        assert capsys.readouterr().err == told
    assert main(["run", "b", *words, "--mask", "weight"]) == 0
    assert capsys.readouterr().err == f"{unused}a.grad_weight, b.grad_input\n"


def test_the_vendors_names_are_written_with_a_word_about_what_they_lack(answer, tmp_path, capsys):
    file = tmp_path / "entry.toml"
    words = (*CALL, "--mask", "weight", "--write-tiling", str(file), "--tiling-names", "vendor")
    assert main(words) == 0
    told = " ".join(capsys.readouterr().err.split())
    assert "the vendor's entries have no names for" in told
    assert "schedule: they stand there in ours" in told
    entry = tomllib.loads(file.read_text())["grad_weight"]
    assert {"baseM", "stepKa", "cl0Pbuffer", "usedCoreNum"} <= set(entry)
    assert "base_m" not in entry
    assert entry["schedule"] == "wgrad_fractals"
    told = [answer(*CALL, "--mask", "weight", "--json", *more) for more in ((), ("--tiling", str(file)))]
    before, after = (json.loads(text)["products"][0]["kernels"] for text in told)
    assert [kernel["cycles"] for kernel in after] == [kernel["cycles"] for kernel in before]


def test_the_report_folder_has_the_plans_of_each_product(answer, tmp_path):
    folder = tmp_path / "out"
    answer(*CALL, "--product", "910B", "--product", "910_95", "--out", str(folder), "--no-trace")
    for name in ("plans-910B2.toml", "plans-950PR_9589.toml"):
        made = tomllib.loads((folder / name).read_text())
        assert set(made) == {"grad_input", "grad_weight"}
    again = answer(*CALL, "--tiling", str(folder / "plans-910B2.toml"))
    assert "Tilings are" not in again  # of plans that the user gave nothing need be said


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ("--tiling", "serach"),
            "--tiling is 'serach'; it must be product, search, tuned, or a file .toml or .json",
        ),
        (("--tiling", "none.toml"), "none.toml: cannot be read"),
        (("--write-tiling", "x.txt"), "x.txt: a file of plans ends in .toml or .json, not in .txt"),
        (
            ("--write-tiling", "x.toml", "--product", "910B", "--product", "310P"),
            "is of one product, as plans",
        ),
        (
            ("--write-tiling", "x.toml", "--mask", "bias"),
            "no kernel of this run has a plan; ask for grad_input",
        ),
        (("--tiling-names", "vendor"), "--tiling-names goes with --write-tiling"),
    ],
)
def test_words_that_do_not_fit_are_told(refusal, words, told):
    assert told in refusal(*CALL, *words)


# --- schedules of the user's own

FILE = Path(__file__).parents[2] / "examples" / "04_your_own_schedule.py"


def test_a_class_of_a_file_makes_the_gradient(record):
    words = (*CALL[1:-1], "--mask", "input")
    usual, own = (record(*words, *more) for more in ((), ("--schedule", f"{FILE}:WeightsStay")))
    assert [kernels(made)["grad_input"]["plan"]["schedule"] for made in (usual, own)] == [
        *("dgrad", "weights_stay"),
    ]
    digests = [made["products"][0]["gradients"][0]["sha256"] for made in (usual, own)]
    assert digests[0] == digests[1]


def test_a_network_takes_a_class_of_a_file_in_other_processes(record, tmp_path):
    network = tmp_path / "net.toml"
    network.write_text(LAYERS)
    words = ("--workload", str(network), "--mask", "input", "--schedule", f"{FILE}:WeightsStay")
    [layer] = record(*words, "--workers", "2")["products"][0]["layers"]
    [plan] = (kernel["plan"] for kernel in layer["kernels"] if kernel["plan"])
    assert plan["schedule"] == "weights_stay"


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ("base_m = 1024\nbase_n = 1024\nbase_k = 1024", "nothing that is left open makes the tiles fit"),
        ("base_m = 16\nunit_flag = true", "unit_flag"),
    ],
)
def test_a_plan_of_a_file_that_does_not_fit_names_file_and_gradient(refusal, tmp_path, fields, told):
    file = tmp_path / "plans.toml"
    file.write_text(f'[grad_input]\nschedule = "dgrad"\n{fields}\n')
    said = refusal("run", "s5b1_3x3", "--cycles-only", "--tiling", str(file))
    assert said.startswith(f"ascendsim: {file}: tiling of grad_input")
    assert told in said


@pytest.mark.parametrize(
    ("text", "name", "told"),
    [
        (None, "A", "own.py: is no file; --schedule takes a name, or FILE.py:CLASS"),
        (
            "x = 1\n",
            "A",
            "own.py: has no schedule 'A', a class derived from ascendsim.Schedule; there is none",
        ),
        (
            "from ascendsim.ops.schedules import Dgrad\nclass Mine(Dgrad):\n    name = 'mine'\n",
            "Mien",
            "has no schedule 'Mien', a class derived from ascendsim.Schedule; did you mean Mine?",
        ),
        ("1 / 0\n", "A", "own.py: cannot be run: ZeroDivisionError: division by zero"),
    ],
)
def test_a_file_without_the_class_says_so(refusal, tmp_path, text, name, told):
    file = tmp_path / "own.py"
    if text:
        file.write_text(text)
    assert told in refusal(*CALL, "--schedule", f"{file}:{name}")


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("p.toml", "", "says no plan; it must hold a table for each gradient, as [grad_input]"),
        ("p.toml", "# nothing", "says no plan"),
        ("p.json", "{}", "says no plan"),
        ("p.toml", "[grad_weight]", "grad_weight is empty; give fields of a plan"),
        ("p.toml", "[s3b1_3x3.grad_weight]", "s3b1_3x3.grad_weight is empty"),
    ],
)
def test_a_file_that_says_no_plan_is_told(refusal, tmp_path, name, text, told):
    path = tmp_path / name
    path.write_text(text)
    # The run would be that without the file.
    assert told in " ".join(refusal("run", "s3b1_3x3", "--tiling", str(path)).split())


def test_a_pattern_finds_the_plan_of_the_one_layer_that_it_means(record, tmp_path):
    path = tmp_path / "p.toml"
    path.write_text("[s5b1_1x1a.grad_weight]\nbase_m = 32\n")
    product = record("s5b1_1*", "--mask", "weight", "--tiling", str(path))["products"][0]
    (plan,) = [kernel["plan"] for kernel in product["kernels"] if kernel["name"] == "grad_weight"]
    assert plan["base_m"] == 32


def test_one_chip_by_two_names_is_answered_once(capsys):
    words = ["run", "s5b1_1x1a", "--mask", "weight", "--json"]
    names = ["--product", "910B", "--product", "910B2", "--product", "910B3"]
    # 910B means the variant 910B2; 910B3 is another.
    assert main([*words, *names]) == 0
    out, err = capsys.readouterr()
    assert [product["variant"] for product in json.loads(out)["products"]] == ["910B2", "910B3"]
    assert err == "--product 910B2: is 910B2, as 910B is; answered once\n"


def test_two_chips_of_one_name_are_refused_beside_each_other(refusal, tmp_path):
    # Reports go by the name: "mine takes the least" would leave open which of the two.
    files = [tmp_path / folder / "mine.toml" for folder in "ab"]
    for cores, file in zip((18, 22), files, strict=True):
        file.parent.mkdir()
        figure = f'{{ value = {cores}, source = "test", confidence = "measured" }}'
        file.write_text(f'base = "910B2"\n[cores]\ncube = {figure}\n')
    words = [word for file in files for word in ("--product", str(file))]
    told = refusal("run", "s5b1_1x1a", "--mask", "weight", *words)
    assert f"{files[0]} and --product {files[1]} are two products that are both called mine" in told
    files[1].write_text('variant = "other"\n' + files[1].read_text())
    assert main(["run", "s5b1_1x1a", "--mask", "weight", "--cycles-only", *words]) == 0
