"""Does a C program, carried over call by call, get the answers and the numbers of the interface?"""

import inspect
import re
import runpy
import threading
from pathlib import Path

import numpy as np
import pytest

import ascendsim.aclnn as acl
from ascendsim import convolution_backward
from ascendsim.aclnn import AclTensor, Out
from ascendsim.errors import STATUS_NAMES
from ascendsim.rules.model import FORMATS

EXAMPLE = Path(__file__).parents[2] / "examples" / "08_the_interface_call_by_call.py"
SHAPES = {
    "gradOutput": (2, 4, 5, 6),
    "input": (2, 3, 5, 6),
    "weight": (4, 3, 3, 3),
    "gradInput": (2, 3, 5, 6),
    "gradWeight": (4, 3, 3, 3),
    "gradBias": (4,),
}
ATTRIBUTES = {
    "biasSizes": (4,),
    "stride": (1, 1),
    "padding": (1, 1),
    "dilation": (1, 1),
    "transposed": False,
    "outputPadding": (0, 0),
    "groups": 1,
    "outputMask": (True, True, True),
    "cubeMathType": 0,
}


@pytest.fixture(autouse=True)
def _own_context():
    """Begin and end each test without switches and errors."""
    acl.aclrtResetDevice(0)
    yield
    acl.aclrtResetDevice(0)


def dense(shape):
    return [int(np.prod(shape[axis + 1 :])) for axis in range(len(shape))]


def placed(values, data_type=acl.ACL_FLOAT):
    """Return a tensor over the values' own memory."""
    shape, layout = values.shape, acl.ACL_FORMAT_NCHW if values.ndim == 4 else acl.ACL_FORMAT_ND
    return acl.aclCreateTensor(
        shape, len(shape), data_type, dense(shape), 0, layout, shape, len(shape), values.reshape(-1)
    )


def arguments(seed=1):
    """Return the arguments of a call by the page's names, and the arrays under its tensors."""
    random = np.random.default_rng(seed)
    held = {name: random.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}
    return {name: placed(values) for name, values in held.items()} | ATTRIBUTES, held


def first_phase(given, **simulated):
    """Return the status of the first phase, its workspace and its executor."""
    size, executor = Out(), Out()
    status = acl.aclnnConvolutionBackwardGetWorkspaceSize(
        **given, workspaceSize=size, executor=executor, simulated=simulated or None
    )
    return status, size.value, executor.value


def run(executor, size):
    """Return the status of the second phase."""
    return acl.aclnnConvolutionBackward(np.empty(size, np.uint8), size, executor, None)


def direct(held, **options):
    """Return the gradients of the operator."""
    names = ("biasSizes", "stride", "padding", "dilation", "transposed", "outputPadding", "groups")
    return convolution_backward(
        *(held[name] for name in ("gradOutput", "input", "weight")),
        *(ATTRIBUTES[name] for name in (*names, "outputMask", "cubeMathType")),
        **options,
    )


def test_the_sample_of_the_page_prints_its_numbers(capsys):
    runpy.run_path(str(EXAMPLE))
    lines = capsys.readouterr().out.splitlines()
    # All ones: each pixel of grad_input adds 2 filters, each tap and each bias 2 images of 49 pixels.
    expected = {"gradInputResult": (196, "2.000000"), "gradWeightResult": (4, "98.000000")}
    expected["gradBiasResult"] = (2, "98.000000")
    made = [(name, i, value) for name, (count, value) in expected.items() for i in range(count)]
    assert lines == [f"{name}[{i}] is: {value}" for name, i, value in made]


# The prototypes of the pages, without types.
CONV = (
    "gradOutput, input, weight, biasSizes, stride, padding, dilation, transposed, outputPadding, groups, "
    "outputMask, cubeMathType, gradInput, gradWeight, gradBias, workspaceSize, executor"
)
TBC = "self, input, weight, bias, pad, cubeMathType, gradInput, gradWeight, gradBias, workspaceSize, executor"


@pytest.mark.parametrize(
    ("function", "prototype"),
    [
        (acl.aclnnConvolutionBackwardGetWorkspaceSize, f"{CONV}, simulated"),
        (acl.aclnnConvTbcBackwardGetWorkspaceSize, f"{TBC}, simulated"),
        (acl.aclnnConvolutionBackward, "workspace, workspaceSize, executor, stream"),
        (acl.aclnnConvTbcBackward, "workspace, workspaceSize, executor, stream"),
        (
            acl.aclCreateTensor,
            "viewDims, viewDimsNum, dataType, stride, offset, format, storageDims, storageDimsNum, "
            "tensorData",
        ),
    ],
)
def test_the_parameters_are_those_of_the_prototype_and_one_of_ours(function, prototype):
    assert list(inspect.signature(function).parameters) == prototype.split(", ")


def test_the_constants_are_those_of_the_errors_and_the_rules():
    named = {value: name for name in acl.__all__ if isinstance(value := getattr(acl, name), int)}
    assert {status: named[status] for status in STATUS_NAMES} == STATUS_NAMES
    assert acl.ACLNN_SUCCESS == acl.ACL_SUCCESS == 0
    formats = {entry.name.removeprefix("ACL_FORMAT_") for entry in acl.aclFormat}
    assert formats - {"UNDEFINED"} == set(FORMATS)
    assert [entry.name for entry in acl.CubeMathType] == [
        *("KEEP_DTYPE", "ALLOW_FP32_DOWN_PRECISION", "USE_FP16", "USE_HF32")
    ]


def test_gradients_are_those_of_the_operator():
    given, held = arguments()
    status, size, executor = first_phase(given)
    assert (status, run(executor, size)) == (0, 0)
    result = direct(held)
    for name, made in (("gradInput", result.grad_input), ("gradWeight", result.grad_weight)):
        assert held[name].tobytes() == made.tobytes()
    assert held["gradBias"].tobytes() == result.grad_bias.tobytes()


def test_conv_tbc():
    ones = {
        "self": np.ones((5, 2, 4), np.float32),
        "input": np.ones((5, 2, 3), np.float32),
        "weight": np.ones((1, 3, 4), np.float32),
        "bias": np.zeros(4, np.float32),
    }
    outputs = {
        name: np.zeros_like(ones[like]) for name, like in (("gradInput", "input"), ("gradBias", "bias"))
    }
    outputs["gradWeight"] = np.zeros_like(ones["weight"])
    size, executor = Out(), Out()
    tensors = {name: placed(values) for name, values in (ones | outputs).items()}
    status = acl.aclnnConvTbcBackwardGetWorkspaceSize(
        **tensors, pad=0, cubeMathType=acl.CubeMathType.KEEP_DTYPE, workspaceSize=size, executor=executor
    )
    assert status == 0
    memory = np.empty(size.value, np.uint8)
    assert acl.aclnnConvolutionBackward(memory, size.value, executor) == 161002
    assert "one of aclnnConvTbcBackward" in acl.aclGetRecentErrMsg()
    assert acl.aclnnConvTbcBackward(memory, size.value, executor) == 0
    # 4 filters; 5 steps of 2 images.
    assert set(outputs["gradInput"].ravel()) == {4.0}
    assert set(outputs["gradWeight"].ravel()) == set(outputs["gradBias"]) == {10.0}


def test_a_refusal_is_a_status_and_a_text_that_is_given_once():
    given, _ = arguments()
    assert first_phase(given | {"weight": None})[0] == acl.ACLNN_ERR_PARAM_NULLPTR
    assert "weight is null" in acl.aclGetRecentErrMsg()
    assert acl.aclGetRecentErrMsg() is None
    assert first_phase(given | {"stride": (0, 1)})[0] == acl.ACLNN_ERR_PARAM_INVALID
    assert first_phase(given | {"padding": (256, 1)})[0] == acl.ACLNN_ERR_PARAM_INVALID
    assert "give" in acl.aclGetRecentErrMsg()  # the last one


@pytest.mark.parametrize("name", ["workspaceSize", "executor"])
@pytest.mark.parametrize(("place", "status"), [(None, 161001), (5, 161002)])
def test_there_must_be_a_place_to_write_to(name, place, status):
    given, _ = arguments()
    places = {"workspaceSize": Out(), "executor": Out()} | {name: place}
    assert acl.aclnnConvolutionBackwardGetWorkspaceSize(**given, **places) == status
    assert f"{name} is {place}" in acl.aclGetRecentErrMsg()


@pytest.mark.parametrize(
    ("workspace", "size", "executor", "status"),
    [
        (None, None, True, 161001),
        (np.empty(10, np.uint8), None, True, 161002),
        ("memory", None, True, 161002),
        (True, 5, True, 161002),
        (True, None, None, 161001),
        (True, None, "executor", 161002),
    ],
)
def test_the_second_phase_wants_what_the_first_has_said(workspace, size, executor, status):
    given, _ = arguments()
    _, needed, made = first_phase(given)
    memory = np.empty(needed, np.uint8) if workspace is True else workspace
    answer = acl.aclnnConvolutionBackward(
        memory, needed if size is None else size, made if executor is True else executor
    )
    assert answer == status
    assert acl.aclGetRecentErrMsg()


# --- tensors over flat memory


def test_a_tensor_is_a_view_of_flat_memory():
    memory = np.arange(24, dtype=np.float32)
    made = acl.aclCreateTensor([2, 3], 2, acl.ACL_FLOAT, [12, 2], 5, acl.ACL_FORMAT_ND, [24], 1, memory)
    assert made.array.tolist() == [[5, 7, 9], [17, 19, 21]]
    assert (made.description.strides, made.offset, made.storage_shape) == ((12, 2), 5, (24,))
    made.array[1, 2] = -1
    assert memory[21] == -1


def test_numbers_are_read_as_far_as_their_length_says():
    made = acl.aclCreateTensor([2, 3, 9], 2, 0, [3, 1, 7], 0, 2, [6, 6], 1, np.zeros(6, np.float32))
    assert made.array.shape == (2, 3)
    assert acl.aclCreateIntArray([1, 2, 3], 2) == (1, 2)
    assert acl.aclCreateBoolArray([True, 0, np.True_], 3) == (True, False, True)


@pytest.mark.parametrize(
    ("data_type", "kind"),
    [
        (acl.ACL_FLOAT16, "float16"),
        (acl.ACL_BF16, "bfloat16"),
        (acl.ACL_HIFLOAT8, "uint8"),
        (acl.ACL_FLOAT8_E4M3FN, "float8_e4m3fn"),
    ],
)
def test_the_bytes_are_taken_as_they_lie(data_type, kind):
    memory = bytearray(range(32))
    made = acl.aclCreateTensor([4], 1, data_type, [1], 2, acl.ACL_FORMAT_ND, [8], 1, memory)
    size = made.array.dtype.itemsize
    assert made.array.dtype.name == kind
    assert made.array.tobytes() == bytes(memory)[2 * size : 6 * size]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"offset": 1}, "does not lie in a storage"),
        ({"stride": [4, 1]}, "does not lie in a storage"),
        ({"stride": [-3, 1]}, "does not lie in a storage"),
        ({"offset": -1}, "does not lie in a storage"),
        ({"storageDims": [7]}, "needs 28 bytes; the memory has 24"),
        ({"storageDims": [5]}, "does not lie in a storage"),
        ({"tensorData": "memory"}, "is no memory"),
        ({"tensorData": np.zeros((6, 2), np.float32)[:, ::2]}, "is no memory"),
        ({"viewDimsNum": 3}, "viewDims has 2 numbers, of which 3 are meant"),
        ({"viewDims": None}, "viewDims is None"),
        ({"viewDims": [2, 2**62]}, "does not lie in a storage"),
        ({"dataType": 99}, "99 is not a valid aclDataType"),
        ({"format": "NCHW"}, "is not a valid aclFormat"),
    ],
)
def test_a_tensor_that_cannot_be_is_null(changes, says):
    given = {
        "viewDims": [2, 3],
        "viewDimsNum": 2,
        "dataType": acl.ACL_FLOAT,
        "stride": [3, 1],
        "offset": 0,
        "format": acl.ACL_FORMAT_ND,
        "storageDims": [6],
        "storageDimsNum": 1,
        "tensorData": np.zeros(6, np.float32),
    }
    assert acl.aclCreateTensor(**given) is not None
    assert acl.aclCreateTensor(**(given | changes)) is None
    assert says in acl.aclGetRecentErrMsg()


def test_a_tensor_without_memory_is_enough_for_the_first_phase():
    given, _ = arguments()
    shape = SHAPES["weight"]
    empty = acl.aclCreateTensor(shape, 4, acl.ACL_FLOAT, dense(shape), 0, 0, shape, 4, None)
    status, size, executor = first_phase(given | {"weight": empty})
    assert status == 0
    assert run(executor, size) == acl.ACLNN_ERR_RUNTIME_ERROR


def test_a_format_that_no_operator_takes_is_for_the_rules_to_refuse():
    given, _ = arguments()
    shape = SHAPES["weight"]
    whole = acl.aclCreateTensor(
        shape, 4, acl.aclDataType.ACL_INT32, dense(shape), 0, 0, shape, 4, np.zeros(shape, np.int32)
    )
    assert first_phase(given | {"weight": whole})[0] == 161002
    assert "check 4" in acl.aclGetRecentErrMsg()


# --- executors


def test_a_strict_executor_runs_once_unless_it_is_made_repeatable():
    given, _ = arguments()
    _, size, executor = first_phase(given, strict=True)
    assert [run(executor, size), run(executor, size)] == [0, 161002]
    assert "must be made repeatable" in acl.aclGetRecentErrMsg()
    _, size, executor = first_phase(given, strict=True)
    assert acl.aclSetAclOpExecutorRepeatable(executor) == 0
    assert [run(executor, size) for _ in range(3)] == [0, 0, 0]
    assert acl.aclDestroyAclOpExecutor(executor) == 0
    _, size, executor = first_phase(given)
    assert [run(executor, size) for _ in range(2)] == [0, 0]
    assert acl.aclSetAclOpExecutorRepeatable(None) == acl.aclDestroyAclOpExecutor(None) == 161001


@pytest.mark.parametrize(
    ("move", "places"),
    [
        (acl.aclSetInputTensorAddr, {"gradOutput": 0, "input": 1, "weight": 2}),
        (acl.aclSetOutputTensorAddr, {"gradInput": 0, "gradWeight": 1, "gradBias": 2}),
        (acl.aclSetTensorAddr, {name: place for place, name in enumerate(SHAPES)}),
    ],
)
def test_a_tensor_can_be_moved_between_runs(move, places):
    given, held = arguments()
    _, other = arguments(seed=2)
    _, size, executor = first_phase(given)
    for name, place in places.items():
        assert move(executor, place, given[name], other[name].reshape(-1)) == 0
    assert run(executor, size) == 0
    now = held | {name: other[name] for name in places}
    result = direct(now)
    assert now["gradInput"].tobytes() == result.grad_input.tobytes()
    assert now["gradWeight"].tobytes() == result.grad_weight.tobytes()


def test_a_move_that_makes_no_sense_is_refused():
    given, held = arguments()
    _, size, executor = first_phase(given)
    memory = held["input"].reshape(-1)
    for index, tensor in (
        (3, given["input"]),
        (-1, given["input"]),
        ("1", given["input"]),
        (0, given["input"]),
    ):
        assert acl.aclSetInputTensorAddr(executor, index, tensor, memory) == 161002
    assert acl.aclSetInputTensorAddr(executor, 1, given["input"], memory[1:]) == 161002
    assert "needs 720 bytes; the memory has 716" in acl.aclGetRecentErrMsg()
    assert run(executor, size) == 0  # the tensor is where it was


def test_a_tensor_of_the_python_names_does_as_well():
    given, held = arguments()
    given["input"] = AclTensor(held["input"], "FLOAT", "NCHW")
    status, size, executor = first_phase(given)
    assert (status, run(executor, size)) == (0, 0)


# --- switches, and what the simulator adds


def parts_of_grad_weight(executor, size):
    """Return the phases of the kernel of grad_weight."""
    made = executor.value if isinstance(executor, Out) else executor
    (kernel,) = (k for k in made.run(size).kernels if k.name == "grad_weight")
    return [phase.name for phase in kernel.kernel.phases]


def test_the_deterministic_switch_counts_from_when_it_is_set():
    from ascendsim import Tiling

    given, _ = arguments()
    plan = {"grad_weight": Tiling(16, 16, 16, k_split=2, used_cores=2)}
    read = Out()
    for value, phases in (
        (None, ["zero fill", "compute"]),
        (1, ["compute", "ordered sum"]),
        (0, ["zero fill", "compute"]),
    ):
        if value is not None:
            assert acl.aclrtCtxSetSysParamOpt(acl.ACL_OPT_DETERMINISTIC, value) == 0
        assert acl.aclrtCtxGetSysParamOpt(acl.ACL_OPT_DETERMINISTIC, read) == 0
        assert read.value == (value or 0)
        _, size, executor = first_phase(given, tiling=plan)
        assert parts_of_grad_weight(executor, size) == phases
    for opt, value in ((7, 1), (0, 2), (0, None), ("ACL_OPT_DETERMINISTIC", 1)):
        assert acl.aclrtCtxSetSysParamOpt(opt, value) == acl.ACL_ERROR_INVALID_PARAM


def test_each_thread_has_switches_and_errors_of_its_own():
    acl.aclrtCtxSetSysParamOpt(acl.ACL_OPT_DETERMINISTIC, 1)
    acl.aclCreateIntArray(None, 1)
    seen = []

    def other():
        read = Out()
        acl.aclrtCtxGetSysParamOpt(acl.ACL_OPT_DETERMINISTIC, read)
        seen.extend((read.value, acl.aclGetRecentErrMsg()))

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert seen == [0, None]
    assert "aclCreateIntArray" in acl.aclGetRecentErrMsg()


@pytest.mark.parametrize(
    ("simulated", "says"),
    [
        ({"product": "310B"}, "does not support"),
        ({"rules": "strictest"}, "unknown rule set"),
        ({"orders": 3}, "options has 'orders'; it takes accumulation"),
        ({"order": "late"}, "order is 'late'"),
        ({"accumulation": 3}, "accumulation is 3"),
        ({"output_dtypes": [None] * 3}, "options has 'output_dtypes'"),
    ],
)
def test_an_option_without_a_meaning_is_refused_in_the_first_phase(simulated, says):
    given, _ = arguments()
    assert first_phase(given, **simulated)[0] == 161002
    assert says in acl.aclGetRecentErrMsg()


def test_simulated_is_a_table():
    given, _ = arguments()
    assert acl.aclnnConvolutionBackwardGetWorkspaceSize(
        **given, workspaceSize=Out(), executor=Out(), simulated=3
    )
    assert "simulated is 3; it must be a table" in acl.aclGetRecentErrMsg()


# --- the runtime


def test_memory_is_made_and_copied():
    place = Out()
    assert acl.aclrtMalloc(place, 16, acl.ACL_MEM_MALLOC_HUGE_FIRST) == 0
    host = np.arange(4, dtype=np.float32)
    assert acl.aclrtMemcpy(place.value, 16, host, 16, acl.ACL_MEMCPY_HOST_TO_DEVICE) == 0
    back = np.zeros(4, np.float32)
    assert acl.aclrtMemcpy(back, 16, place.value, 12, acl.ACL_MEMCPY_DEVICE_TO_HOST) == 0
    assert back.tolist() == [0, 1, 2, 0]


@pytest.mark.parametrize("arguments", [(0,), (-1,), ("16",), (None,), (2**62,)])
def test_memory_that_there_is_not(arguments):
    assert acl.aclrtMalloc(Out(), *arguments) in (acl.ACL_ERROR_INVALID_PARAM, acl.ACL_ERROR_BAD_ALLOC)
    assert "aclrtMalloc" in acl.aclGetRecentErrMsg()


@pytest.mark.parametrize(
    ("target", "room", "source", "count"),
    [
        (np.zeros(4, np.uint8), 4, np.zeros(8, np.uint8), 5),
        (np.zeros(8, np.uint8), 4, np.zeros(8, np.uint8), 5),
        (np.zeros(8, np.uint8), 8, np.zeros(4, np.uint8), 5),
        (b"12345678", 8, np.zeros(8, np.uint8), 8),
        (None, 8, np.zeros(8, np.uint8), 8),
        (np.zeros(8, np.uint8), 8, np.zeros(8, np.uint8), -1),
    ],
)
def test_a_copy_that_does_not_fit(target, room, source, count):
    assert acl.aclrtMemcpy(target, room, source, count) == acl.ACL_ERROR_INVALID_PARAM
    assert "aclrtMemcpy" in acl.aclGetRecentErrMsg()


def test_a_place_must_be_an_out():
    assert acl.aclrtMalloc(None, 16) == acl.aclrtCreateStream(None) == acl.ACL_ERROR_INVALID_PARAM
    assert re.search("pass an Out", acl.aclGetRecentErrMsg())
    assert repr(Out(3)) == "Out(3)"


def test_all_names_are_there():
    assert sorted(acl.__all__) == sorted(set(acl.__all__))
    assert all(hasattr(acl, name) for name in acl.__all__)
