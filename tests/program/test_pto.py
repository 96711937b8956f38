"""Do programs of PTO mean, cost and wait as they say, and is all else refused with its place?"""

import random
import re
import runpy
from pathlib import Path

import numpy as np
import pytest

from ascendsim import load_profile
from ascendsim.errors import AscendSimError, CapacityError, ProgramError
from ascendsim.functional import run_kernel
from ascendsim.instructions.cube import Mmad
from ascendsim.instructions.elementwise import Binary
from ascendsim.instructions.flags import SetFlag, WaitFlag
from ascendsim.ops.checks import check_flags
from ascendsim.pto import read_pto
from ascendsim.pto.kernel import subset
from ascendsim.pto.text import tokens_of
from ascendsim.timing.kernel import measure_kernel
from ascendsim.timing.times import occupation

ROOT = Path(__file__).parents[2]
EXAMPLE = runpy.run_path(str(ROOT / "examples" / "12_kernels_of_pto.py"))
KERNELS = {path.stem: path.read_text() for path in sorted((ROOT / "examples" / "kernels").glob("*.pto"))}
BLOCKS = {"vadd": 1, "add": 20, "gemm": 24}
PROFILE = load_profile("910B2")
UB = "!pto.tile_buf<loc=vec, dtype={}, rows={}, cols={}, blayout=row_major, slayout=none_box>"


def run(kernel, *given, **how):
    """Return the output of a kernel."""
    [output] = [name for name, tensor in kernel.tensors.items() if tensor.role == "output"]
    names = [name for name in kernel.tensors if name != output]
    gm = dict(zip(names, given, strict=True))
    run_kernel(kernel, gm, **how)
    return gm[output]


def busy(kernel):
    times = measure_kernel(kernel, PROFILE)
    return {pipe: spent.busy for pipe, spent in occupation(times, kernel.phases[0].work[0].core).items()}


def given(kernel):
    return [tensor.shape for tensor in kernel.tensors.values() if tensor.role == "input"]


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_is_right_in_every_order_and_takes_equal_cycles_on_both_engines(name):
    blocks = min(BLOCKS[name], 4)
    kernel = read_pto(KERNELS[name], PROFILE, blocks=blocks)
    x, y = EXAMPLE["drawn"](*given(kernel))
    due = x[:, :] @ y.T if name == "gemm" else x + y
    for order in ("program", 7):
        got = run(kernel, x, y, order=order)
        if name == "gemm":  # four blocks make all rows of the first 256 columns
            assert np.isnan(got[:, 256:]).all()
            got, due = got[:, :256], due[:, :256]
        assert np.array_equal(got, due)
    engines = [measure_kernel(kernel, PROFILE, engine=engine).cycles for engine in ("compiled", "simpy")]
    assert engines[0] == engines[1]


def test_half_rounds_once():
    kernel = read_pto(KERNELS["add"], PROFILE, blocks=20)
    x, y = (np.float16(np.random.default_rng(seed).standard_normal((20, 2048))) for seed in (1, 2))
    assert kernel.tensors["x"].shape == x.shape
    assert np.array_equal(run(kernel, np.float32(x), np.float32(y)), np.float32(x + y))


def test_a_sum_of_1024_takes_16_repeats():
    kernel = read_pto(KERNELS["vadd"], PROFILE)
    assert busy(kernel)["V"] == 16 * PROFILE.vector.repeat_cycles["binary"]
    [work] = kernel.phases[0].work
    assert work.core.kind == "vector"
    assert [slot.at for slot in work.build().slots] == [-1, -1, -1]


def test_the_product_keeps_the_cube_busy_for_its_fractals_heads_and_flags():
    kernel = read_pto(KERNELS["gemm"], PROFILE, blocks=24)
    assert (len(kernel.phases[0].work), kernel.macs) == (24, 512 * 2048 * 1536)
    flags = 2 * 32 + 2 + 1  # a wait and a set for each step, two before them, one behind
    assert busy(kernel)["M"] == 32 * (8 * 4 * 16 + PROFILE.cube.mmad_head_cycles) + flags
    assert busy(kernel)["M"] == pytest.approx(16_400, rel=0.01)  # as its description reckons


def without_flags(text):
    return re.sub(r"\n *pto\.(set|wait)_flag\S* \[.*\]", "", text)


@pytest.mark.parametrize("name", ["add", "gemm"])
def test_flags_order_what_tiles_ask_for(name):
    flagged, plain = (
        read_pto(text, PROFILE, blocks=1) for text in (KERNELS[name], without_flags(KERNELS[name]))
    )
    programs = [kernel.phases[0].work[0].build() for kernel in (flagged, plain)]
    assert programs[0].own_slots >= 0 > programs[1].own_slots
    kept = [type(made) for made in programs[0].instructions if not isinstance(made, SetFlag | WaitFlag)]
    assert kept == [type(made) for made in programs[1].instructions]
    core = flagged.phases[0].work[0].core.kind
    found = check_flags(programs[0], PROFILE, core, most=1)
    assert found.races == ()
    start = PROFILE.scalar.start_cycles
    assert found.slot_cycles == measure_kernel(plain, PROFILE).cycles - start < found.cycles


def test_a_forgotten_flag_is_a_race_and_a_wait_too_many_a_deadlock_of_a_line():
    forgotten = re.sub(r"\n *pto\.\w+_flag_dyn \[<PIPE_MTE2>, <PIPE_V>.*\]", "", KERNELS["add"])
    kernel = read_pto(forgotten, PROFILE)
    with pytest.raises(ProgramError, match="reads it, ordered by nothing"):
        run(kernel, *EXAMPLE["drawn"](*given(kernel)))
    never = KERNELS["add"].replace(
        "pto.set_flag_dyn [<PIPE_MTE3>, <PIPE_V>", "pto.set_flag_dyn [<PIPE_V>, <PIPE_MTE3>"
    )
    with pytest.raises(
        ProgramError, match=r"deadlock: instruction \d+ \(line \d+\) \(WaitFlag\(MTE3, V, 0\)"
    ):
        read_pto(never, PROFILE)


def test_an_event_that_is_raised_again_before_its_wait_has_taken_it_is_refused():
    """The public product takes events 0 and 1 in every step."""
    text = KERNELS["gemm"].replace("<PIPE_MTE2>, <PIPE_MTE1>, %p", "<PIPE_MTE2>, <PIPE_MTE1>, <EVENT_ID0>")
    kernel = read_pto(
        text.replace("_flag_dyn [<PIPE_MTE2>, <PIPE_MTE1>, <", "_flag [<PIPE_MTE2>, <PIPE_MTE1>, <"), PROFILE
    )
    with pytest.raises(ProgramError, match="raises its flag again"):
        run(kernel, *EXAMPLE["drawn"](*given(kernel)))


def on_a_row(body, dtype="f32", out="f32"):
    """Return a program of one vector core: x comes into %a, %z leaves; 1 x 64."""
    view = "pto.make_tensor_view {}, shape = [%n] strides = [%one] : !pto.tensor_view<?x{}>"
    part = (
        "pto.partition_view {}, offsets = [%zero], sizes = [%n] : !pto.tensor_view<?x{}> -> !pto.part<64x{}>"
    )
    return f"""module {{ func.func @row(%x: !pto.ptr<{dtype}>, %y: !pto.ptr<{out}>) {{
    %zero = arith.constant 0 : index
    %one = arith.constant 1 : index
    %n = arith.constant 64 : index
    %vx = {view.format("%x", dtype)}
    %vy = {view.format("%y", out)}
    %px = {part.format("%vx", dtype, dtype)}
    %py = {part.format("%vy", out, out)}
    %a = pto.alloc_tile : {UB.format(dtype, 1, 64)}
    %z = pto.alloc_tile : {UB.format(out, 1, 64)}
    pto.tload ins(%px : !pto.partition_tensor_view<64x{dtype}>) outs(%a : <loc=vec>)
    {body}
    pto.tstore ins(%z : <loc=vec>) outs(%py : !pto.partition_tensor_view<64x{out}>)
    return }} }}"""


@pytest.mark.parametrize(
    ("body", "due"),
    [
        ("pto.tsub ins(%a, %a : <loc=vec>) outs(%z : <loc=vec>)", lambda x: x - x),
        ("pto.tmul ins(%a, %a : <loc=vec>) outs(%z : <loc=vec>)", lambda x: x * x),
        ("pto.TMAX ins(%a, %a : <loc=vec>) outs(%z : <loc=vec>)", lambda x: x),
        ("pto.tmin ins(%a, %a : <loc=vec>) outs(%z : <loc=vec>)", lambda x: x),
        (
            "%s = arith.constant 0.1 : f32 pto.tadds ins(%a, %s : <loc=vec>, f32) outs(%z : <loc=vec>)",
            lambda x: x + np.float32(0.1),
        ),
        (
            "%s = arith.constant -3.0 : f32 pto.tmuls ins(%a, %s : <loc=vec>, f32) outs(%z : <loc=vec>)",
            lambda x: -3 * x,
        ),
        (
            "%s = arith.constant 0.0 : f32 pto.tmaxs ins(%a, %s : <loc=vec>, f32) outs(%z : <loc=vec>)",
            lambda x: np.maximum(x, 0),
        ),
        (
            "%s = arith.constant 0.5 : f32 pto.tmins ins(%a, %s : <loc=vec>, f32) outs(%z : <loc=vec>)",
            lambda x: np.minimum(x, 0.5),
        ),
        ("pto.texp ins(%a : <loc=vec>) outs(%z : <loc=vec>)", lambda x: np.float32(np.exp(np.float64(x)))),
        ("pto.tdiv ins(%a, %a : <loc=vec>) outs(%z : <loc=vec>)", lambda x: x / x),
        ("pto.tabs ins(%a : <loc=vec>) outs(%z : <loc=vec>)", np.abs),
        ("pto.trelu ins(%a : <loc=vec>) outs(%z : <loc=vec>)", lambda x: np.where(x > 0, x, 0)),
        (
            "pto.tabs ins(%a : <loc=vec>) outs(%a : <loc=vec>) "
            "pto.tsqrt ins(%a : <loc=vec>) outs(%z : <loc=vec>)",
            lambda x: np.sqrt(np.abs(x)),
        ),
        (
            "pto.tabs ins(%a : <loc=vec>) outs(%a : <loc=vec>) "
            "pto.tlog ins(%a : <loc=vec>) outs(%z : <loc=vec>)",
            lambda x: np.log(np.abs(np.float64(x))),
        ),
        (
            "pto.tabs ins(%a : <loc=vec>) outs(%a : <loc=vec>) "
            "pto.trsqrt ins(%a : <loc=vec>) outs(%z : <loc=vec>)",
            lambda x: 1 / np.sqrt(np.abs(np.float64(x))),
        ),
        (
            "%s = arith.constant 0.3 : f32 pto.tmul ins(%a, %a : <loc=vec>) outs(%z : <loc=vec>)"
            " pto.taxpy ins(%a, %s : <loc=vec>, f32) outs(%z : <loc=vec>)",
            lambda x: x * x + x * np.float32(0.3),
        ),
    ],
)
def test_an_operation_means_what_numpy_says(body, due):
    x = np.random.default_rng(3).standard_normal((1, 64), np.float32)
    got = run(read_pto(on_a_row(body), PROFILE), x)
    assert np.array_equal(got.view(np.uint32), np.float32(due(x)).view(np.uint32))


@pytest.mark.parametrize(("word", "due"), [("sum", np.sum), ("max", np.max), ("min", np.min)])
def test_rows_are_reduced_to_a_column(word, due):
    column = UB.format("f32", 8, 1).replace("row_major, slayout", "col_major, slayout")
    text = f"""module {{ func.func @rows(%x: !pto.ptr<f32>, %y: !pto.ptr<f32>) {{
    %c0 = arith.constant 0 : index  %c1 = arith.constant 1 : index
    %c8 = arith.constant 8 : index  %c128 = arith.constant 128 : index
    %vx = pto.make_tensor_view %x, shape = [%c8, %c128], strides = [%c128, %c1] : !pto.tensor_view<?x?xf32>
    %vy = pto.make_tensor_view %y, shape = [%c8, %c1], strides = [%c1, %c1] : !pto.tensor_view<?x?xf32>
    %px = pto.partition_view %vx, offsets = [%c0, %c0], sizes = [%c8, %c128] : !pto.tensor_view<?x?xf32>
    %py = pto.partition_view %vy, offsets = [%c0, %c0], sizes = [%c8, %c1] : !pto.tensor_view<?x?xf32>
    %a = pto.alloc_tile : {UB.format("f32", 8, 128)}
    %t = pto.alloc_tile : {UB.format("f32", 8, 64)}
    %z = pto.alloc_tile : {column}
    pto.tload ins(%px : !pto.partition_tensor_view<8x128xf32>) outs(%a : <loc=vec>)
    pto.trow{word} ins(%a, %t : <loc=vec>) outs(%z : <loc=vec>)
    pto.tstore ins(%z : <loc=vec>) outs(%py : !pto.partition_tensor_view<8x1xf32>)
    return }} }}"""
    kernel = read_pto(text, PROFILE)
    [x] = EXAMPLE["drawn"]((8, 128))
    assert np.array_equal(run(kernel, x), due(x, axis=1, keepdims=True))
    reduce = "reduce_add_32bit" if word == "sum" else "reduce_extreme"
    repeats = PROFILE.vector.repeat_cycles
    waited = PROFILE.vector.latency_cycles
    assert busy(kernel)["V"] == 8 * repeats["binary"] + 8 * repeats[reduce] + waited
    with pytest.raises(ProgramError, match="8 x 1 of float32 on one side, 8 x 64"):
        read_pto(text.replace("outs(%z : <loc=vec>)", "outs(%t : <loc=vec>)", 1), PROFILE)
    with pytest.raises(ProgramError, match="declared as 1024"):
        run(read_pto(text.replace("rows=8, cols=64", "rows=4, cols=64"), PROFILE), x)


FUSED = """module {
    func.func @fused(%x: !pto.ptr<f16>, %w: !pto.ptr<f16>, %b: !pto.ptr<f32>, %y: !pto.ptr<f32>) {
    %c0 = arith.constant 0 : index  %c1 = arith.constant 1 : index  %c32 = arith.constant 32 : index
    {parts}
    %tx = pto.alloc_tile : {mat}<loc=mat, dtype=f16, rows=32, cols=32, slayout=row_major>
    %tw = pto.alloc_tile : {mat}<loc=mat, dtype=f16, rows=32, cols=32, slayout=row_major>
    %th = pto.alloc_tile : {mat}<loc=mat, dtype=f16, rows=32, cols=32, slayout=row_major>
    %tb = pto.alloc_tile : {mat}<loc=mat, dtype=f32, rows=1, cols=32, slayout=none_box>
    %table = pto.alloc_tile : {mat}<loc=bias, dtype=f32, rows=1, cols=32, slayout=none_box>
    %l = pto.alloc_tile : {mat}<loc=left, dtype=f16, rows=32, cols=32, slayout=row_major>
    %r = pto.alloc_tile : {mat}<loc=right, dtype=f16, rows=32, cols=32, slayout=row_major>
    %c = pto.alloc_tile : {mat}<loc=acc, dtype=f32, rows=32, cols=32, slayout=row_major>
    pto.tload ins(%px : <f16>) outs(%tx : <loc=mat>)
    pto.tload ins(%pw : <f16>) outs(%tw : <loc=mat>)
    pto.tload ins(%pb : <f32>) outs(%tb : <loc=mat>)
    pto.tmov ins(%tb : <loc=mat>) outs(%table : <loc=bias>)
    pto.tmov ins(%tx : <loc=mat>) outs(%l : <loc=left>)
    pto.tmov ins(%tw : <loc=mat>) outs(%r : <loc=right>)
    pto.tmatmul.bias ins(%l, %r, %table : <loc=left>, <loc=right>, <loc=bias>) outs(%c : <loc=acc>)
    pto.tmov ins(%c : <loc=acc>) outs(%th : <loc=mat>)
    pto.tmov ins(%th : <loc=mat>) outs(%l : <loc=left>)
    pto.tmatmul ins(%l, %r : <loc=left>, <loc=right>) outs(%c : <loc=acc>)
    pto.tstore ins(%c : <loc=acc>) outs(%py : <f32>)
    return } }""".replace("{mat}", "!pto.tile_buf").replace(
    "{parts}",
    "".join(
        f"%v{name} = pto.make_tensor_view %{name}, shape = [%{rows}, %c32], strides = [%c32, %c1] : !pto.v<f>"
        f" %p{name} = pto.partition_view %v{name}, offsets = [%c0, %c0], sizes = [%{rows}, %c32] : !pto.v<f> "
        for name, rows in (("x", "c32"), ("w", "c32"), ("b", "c1"), ("y", "c32"))
    ),
)


def test_a_product_with_a_bias_is_multiplied_without_leaving_the_core():
    kernel = read_pto(FUSED, PROFILE)
    x, w, b = EXAMPLE["drawn"]((32, 32), (32, 32), (1, 32))
    assert np.array_equal(run(kernel, x, w, b, order=3), (x @ w + b) @ w)
    assert (kernel.macs, kernel.compute_dtype) == (2 * 32**3, "float16")
    assert "left at nothing" in kernel.note
    assert "not published: reading the bias table" in kernel.note
    with pytest.raises(ProgramError, match=r"pto\.tmov moves L0C to L0A; L0C goes to L1"):
        read_pto(FUSED.replace("ins(%th : <loc=mat>)", "ins(%c : <loc=acc>)"), PROFILE)


def test_a_cast_rounds_to_even():
    text = on_a_row(
        "pto.tcvt ins(%a {rmode = #pto.round_mode<CAST_RINT>} : <loc=vec>) outs(%z : <loc=vec>)", out="f16"
    )
    x = np.random.default_rng(4).standard_normal((1, 64), np.float32)
    assert np.array_equal(run(read_pto(text, PROFILE), x), np.float32(np.float16(x)))
    with pytest.raises(ProgramError, match=r"line 12, column 5: pto.tcvt rounds by .*CAST_FLOOR"):
        read_pto(text.replace("RINT", "FLOOR"), PROFILE)


@pytest.mark.parametrize("given", ["f16", "bf16"])
def test_a_cast_widens(given):
    """Small whole numbers are numbers of both formats."""
    text = on_a_row("pto.tcvt ins(%a : <loc=vec>) outs(%z : <loc=vec>)", dtype=given)
    [x] = EXAMPLE["drawn"]((1, 64))
    assert np.array_equal(run(read_pto(text, PROFILE), x), x)


def test_a_window_of_a_tile_is_multiplied():
    """Windows of rows and of columns, of tiles by rows and by columns; without flags and sections."""
    mat = "!pto.tile_buf<loc={}, dtype=f16, rows={}, cols={}, blayout=col_major, slayout=row_major>"
    text = f"""module {{ func.func @part(%x: !pto.ptr<f16>, %y: !pto.ptr<f16>, %z: !pto.ptr<f32>) {{
    %c0 = arith.constant 0 : index  %c1 = arith.constant 1 : index  %c16 = arith.constant 16 : index
    %c32 = arith.constant 32 : index  %c48 = arith.constant 48 : index
    %vx = pto.make_tensor_view %x, shape = [%c48, %c32], strides = [%c32, %c1] : !pto.tensor_view<?x?xf16>
    %vy = pto.make_tensor_view %y, shape = [%c32, %c48], strides = [%c1, %c32] : !pto.tensor_view<?x?xf16>
    %vz = pto.make_tensor_view %z, shape = [%c32, %c16], strides = [%c16, %c1] : !pto.tensor_view<?x?xf32>
    %px = pto.partition_view %vx, offsets = [%c0, %c0], sizes = [%c48, %c32] : !pto.tensor_view<?x?xf16>
    %py = pto.partition_view %vy, offsets = [%c0, %c0], sizes = [%c32, %c48] : !pto.tensor_view<?x?xf16>
    %pz = pto.partition_view %vz, offsets = [%c0, %c0], sizes = [%c32, %c16] : !pto.tensor_view<?x?xf32>
    %tx = pto.alloc_tile : {mat.format("mat", 48, 32)}
    %ty = pto.alloc_tile : {mat.format("mat", 32, 48)}
    %l = pto.alloc_tile : {mat.format("left", 32, 16)}
    %r = pto.alloc_tile : {mat.format("right", 16, 16)}
    %c = pto.alloc_tile : {mat.format("acc", 32, 16).replace("f16", "f32")}
    pto.tload ins(%px : !pto.partition_tensor_view<48x32xf16>) outs(%tx : <loc=mat>)
    pto.tload ins(%py : !pto.partition_tensor_view<32x48xf16>) outs(%ty : <loc=mat>)
    pto.textract ins(%tx, %c16, %c16 : <loc=mat>, index, index) outs(%l : <loc=left>)
    pto.textract ins(%ty, %c16, %c32 : <loc=mat>, index, index) outs(%r : <loc=right>)
    pto.tmatmul ins(%l, %r : <loc=left>, <loc=right>) outs(%c : <loc=acc>)
    pto.tstore ins(%c : <loc=acc>) outs(%pz : !pto.partition_tensor_view<32x16xf32>)
    return }} }}"""
    kernel = read_pto(text, PROFILE)
    x, y = EXAMPLE["drawn"]((48, 32), (48, 32))
    assert np.array_equal(run(kernel, x, y), x[16:, 16:] @ y.T[16:, 32:])
    [made] = [made for made in kernel.phases[0].work[0].build().instructions if isinstance(made, Mmad)]
    assert (made.m, made.k, made.n, kernel.phases[0].work[0].core.kind) == (32, 16, 16, "cube")


@pytest.mark.parametrize(
    ("name", "old", "new", "words"),
    [
        (
            "vadd",
            "pto.tadd ",
            "pto.tprelu ",
            r"line 20, column 7: pto.tprelu is not in the subset; it has tload, tstore",
        ),
        (
            "vadd",
            "pto.tadd ",
            "vector.add ",
            r"line 20, column 7: vector.add is not in the subset; docs/",
        ),
        (
            "vadd",
            "pto.tadd ",
            "pto.barrier_sync ",
            r"line 20, column 7: pto.barrier_sync is not in the subset",
        ),
        (
            "vadd",
            "pto.tstore ins(%s : !pto.tile_buf<loc=vec, dtype=f32>) outs(%pz",
            "pto.tload ins(%pz : !pto.tile_buf<loc=vec, dtype=f32>) outs(%s",
            r"line 3, column 13: vadd has no result: nothing goes to GM; add a pto.tstore",
        ),
        (
            "vadd",
            "pto.tstore ins(%s : !pto.tile_buf<loc=vec, dtype=f32>) outs(%pz",
            "pto.tstore ins(%pz : !pto.tile_buf<loc=vec, dtype=f32>) outs(%s",
            r"line 21, column 7: pto.tstore reads GM; in the subset it reads UB or L0C",
        ),
        (
            "vadd",
            "pto.tadd ins(%a,",
            "pto.tadd ins(%s,",
            r"pto.tadd reads UB:s\(4096 B\), which nothing has written; load it, or compute it, before",
        ),
        ("vadd", "%a, %b :", "%a :", r"pto.tadd reads UB; in the subset it reads UB UB"),
        (
            "vadd",
            "ins(%s :",
            "ins(%missing :",
            r"line 21, column 7: pto.tstore uses %missing, which nothing makes",
        ),
        (
            "vadd",
            "rows=32, cols=32, v_row=?",
            "rows=32, cols=24, v_row=?",
            r"a tile of 32 x 24 holds 32 x 32",
        ),
        ("vadd", "loc=ub, dtype=f32, rows=32", "loc=fb, dtype=f32, rows=32", r"a tile has loc=fb"),
        (
            "gemm",
            "outs(%left : ",
            "outs(%sum : ",
            "writes L0C; in the subset it writes L0A or L0B or BT or L1",
        ),
        (
            "vadd",
            "sizes = [%n, %n] : !pto.tensor_view<2xf32>",
            "sizes = [%n, %c1] : !pto.tensor_view<2xf32>",
            "32 x 1 of float32 on one side",
        ),
        (
            "vadd",
            "offsets = [%c0, %c0]",
            "offsets = [%c1, %c0]",
            r"a part begins at \(1, 0\) with sizes \(32, 32\)",
        ),
        ("vadd", "strides = [%n, %c1]", "strides = [%n, %n]", "rows, or columns, lie end to end"),
        ("vadd", "pto.tload ins(%px", "pto.tload ins(%px {l2 = 1}", "pto.tload has l2; no attribute"),
        ("vadd", "    return", "    ?", r"line 23, column 5: \? is read where a word is due"),
        ("vadd", "    return", "    ;", r"line 23, column 5: ';' begins nothing that is known here"),
        ("vadd", "rows=32, cols=32, v_row=32, v_col=32,\n", "rows=32,\n", "says no cols"),
        (
            "add",
            "arith.constant 0x8100",
            "arith.constant 0x8110",
            "begins at 0x8110; slots of UB of 910B2 start at multiples of 32",
        ),
        ("add", "arith.constant 0x8100", "arith.constant 0x200", "of which UB:0x0.* at 0x0 has some"),
        (
            "add",
            "scf.for %p = %c0 to %c2 step %c1",
            "scf.while %p = %c0 to %c2 step %c1",
            "scf.while is not in the subset; of scf it has for and if",
        ),
        ("add", "to %c2 step %c1", "to %c2 step %c0", "a loop has step 0; a step is 1 or more"),
        ("add", "divsi %first, %step", "divsi %first, %c0", "arith.divsi divides by 0"),
        (
            "add",
            "[<PIPE_V>, <PIPE_MTE2>, %p]",
            "[<PIPE_V>, <PIPE_S>, %p]",
            "names PIPE_V, PIPE_S, 0; pipes are",
        ),
        (
            "add",
            "[<PIPE_V>, <PIPE_MTE2>, %p]",
            "[<PIPE_V>, <PIPE_MTE2>, %row]",
            "has event 2048; 910B2 has 0 to 7",
        ),
        (
            "gemm",
            "outs(%left : ",
            "outs(%right : ",
            "takes 64 x 256 of float16 from 0, 0 of a tile of 128 x 64",
        ),
        (
            "gemm",
            "pto.tmatmul.acc ins(%sum, ",
            "pto.tmatmul.acc ins(%left, ",
            "in the subset it reads L0C L0A L0B",
        ),
    ],
)
def test_what_is_not_in_the_subset_is_refused_with_its_place(name, old, new, words):
    assert old in KERNELS[name]
    with pytest.raises(ProgramError, match=words) as refused:
        read_pto(KERNELS[name].replace(old, new), PROFILE)
    assert re.match(r"line \d+, column \d+: ", str(refused.value))


GUARDED = KERNELS["gemm"].replace(
    "pto.section.cube {", "pto.section.cube {\n %go = arith.cmpi sge, %block, %c1 : index\n scf.if %go {", 1
)
GUARDED = "    } }\n    return".join(GUARDED.rsplit("    }\n    return", 1))


def test_a_first_block_that_does_nothing_leaves_the_arithmetic_of_the_others():
    whole, guarded = (read_pto(text, PROFILE, blocks=2) for text in (KERNELS["gemm"], GUARDED))
    assert (guarded.math, guarded.compute_dtype) == (whole.math, whole.compute_dtype)
    assert 0 < guarded.macs == whole.macs // 2
    x, y = (np.random.default_rng(seed).standard_normal(shape) for seed, shape in enumerate(given(whole)))
    x, y = (np.float32(np.float16(own)) for own in (x, y))
    both = [run(kernel, x, y)[128:256, :256] for kernel in (whole, guarded)]
    assert np.array_equal(*both)


def in_another_format(text, second):
    """Return gemm whose blocks from 1 on do as `second` makes of its text."""
    begin, end = text.index("      %va ="), text.rindex("    }\n    return")
    body = text[begin:end]
    guarded = (
        f"%go = arith.cmpi eq, %block, %c0 : index scf.if %go {{\n{body} }} else {{\n{second(body)} }}\n"
    )
    return text[:begin] + guarded + text[end:]


def test_products_in_two_formats_are_refused_with_their_place():
    text = KERNELS["gemm"].replace("%c: !pto", "%d: !pto.ptr<bf16>, %e: !pto.ptr<bf16>, %c: !pto")
    text = in_another_format(
        text,
        lambda body: (
            body.replace("f16", "bf16").replace("view %a,", "view %d,").replace("view %b,", "view %e,")
        ),
    )
    assert read_pto(text, PROFILE, blocks=1).compute_dtype == "float16"
    with pytest.raises(
        ProgramError, match=r"^line \d+, column \d+: pto.tmatmul multiplies as bfloat16, one .* as float16"
    ):
        read_pto(text, PROFILE, blocks=2)


def test_stores_that_overflow_in_two_ways_are_refused_with_their_place(monkeypatch):
    text = KERNELS["gemm"].replace("%c: !pto.ptr<f32>", "%c: !pto.ptr<f16>, %d: !pto.ptr<bf16>")
    text = text.replace("view %vc, offsets", "view %vc , offsets").replace("<?x?xf32>", "<?x?xf16>")
    text = text.replace("128x256xf32", "128x256xf16")

    def second(body):
        head, c = body.split("      %vc =", 1)
        return head + "      %vc =" + c.replace("view %c,", "view %d,").replace("128x256xf16", "128x256xbf16")

    text = in_another_format(text, second)
    assert read_pto(text, PROFILE, blocks=2).math.overflow == "ieee"
    rules = {"float16": "saturate", "bfloat16": "ieee"}
    monkeypatch.setattr("ascendsim.pto.kernel.cube_overflow", lambda _, stored: rules[stored])
    assert read_pto(text, PROFILE, blocks=1).math.overflow == "saturate"
    with pytest.raises(
        ProgramError,
        match=r"^line \d+, column \d+: pto.tstore stores what overflows as ieee, one .* as saturate",
    ):
        read_pto(text, PROFILE, blocks=2)


def test_what_leaves_l0c_for_l1_overflows_as_its_format_does(monkeypatch):
    rules = {"float16": "saturate", "float32": "ieee"}
    monkeypatch.setattr("ascendsim.pto.kernel.cube_overflow", lambda _, stored: rules[stored])
    assert read_pto(FUSED, PROFILE).math.overflow == "saturate"


def test_what_a_call_lacks_is_said():
    for blocks in (0, 49):
        with pytest.raises(ProgramError, match=f"blocks a number from 1 to 48, got {blocks}"):
            read_pto(KERNELS["vadd"], PROFILE, blocks=blocks)
    with pytest.raises(ProgramError, match="runs on cube core 24; 910B2 has 24 cube cores"):
        read_pto(FUSED, PROFILE, blocks=25)
    text = KERNELS["vadd"].replace("%z: !pto.ptr<f32>)", "%z: !pto.ptr<f32>, %n: index)")
    text = text.replace("    %n = arith.constant 32 : index\n", "")
    with pytest.raises(ProgramError, match=r"argument %n of vadd is of index.*arguments=\{'n': \.\.\.\}"):
        read_pto(text, PROFILE)
    assert read_pto(text, PROFILE, arguments={"n": 32}).tensors["x"].shape == (32, 32)
    with pytest.raises(ProgramError, match=r"^line 3, .*: arguments gives m, no .* vadd takes; there is n$"):
        read_pto(text, PROFILE, arguments={"n": 32, "m": 1})
    with pytest.raises(ProgramError, match="arguments gives x, no number that vadd takes; it takes none"):
        read_pto(KERNELS["vadd"], PROFILE, arguments={"x": 1})
    for odd in ([("n", 32)], {1: 2}, 5):
        with pytest.raises(ProgramError, match="arguments gives numbers by name"):
            read_pto(text, PROFILE, arguments=odd)
    with pytest.raises(CapacityError, match=r"line 16: UB of 910B2 holds 196608 bytes"):
        read_pto(KERNELS["vadd"].replace("rows=32", "rows=1024"), PROFILE)


def test_a_loop_that_does_not_end_is_refused(monkeypatch):
    monkeypatch.setattr("ascendsim.pto.trace.MOST_STEPS", 90)
    with pytest.raises(ProgramError, match="step 91 is taken; loops are unrolled"):
        read_pto(KERNELS["add"], PROFILE)


@pytest.mark.parametrize("seed", range(60))
def test_a_spoilt_text_is_read_or_refused_and_nothing_else(seed):
    rng = random.Random(seed)
    pieces = [token.text for token in tokens_of(KERNELS["vadd"])[:-1]]
    at = rng.randrange(len(pieces))
    pieces[at : at + rng.randrange(2)] = rng.sample(pieces, rng.randrange(2))
    try:
        made = read_pto(" ".join(pieces), PROFILE)
    except AscendSimError:
        return
    kinds = [type(each) for each in made.phases[0].work[0].build().instructions]
    assert kinds.count(Binary) == 1


def test_the_page_has_the_table_of_the_subset():
    page = (ROOT / "docs" / "from_ascendc.md").read_text().partition("## Kernels in PTO")[2]
    rows = [
        tuple(cell.strip() for cell in line.split("|")[1:-1]) for line in page.splitlines() if "->" in line
    ]
    assert rows[1:] == subset()
