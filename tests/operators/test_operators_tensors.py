"""Are a user's tensors taken as they are meant, empty ones too, and files that are none refused?"""

import io
import pickle
import zipfile

import ml_dtypes
import numpy as np
import pytest

from ascendsim import convolution_backward
from ascendsim.errors import AclnnError
from ascendsim.numerics.hifloat8 import HiFloat8Array
from tests.helpers.calls import GRADIENTS, gradients

# --- Are a user's tensors taken as they are meant, and files that are none refused without harm? -------


@pytest.fixture
def npz(tmp_path):
    """Write a file of tensors, small integers unless others are given; None leaves one out."""

    def write(**arrays):
        random = np.random.default_rng(3)
        shapes = {"grad_output": (1, 3, 4, 4), "input": (1, 2, 4, 4), "weight": (3, 2, 3, 3)}
        made = {name: random.integers(-2, 3, shape).astype(np.float16) for name, shape in shapes.items()}
        made |= {"padding": np.array(1)} | arrays
        path = tmp_path / "mine.npz"
        np.savez(path, **{name: array for name, array in made.items() if array is not None})
        return path

    return write


def test_a_users_tensors(record, npz):
    # Small integers are exact in every format here, so the gradients are the float64 ones.
    made = record("--npz", str(npz()))
    assert made["problem"]["padding"] == 1
    assert made["problem"]["tensors"] == "mine.npz"
    assert [gradient["max_abs"] for gradient in made["products"][0]["gradients"]] == [0, 0, 0]


def test_the_formats_of_a_users_tensors_are_told(record, npz):
    path = npz(weight=np.ones((3, 2, 3, 3), np.float32))
    for words in ((), ("--cycles-only",)):
        assert record("--npz", str(path), *words)["problem"]["dtype"] == "float16 float16 float32"
    assert (
        record("--npz", str(npz()), "--cycles-only", "--dtype", "bfloat16")["problem"]["dtype"] == "bfloat16"
    )


def test_options_go_before_what_the_file_says(record, npz):
    path = npz(grad_output=np.ones((1, 3, 2, 2), np.float32), output_mask=np.array([True, False, False]))
    made = record("--npz", str(path), "--padding", "0", "--dtype", "bfloat16")
    assert "padding" not in made["problem"] or made["problem"]["padding"] == 0
    assert [gradient["name"] for gradient in made["products"][0]["gradients"]] == ["grad_input"]
    assert made["products"][0]["gradients"][0]["stored"] == "bfloat16"


def test_a_mask_of_the_command_goes_before_that_of_the_file(record, npz):
    path = npz(output_mask=np.array([True, False, False]))
    made = record("--npz", str(path), "--mask", "weight")
    assert [gradient["name"] for gradient in made["products"][0]["gradients"]] == ["grad_weight"]


def test_an_eight_bit_file_by_its_codes(record, npz):
    # 910_95 takes 8-bit tensors of transposed calls; small integers are exact in both formats.
    random = np.random.default_rng(3)
    shapes = {"grad_output": (1, 4, 4, 4), "input": (1, 2, 4, 4), "weight": (2, 4, 3, 3)}
    values = {name: random.integers(-2, 3, shape).astype(np.float32) for name, shape in shapes.items()}
    where = ("--transposed", "--product", "910_95", "--mask", "input")
    kinds = {
        "hifloat8": {name: HiFloat8Array.from_float32(v).codes for name, v in values.items()},
        "float8_e4m3fn": {name: v.astype(ml_dtypes.float8_e4m3fn) for name, v in values.items()},
    }
    for dtype, codes in kinds.items():
        words = (*where, "--dtype", dtype)
        coded = record("--npz", str(npz(**codes)), *words)
        rounded = record("--npz", str(npz(**values)), *words)
        assert coded["problem"]["tensors"] == f"mine.npz, codes of {dtype}"
        assert rounded["problem"]["tensors"] == f"mine.npz, rounded to {dtype}"
        digests = [made["products"][0]["gradients"][0]["sha256"] for made in (coded, rounded)]
        assert digests[0] == digests[1]


def test_bfloat16_as_numpy_stores_it(record, npz):
    ones = {"input": np.ones((1, 2, 4, 4), ml_dtypes.bfloat16)}  # numpy reads it back as V2
    made = record("--npz", str(npz(**ones)), "--dtype", "bfloat16")
    assert [gradient["max_abs"] for gradient in made["products"][0]["gradients"]] == [0, 0, 0]


def test_the_order_of_bytes_does_not_matter(record, npz):
    random = np.random.default_rng(5)
    shapes = {"grad_output": (1, 3, 4, 4), "input": (1, 2, 4, 4), "weight": (3, 2, 3, 3)}
    arrays = {name: random.standard_normal(shape).astype(np.float16) for name, shape in shapes.items()}
    digests = []
    for kind in ("<f2", ">f2"):
        made = record("--npz", str(npz(**{name: array.astype(kind) for name, array in arrays.items()})))
        digests.append([gradient["sha256"] for gradient in made["products"][0]["gradients"]])
    assert digests[0] == digests[1]


# Mistakes


class Evil:
    """Writes a file if it is ever unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def test_a_users_file_is_never_unpickled(refusal, npz, tmp_path):
    mark = tmp_path / "unpickled"
    weight = np.array([Evil(mark)], dtype=object)
    assert "plain arrays" in refusal("run", "--npz", str(npz(weight=weight)))
    (tmp_path / "raw.npz").write_bytes(pickle.dumps(Evil(mark)))
    assert "plain arrays" in refusal("run", "--npz", str(tmp_path / "raw.npz"))
    assert not mark.exists()


def one_array():
    file = io.BytesIO()
    np.save(file, np.zeros(3))
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "plain arrays"),
        (b"no archive at all", "plain arrays"),
        (b"PK\x03\x04 cut off", "plain arrays"),
        (one_array(), "holds one array"),
    ],
)
def test_what_is_no_npz(refusal, tmp_path, content, says):
    path = tmp_path / "bad.npz"
    path.write_bytes(content)
    assert says in refusal("run", "--npz", str(path))


def test_a_cut_off_npz(refusal, npz):
    path = npz()
    path.write_bytes(path.read_bytes()[:-30])
    assert "plain arrays" in refusal("run", "--npz", str(path))
    assert "cannot be read" in refusal("run", "--npz", str(path.parent))


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"weight": None}, "has no array weight"),
        ({"grad_output": None, "grad_out": np.zeros(1, np.float16)}, "did you mean grad_out"),
        ({"strides": np.array(1)}, "did you mean stride"),
        ({"stride": np.array(1.5)}, "must be whole numbers"),
        ({"transposed": np.array(1)}, "must be true or false"),
        ({"output_mask": np.array([True])}, "three times true or false"),
        ({"input": np.zeros((1, 2, 4, 4))}, "store tensors as float16 or float32"),
        ({"input": np.zeros((1, 2, 4, 4), np.int32)}, "store tensors as float16 or float32"),
        ({"input": np.zeros((1, 2, 4, 4), "V2")}, "--dtype"),
        ({"input": np.zeros((1, 2, 4), np.float16)}, "rank"),
        ({"grad_output": np.zeros((1, 3, 5, 4), np.float16)}, "grad_output has height 5"),
        ({"grad_output": np.zeros((2, 3, 4, 4), np.float16)}, "grad_output has batch 2"),
    ],
)
def test_an_npz_that_does_not_fit(refusal, npz, arrays, says):
    assert says in refusal("run", "--npz", str(npz(**arrays)))


@pytest.mark.parametrize("name", ["input", "stride"])
def test_a_member_that_is_no_array(refusal, npz, name):
    # numpy returns the bytes of a member that does not begin as an array does
    path = npz(**{name: None})
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(f"{name}.npy", b"plain bytes")
    assert f"{name} is no array" in refusal("run", "--npz", str(path))


def test_nobody_is_told_to_unpickle(refusal, npz, tmp_path):
    (tmp_path / "raw.npz").write_bytes(pickle.dumps({}))
    objects = npz(weight=np.array([{}], dtype=object))
    for path in (objects, tmp_path / "raw.npz"):
        said = refusal("run", "--npz", str(path))
        assert "Python objects" in said
        assert "pickle" not in said


def test_a_file_that_does_not_fit_into_memory(refusal, npz):
    # A header may promise more than any machine has: 2^40 float32 values are 4 TiB.
    path = npz(input=None)
    header = {"descr": "<f4", "fortran_order": False, "shape": (1 << 30, 1 << 20, 1, 1)}
    member = io.BytesIO()
    np.lib.format.write_array_header_1_0(member, header)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("input.npy", member.getvalue())
    said = refusal("run", "--npz", str(path), "--cycles-only")
    assert "does not fit into memory" in said
    assert "give the sizes instead" in said
    assert "needs no tensors" not in said


# --- Do empty tensors give the zeros, shapes and kernels that they should, and are the others refused? -

ALL = (True, True, True)
PRODUCTS_WITH_EMPTY = ("910B", "910_93", "910_95")


def ones(*shape):
    return np.ones(shape, np.float16)


def call(grad_output, input, weight, mask=ALL, *, transposed=False, groups=1, padding=0, **options):
    channels = grad_output.shape[1]
    stride = (1,) * (input.ndim - 2)
    return convolution_backward(
        grad_output,
        input,
        weight,
        [channels],
        stride,
        padding,
        stride,
        transposed,
        0,
        groups,
        mask,
        0,
        **options,
    )


def fills(result):
    return [kernel.name for kernel in result.kernels]


@pytest.mark.parametrize("product", PRODUCTS_WITH_EMPTY)
@pytest.mark.parametrize("transposed", [False, True])
def test_no_image_leaves_zeros(product, transposed):
    weight = ones(2, 4, 3, 3) if transposed else ones(4, 2, 3, 3)
    result = call(
        ones(0, 4, 5, 5), ones(0, 2, 5, 5), weight, transposed=transposed, padding=1, product=product
    )
    assert result.grad_input.shape == (0, 2, 5, 5)
    assert result.grad_weight.shape == weight.shape
    assert not result.grad_weight.any()
    assert result.grad_bias.tolist() == [0.0] * 4
    assert fills(result) == ["fill_grad_weight", "fill_grad_bias"]
    assert result.cycles == sum(kernel.cycles for kernel in result.kernels) > 0
    assert result.accumulation == "none"


@pytest.mark.parametrize("product", PRODUCTS_WITH_EMPTY)
def test_no_input_channel_leaves_a_zero_bias_of_a_full_grad_output(product):
    # as torch: nothing was computed, although grad_output has elements to add
    result = call(ones(2, 4, 3, 3), ones(2, 0, 3, 3), ones(4, 0, 1, 1), product=product)
    assert [g.shape for g in gradients(result)] == [(2, 0, 3, 3), (4, 0, 1, 1), (4,)]
    assert result.grad_bias.tolist() == [0.0] * 4
    assert fills(result) == ["fill_grad_bias"]


def test_a_gradient_without_elements_needs_no_kernel():
    result = call(ones(0, 4, 3, 3), ones(0, 0, 3, 3), ones(4, 0, 1, 1), (True, True, False))
    assert fills(result) == []
    assert result.cycles == 0


def test_a_mask_leaves_out_what_it_leaves_out():
    result = call(ones(0, 4, 3, 3), ones(0, 2, 3, 3), ones(4, 2, 1, 1), (False, True, False))
    assert (result.grad_input, result.grad_bias) == (None, None)
    assert fills(result) == ["fill_grad_weight"]


def test_nothing_asked_for_nothing_done():
    for arrays in (
        (ones(0, 4, 3, 3), ones(0, 2, 3, 3), ones(4, 2, 1, 1)),
        (ones(2, 4, 3, 3), ones(2, 2, 3, 3), ones(4, 2, 1, 1)),
    ):
        result = call(*arrays, (False, False, False))
        assert gradients(result) == [None, None, None]
        assert (result.kernels, result.cycles, result.time_us) == ((), 0, 0)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_every_rank_may_be_empty(rank):
    space = (3,) * rank
    result = call(ones(0, 4, *space), ones(0, 2, *space), ones(4, 2, *(1,) * rank))
    assert result.grad_weight.shape == (4, 2, *(1,) * rank)


def test_zeros_come_in_the_asked_formats():
    arrays = (ones(0, 4, 3, 3), ones(0, 2, 3, 3), ones(4, 2, 1, 1))
    result = call(*arrays, output_dtypes=("float32", "bfloat16", "float32"), rules="shipped")
    assert [g.dtype.name for g in gradients(result)] == ["float32", "bfloat16", "float32"]


# What is refused: section 6 of the rule book, by product


@pytest.mark.parametrize("product", ["310P", "910"])
def test_older_products_take_no_empty_grad_output(product):
    with pytest.raises(AclnnError, match="empty") as caught:
        call(ones(0, 4, 3, 3), ones(0, 2, 3, 3), ones(4, 2, 1, 1), product=product)
    assert caught.value.status == 161002


REFUSED = {
    "grad_output alone": (ones(2, 4, 0, 3), ones(2, 2, 3, 3), ones(4, 2, 1, 1)),
    "height of the input alone": (ones(2, 4, 0, 3), ones(2, 2, 0, 3), ones(4, 2, 1, 1)),
    "channels of the input alone": (ones(0, 4, 3, 3), ones(0, 0, 3, 3), ones(4, 2, 1, 1)),
    "a kernel larger than the input": (ones(0, 4, 3, 3), ones(0, 2, 3, 3), ones(4, 2, 5, 5)),
}


@pytest.mark.parametrize("what", REFUSED)
@pytest.mark.parametrize("rules", ["documented", "shipped"])
def test_other_empty_tensors_are_refused(what, rules):
    with pytest.raises(AclnnError) as caught:
        call(*REFUSED[what], rules=rules)
    assert caught.value.status == 161002


def test_every_gradient_is_named():
    assert GRADIENTS == ("grad_input", "grad_weight", "grad_bias")
