"""Do tensors keep their bits on the way into the simulator and back?"""

import numpy as np
import pytest

from ascendsim.errors import UnsupportedError
from ascendsim.numerics.formats.casts import decode
from tests.helpers.torch_samples import KINDS, door, same_bits, torch

array_of, tensor_of = door.autograd.array_of, door.autograd.tensor_of
channels_last = door.autograd.channels_last
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32}


def every_code(name):
    """All codes of a format of up to 16 bits, and a run through those of float32."""
    kind = KINDS[name]
    bits = BITS[kind.itemsize]
    ends = torch.iinfo(bits)
    step = 65537 if kind.itemsize == 4 else 1
    return torch.arange(ends.min, ends.max + 1, step).to(bits).view(kind)


@pytest.mark.parametrize("name", KINDS)
def test_every_code_comes_back(name):
    tensor = every_code(name)
    array = array_of(tensor)
    assert array.dtype.name == name
    assert same_bits(tensor_of(array, tensor), tensor)


@pytest.mark.parametrize("name", KINDS)
def test_a_value_is_the_same_number_on_both_sides(name):
    tensor = every_code(name)
    assert np.array_equal(decode(array_of(tensor), name), tensor.float().numpy(), equal_nan=True)


def test_any_view_is_read_row_after_row():
    tensor = torch.arange(24.0).reshape(2, 3, 4)
    for view in (
        tensor.permute(2, 0, 1),
        tensor[:, ::2],
        tensor[0, 0, 0].expand(2, 5),
        tensor.requires_grad_(),
    ):
        assert np.array_equal(array_of(view), view.detach().numpy())


def test_a_view_that_torch_negates_lazily_is_read_negated():
    tensor = torch.complex(torch.zeros(2), torch.tensor([1.0, -2.0])).conj().imag
    assert tensor.is_neg()
    assert array_of(tensor).tolist() == [-1.0, 2.0]


@pytest.mark.parametrize("kind", [torch.float64, torch.int32, torch.complex64, torch.float8_e4m3fnuz])
def test_other_types_are_refused_by_their_name(kind):
    with pytest.raises(UnsupportedError, match=str(kind)) as caught:
        array_of(torch.zeros(2).to(kind))
    assert "torch.bfloat16" in str(caught.value)


def test_channels_last_counts_as_soon_as_one_operand_lies_so():
    # torch's own convolutions follow the same rule; a tensor that lies either way is an ordinary one.
    plain, weight = torch.zeros(2, 3, 4, 4), torch.zeros(5, 3, 2, 2)
    last = plain.to(memory_format=torch.channels_last)
    volume = torch.zeros(2, 3, 4, 4, 4).to(memory_format=torch.channels_last_3d)
    either = torch.zeros(2, 1, 4, 4).to(memory_format=torch.channels_last)
    assert channels_last(plain, weight) is channels_last(either, weight) is torch.contiguous_format
    assert channels_last(last, weight) is torch.channels_last
    assert channels_last(plain, weight.to(memory_format=torch.channels_last)) is torch.channels_last
    assert channels_last(volume, torch.zeros(5, 3, 2, 2, 2)) is torch.channels_last_3d
    made = torch.nn.functional.conv2d(last, weight)
    assert made.is_contiguous(memory_format=torch.channels_last)
