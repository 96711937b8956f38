"""Calls of the two-phase interface with values, made of the descriptions of `rules_calls`."""

from dataclasses import fields

import numpy as np

from ascendsim.aclnn import (
    AclTensor,
    conv_tbc_backward_get_workspace_size,
    convolution_backward_get_workspace_size,
)
from ascendsim.numerics.formats.casts import encode, round_to
from ascendsim.rules import ConvTbcBackwardCall

OUTPUTS = ("grad_input", "grad_weight", "grad_bias")


def random_array(shape, dtype, seed=0):
    """Return random values on the grid of a dtype, as they are stored."""
    values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return encode(round_to(values, dtype), dtype)


def arguments_of(call, *, arrays=True):
    """Return the arguments of the first phase by name: tensors with random values, or shapes alone."""
    given = {}
    for seed, entry in enumerate(fields(call)):
        value = getattr(call, entry.name)
        if entry.name in call.tensors and value is not None:
            held = random_array(value.shape, value.dtype, seed) if arrays else value.shape
            if arrays and entry.name in OUTPUTS:
                memory = getattr(held, "codes", held)
                memory[...] = np.ones(memory.shape).astype(memory.dtype)  # anything but the answer
            value = AclTensor(held, value.dtype, value.format)
        given[entry.name] = value
    return given


def first_phase(call, arguments=None, **options):
    """Run the first phase of a described call."""
    tbc = isinstance(call, ConvTbcBackwardCall)
    function = conv_tbc_backward_get_workspace_size if tbc else convolution_backward_get_workspace_size
    return function(**(arguments or arguments_of(call)), **options)
