"""Does a layer without bias pass as torch's autograd passes it, and only then?"""

import numpy as np
import pytest

from ascendsim import convolution_backward
from ascendsim.aclnn import AclTensor, convolution_backward_get_workspace_size
from ascendsim.errors import AclnnError

WEIGHTS_ALONE = (True, True, False)


def backward(bias_sizes, mask):
    tensors = (np.ones(shape, np.float16) for shape in ((1, 4, 5, 5), (1, 3, 5, 5), (4, 3, 3, 3)))
    return convolution_backward(*tensors, bias_sizes, 1, 1, 1, False, 0, 1, mask, 0)


@pytest.mark.parametrize("sizes", [[0], (0,), (np.int64(0),)])
def test_a_layer_without_bias_passes_as_torch_passes_it(sizes):
    made, usual = backward(sizes, WEIGHTS_ALONE), backward([4], WEIGHTS_ALONE)
    assert made.grad_bias is None
    # The middle pixel of the middle tap sees all 25 pixels of ones, its gradient is 25.
    assert made.grad_weight[0, 0, 1, 1] == 25
    assert made.grad_weight.tobytes() == usual.grad_weight.tobytes()


@pytest.mark.parametrize(
    ("sizes", "mask"),
    [
        ([0], (True, True, True)),  # a gradient of no bias
        ([1], WEIGHTS_ALONE),  # neither torch's nor the interface's
        ([0, 0], WEIGHTS_ALONE),
        ([False], WEIGHTS_ALONE),
        ([], WEIGHTS_ALONE),
    ],
)
def test_other_sizes_of_the_bias_stay_refused(sizes, mask):
    with pytest.raises(AclnnError, match="bias_sizes") as caught:
        backward(sizes, mask)
    assert caught.value.status == 161002


def test_the_two_phases_want_the_channels_in_any_case():
    def tensor(*shape):
        return AclTensor(np.ones(shape, np.float16), "FLOAT16", "NCHW")

    outputs = tensor(1, 3, 5, 5), tensor(4, 3, 3, 3)
    given = tensor(1, 4, 5, 5), *outputs
    attributes = [1, 1], [1, 1], [1, 1], False, [0, 0], 1, list(WEIGHTS_ALONE), 0
    with pytest.raises(AclnnError, match="21a") as caught:
        convolution_backward_get_workspace_size(*given, [0], *attributes, *outputs, None)
    assert caught.value.status == 161002
