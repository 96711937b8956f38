"""What random orders of execution make of a gradient whose programs lack some classes of waits."""

from dataclasses import replace

from ascendsim.errors import ProgramError
from ascendsim.functional import run_kernel
from ascendsim.program.instruction import HAZARDS
from tests.helpers.conv_cases import kernels_with_inputs


def assert_each_class_is_missed(outcomes):
    """All orders make one result with all waits, and others without some; `outcomes(hazards)` makes them."""
    right = outcomes(HAZARDS)
    assert len(right) == 1
    for missing in ("RAW", "WAR"):
        assert outcomes(HAZARDS - {missing}) - right


def outcomes_of(call, tensors, hazards, orders=4, gradient="grad_input"):
    """Return the different results of so many orders with these classes of waits; a failure counts as one."""
    [(kernel, gm)] = [(k, gm) for k, gm in kernels_with_inputs(call, tensors) if k.name == gradient]
    schedule = replace(call.schedule(gradient), hazards=hazards)
    kernel, found = replace(kernel, phases=schedule.phases()), set()
    for seed in range(orders):
        memory = dict(gm)
        try:
            run_kernel(kernel, memory, order=seed)
            found.add(memory[schedule.gemm.output.name].tobytes())
        except (ProgramError, ValueError) as error:
            found.add(str(error))
    return found
