"""aclnnConvolutionBackward as a C program calls it, call by call, down to the numbers that it prints.

Run it with `python examples/08_the_interface_call_by_call.py`. Names and arguments are those of the page; an
`Out` stands where C passes an address. To check a C program of your own, carry it over line by line.
"""

import numpy as np

from ascendsim.aclnn import (
    ACL_FLOAT,
    ACL_FORMAT_NCHW,
    ACL_FORMAT_ND,
    ACL_MEM_MALLOC_HUGE_FIRST,
    ACL_MEMCPY_DEVICE_TO_HOST,
    ACL_MEMCPY_HOST_TO_DEVICE,
    ACL_SUCCESS,
    Out,
    aclCreateBoolArray,
    aclCreateIntArray,
    aclCreateTensor,
    aclDestroyBoolArray,
    aclDestroyIntArray,
    aclDestroyTensor,
    aclFinalize,
    aclGetRecentErrMsg,
    aclInit,
    aclnnConvolutionBackward,
    aclnnConvolutionBackwardGetWorkspaceSize,
    aclrtCreateStream,
    aclrtDestroyStream,
    aclrtFree,
    aclrtMalloc,
    aclrtMemcpy,
    aclrtResetDevice,
    aclrtSetDevice,
    aclrtSynchronizeStream,
)

DEVICE = 0
ONES = np.float32(1)


def check(status):
    """Stop where a call has failed, with what it had to say."""
    if status != ACL_SUCCESS:
        raise SystemExit(f"status {status}: {aclGetRecentErrMsg()}")


def create(shape):
    """Put a tensor of ones on the device; return it with its memory."""
    host, address = np.full(shape, ONES), Out()
    check(aclrtMalloc(address, host.nbytes, ACL_MEM_MALLOC_HUGE_FIRST))
    check(aclrtMemcpy(address.value, host.nbytes, host, host.nbytes, ACL_MEMCPY_HOST_TO_DEVICE))
    # Contiguous: along each axis the next element lies behind all that the later axes hold.
    strides = [int(np.prod(shape[axis + 1 :])) for axis in range(len(shape))]
    layout = ACL_FORMAT_NCHW if len(shape) == 4 else ACL_FORMAT_ND
    rank = len(shape)
    tensor = aclCreateTensor(shape, rank, ACL_FLOAT, strides, 0, layout, shape, rank, address.value)
    return tensor, address.value


def show(name, shape, address):
    """Bring a tensor back to the host and print its numbers."""
    host = np.zeros(shape, np.float32)
    check(aclrtMemcpy(host, host.nbytes, address, host.nbytes, ACL_MEMCPY_DEVICE_TO_HOST))
    for place, value in enumerate(host.flat):
        print(f"{name}[{place}] is: {value:f}")


# Set up the device.
stream = Out()
check(aclInit(None))
check(aclrtSetDevice(DEVICE))
check(aclrtCreateStream(stream))

# Inputs and outputs: a 1x1 convolution of two channels.
grad_output, grad_output_address = create([2, 2, 7, 7])
image, image_address = create([2, 2, 7, 7])
weight, weight_address = create([2, 2, 1, 1])
grad_input, grad_input_address = create([2, 2, 7, 7])
grad_weight, grad_weight_address = create([2, 2, 1, 1])
grad_bias, grad_bias_address = create([2])
bias_sizes, strides, pads = (
    aclCreateIntArray([2], 1),
    aclCreateIntArray([1, 1], 2),
    aclCreateIntArray([0, 0], 2),
)
dilations, output_pads = aclCreateIntArray([1, 1], 2), aclCreateIntArray([0, 0], 2)
mask = aclCreateBoolArray([True, True, True], 3)

# The first phase checks everything and says how much workspace the second needs.
workspace_size, executor = Out(0), Out()
check(
    aclnnConvolutionBackwardGetWorkspaceSize(
        *(grad_output, image, weight, bias_sizes, strides, pads, dilations, False, output_pads, 1, mask, 1),
        *(grad_input, grad_weight, grad_bias, workspace_size, executor),
    )
)
workspace = Out()
if workspace_size.value > 0:
    check(aclrtMalloc(workspace, workspace_size.value, ACL_MEM_MALLOC_HUGE_FIRST))

# The second phase computes.
check(aclnnConvolutionBackward(workspace.value, workspace_size.value, executor.value, stream.value))
check(aclrtSynchronizeStream(stream.value))
show("gradInputResult", [2, 2, 7, 7], grad_input_address)
show("gradWeightResult", [2, 2, 1, 1], grad_weight_address)
show("gradBiasResult", [2], grad_bias_address)

# Tidy up.
for tensor in (grad_output, image, weight, grad_input, grad_weight, grad_bias):
    check(aclDestroyTensor(tensor))
for array in (bias_sizes, strides, pads, dilations, output_pads):
    check(aclDestroyIntArray(array))
check(aclDestroyBoolArray(mask))
for address in (grad_output_address, image_address, weight_address, grad_input_address, grad_weight_address):
    check(aclrtFree(address))
check(aclrtFree(grad_bias_address))
check(aclrtDestroyStream(stream.value))
check(aclrtResetDevice(DEVICE))
check(aclFinalize())
