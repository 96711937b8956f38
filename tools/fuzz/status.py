"""Whether the first phase answers, whatever goes in, and under both of its names alike."""

from __future__ import annotations

from ascendsim import aclnn
from ascendsim.aclnn import (
    AclnnError,
    Out,
    conv_tbc_backward_get_workspace_size,
    convolution_backward_get_workspace_size,
)
from ascendsim.errors import STATUS_NAMES
from fuzz.draws import PRODUCTS, RULES, any_call
from fuzz.judge import must
from fuzz.odd import odd_value
from tests.helpers.calls import arguments_of

MOST_CHARACTERS = 2000


def spoilt_arguments(pick):
    """Return the arguments of one random call: all right, a little wrong, or nonsense throughout."""
    given = arguments_of(any_call(pick), arrays=False)
    names = list(given)
    wrong = names if pick.random() < 0.1 else pick.sample(names, pick.choice((0, 0, 1, 1, 2, 3)))
    for name in wrong:
        given[name] = odd_value(pick, name, given[name])
    return given


def first_phase(given, product, rules):
    """Ask the interface that the arguments are for."""
    tbc = "pad" in given
    function = conv_tbc_backward_get_workspace_size if tbc else convolution_backward_get_workspace_size
    return function(**given, product=product, rules=rules)


def in_c(given, product, rules):
    """Return the status that the same call answers under the vendor's names."""
    tbc = "pad" in given
    call = (
        aclnn.aclnnConvTbcBackwardGetWorkspaceSize if tbc else aclnn.aclnnConvolutionBackwardGetWorkspaceSize
    )
    return call(*given.values(), Out(), Out(), {"product": product, "rules": rules})


def status(pick):
    """Ask the first phase; the answer is a status, complete, and the same under the C names."""
    given, product, rules = spoilt_arguments(pick), pick.choice(PRODUCTS), pick.choice(RULES)
    try:
        size, executor = first_phase(given, product, rules)
    except AclnnError as error:
        answer, text = error.status, str(error)
        must(answer in STATUS_NAMES, f"there is no status {answer}")
        must(error.check and len(text) < MOST_CHARACTERS, f"no check, or a long message: {text}")
    else:
        must(size >= 16 * 2**20, f"a workspace of {size}")
        must(executor.decision.compute_dtype, "no compute dtype")
        answer = 0
    if pick.random() < 0.1:
        again = in_c(given, product, rules)
        must(again == answer, f"{answer} in Python, {again} in C")
    return str(answer)
