"""Does a row whose cells are no numbers cost that row alone, and is it told what stood there?"""

from dataclasses import replace

import pytest

from ascendsim.validate.compare import Case
from ascendsim.validate.rows import Row
from ascendsim.validate.run import compare_rows

GOOD = Row(
    *("mskpp-good", "910B", "910B1", "MOV GM_TO_L1", "float16", "", ""),
    *({"bytes": 1024}, {}, None, 173.0, {}, "a table", "real-hardware", ""),
)
LAYER = {"N": 1, "Cin": 16, "Hi": 8, "Wi": 8, "Cout": 16, "Kh": 3, "Kw": 3, "Ho": 8, "Wo": 8}
PLAIN_WINDOW = {"stride": [1, 1], "pad": [1, 1], "dilation": [1, 1], "groups": 1}
TILES = {"baseM": 128, "baseN": 256, "baseK": 128, "k_steps_inferred": 1, "tiles_on_core": 2}
SQUARE = {"M": 256, "K": 256, "N": 256}


def like(name, op, sizes, counters=None, **values):
    return replace(GOOD, id=name, op=op, sizes=sizes, counters=counters or {}, **values)


# One row of every kind that the tables have; each is compared as it stands.
KINDS = {
    "copy": GOOD,
    "rate": like("mskpp-rate", "MOV GM_TO_L1", {"bytes": 1024}, {"GiB_per_s": 50.0}, cycles=None),
    "derived": like("mskpp-step", "MOV GM_TO_L1", {"bytes": 1024}, {"cycles_per_transfer_derived": 12.5}),
    "load": like("mskpp-load", "LOAD L1_TO_L0A", {"repeat": 2}),
    "vector": like("mskpp-vec", "VEC VADD_FP16_FP16_FP16", {"repeat": 2}),
    "mmad": like("mskpp-mmad", "MMAD", {"M": 16, "K": 16, "N": 16}),
    "one-copy": like("kir-a3-gmub", "GM->UB", {"bytes": 4096}, us=0.2),
    "sample": like("ad-dc-l1", "GM->L1", {"desc": "tile 64x64"}, us=300.0),
    "stream": like(
        *("kir-950dt-GM_UB-4-1", "GM_UB", {"working_set_MiB": 4, "cores": 1}),
        chip_variant="950DT_9582",
        us=13000.0,
    ),
    "working-set": like(
        *("kir-950dt-ws-read-8", "read", {"working_set_MiB": 8}, {"TB_per_s": 5.0}),
        chip_variant="950DT_9582",
        us=100.0,
    ),
    "product": like(
        *("mm", "MatMulV3", SQUARE | {"batch": 1}),
        {"block_dim": 4, "aic_mac_time(us)": 3.0, "TLOAD_pct": 50},
        us=10.0,
    ),
    "grid": like("pto-gemm", "GEMM", SQUARE, {"base": "64x64x64", "split": "4x4"}, us=10.0),
    "tiles": like(
        *("cz-r1", "tiles", TILES),
        {"cube_us": 1.2, "mte1_us": 0.8, "fixpipe_us": 1.8},
        chip_variant="910B3",
        us=20.0,
    ),
    "gradient": like("conv", "Conv2DBackpropInput", LAYER, window=PLAIN_WINDOW, us=20.0),
}
# Kind, column, cell, what stands in it instead (GONE: nothing), words of the reason.
GONE = object()
MALFORMED = [
    ("copy", "sizes", "bytes", GONE, "its sizes are {}; they must tell bytes or repeat"),
    ("copy", "sizes", "bytes", 0, "its bytes is 0"),
    ("copy", "sizes", "bytes", 10**400, "its bytes is 1000"),
    ("rate", "counters", "GiB_per_s", "x", "its GiB_per_s is 'x'"),
    ("rate", "counters", "GiB_per_s", -1.5, "its GiB_per_s is -1.5"),
    ("rate", "sizes", "bytes", GONE, "they must tell bytes or repeat"),
    ("load", "sizes", "repeat", GONE, "its repeat is None"),
    ("load", "sizes", "repeat", 2.5, "its repeat is 2.5"),
    ("vector", "sizes", "repeat", True, "its repeat is True"),
    ("mmad", "sizes", "M", "a", "its M is 'a'"),
    ("mmad", "sizes", "K", GONE, "its K is None"),
    ("mmad", "dtype", None, "int4", "operands of int4 are not multiplied on 910B1"),
    ("mmad", "dtype", None, "", "operands of no format"),
    ("derived", "counters", "cycles_per_transfer_derived", 0, "cycles_per_transfer_derived is 0"),
    ("one-copy", "sizes", "bytes", "many", "its bytes is 'many'"),
    ("sample", "sizes", "desc", "tile 0x64", "its tile's side is 0"),
    ("sample", "sizes", "desc", "tile 9999x9999", "L1 of 910B1 holds"),
    ("stream", "sizes", "working_set_MiB", GONE, "its working_set_MiB is None"),
    ("stream", "sizes", "cores", 0, "its cores is 0"),
    ("stream", "sizes", "cores", 1000, "its cores are 1000; 950DT_9582 has 64"),
    ("working-set", "sizes", "working_set_MiB", GONE, "its working_set_MiB is None"),
    ("working-set", "sizes", "working_set_MiB", 1e-6, "of a working set of 1;"),
    ("working-set", "counters", "TB_per_s", GONE, "its TB_per_s is None"),
    ("working-set", "counters", "TB_per_s", 1e-9, "it copies 0 bytes"),
    ("product", "sizes", "M", 0, "its M is 0"),
    ("product", "sizes", "M", 10**9, "256,000,000,000 elements; no chip's memory"),
    ("product", "sizes", "batch", 10**9, "no chip's memory"),
    ("tiles", "sizes", "k_steps_inferred", 10**9, "no chip's memory"),
    ("gradient", "sizes", "N", 10**9, "no chip's memory"),
    ("stream", "sizes", "working_set_MiB", 10**9, "no chip's memory"),
    ("product", "sizes", "K", "many", "its K is 'many'"),
    ("product", "sizes", "batch", "x", "its batch is 'x'"),
    ("product", "counters", "block_dim", -3, "its block_dim is -3"),
    ("product", "counters", "block_dim", "24", "its block_dim is '24'"),
    ("product", "counters", "aic_mac_time(us)", -1, "its aic_mac_time(us) is -1"),
    ("product", "counters", "TLOAD_pct", -1, "its TLOAD_pct is -1"),
    ("product", "dtype", None, "int4", "operands of int4"),
    ("grid", "counters", "base", "0x0x0", "its base is '0x0x0'"),
    ("grid", "counters", "base", "64x64", "its base is '64x64'"),
    ("grid", "counters", "split", "5x5", "used_cores is 25, but 910B1 has 24 cores"),
    ("grid", "counters", "split", "4x0", "its split is '4x0'"),
    ("tiles", "sizes", "baseM", GONE, "its baseM is None"),
    ("tiles", "sizes", "k_steps_inferred", "one", "its k_steps_inferred is 'one'"),
    ("tiles", "sizes", "tiles_on_core", 9, "its tiles_on_core is 9; cores of such a run take 1 or 2"),
    ("tiles", "counters", "cube_us", GONE, "gives no busy time of M"),
    ("tiles", "counters", "mte1_us", 0, "gives no busy time of MTE1"),
    ("gradient", "sizes", "Cin", "many", "its Cin is 'many'"),
    ("gradient", "sizes", "Kw", GONE, "its Kw is None"),
    ("gradient", "window", "stride", GONE, "its stride is None"),
    ("gradient", "window", "stride", 0, "its stride is 0"),
    ("gradient", "window", "stride", [], "its stride is []"),
    ("gradient", "window", "dilation", [1, "a"], "its dilation is 'a'"),
    ("gradient", "window", "pad", [-1, 1], "its padding is -1"),
    ("gradient", "window", "groups", 0, "its groups is 0"),
    ("gradient", "dtype", None, "int4", "operands of int4 are not convolved on 910B1"),
]


def malformed(kind, column, cell, value):
    row = KINDS[kind]
    if cell is None:
        return replace(row, **{column: value})
    cells = dict(getattr(row, column)) | {cell: value}
    if value is GONE:
        del cells[cell]
    return replace(row, **{column: cells})


@pytest.mark.parametrize(
    ("kind", "column", "cell", "value", "reason"),
    MALFORMED,
    ids=[f"{kind}-{cell or column}-{number}" for number, (kind, column, cell, *_) in enumerate(MALFORMED)],
)
def test_a_malformed_row_says_what_was_got_and_the_next_is_compared(kind, column, cell, value, reason):
    bad = malformed(kind, column, cell, value)
    found = compare_rows([bad, replace(GOOD, id="mskpp-next")])
    assert [case.id for case in found.cases] == ["mskpp-next"]
    ((name, told),) = [(row.id, row.reason) for row in found.unusable]
    assert name == bad.id
    assert reason in told


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_row_with_its_numbers_is_compared(kind):
    found = compare_rows([KINDS[kind]])
    assert found.unusable == ()
    assert found.cases
    assert all(isinstance(case, Case) and case.estimated > 0 for case in found.cases)


def test_every_kind_has_a_malformed_row():
    assert {kind for kind, *_ in MALFORMED} == set(KINDS)


def test_a_first_generation_core_multiplies_no_single_precision():
    row = replace(KINDS["product"], chip_variant="first-generation 910", dtype="float32")
    (found,) = compare_rows([row]).unusable
    assert found.reason == "operands of float32 are not multiplied on 910B_old_1001"


def test_words_among_the_counters_tell_nothing():
    row = replace(KINDS["product"], counters={"aic_mac_time(us)": "N/A"})
    (found,) = compare_rows([row]).cases
    assert found.counters == {}
