"""The first phase: check every argument, and say how much workspace the second phase needs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ascendsim.aclnn.executor import Executor
from ascendsim.aclnn.tensor import AclTensor, describe
from ascendsim.aclnn.workspace import workspace_bytes
from ascendsim.arguments import shown
from ascendsim.errors import AclnnError, AscendSimError, ConfigError
from ascendsim.frozen import FrozenMap
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.profile import is_file_name
from ascendsim.rules import ConvolutionBackwardCall, ConvTbcBackwardCall, resolve
from ascendsim.rules.typed import CHECK, typed

if TYPE_CHECKING:
    from ascendsim.ops.options.call import Options
    from ascendsim.profile import Profile

INVALID = 161002  # ACLNN_ERR_PARAM_INVALID


def convolution_backward_get_workspace_size(
    grad_output: AclTensor | None,
    input: AclTensor | None,
    weight: AclTensor | None,
    bias_sizes: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: Any,
    output_padding: Any,
    groups: Any,
    output_mask: Any,
    cube_math_type: Any,
    grad_input: AclTensor | None,
    grad_weight: AclTensor | None,
    grad_bias: AclTensor | None,
    *,
    product: str | Path | Profile = "910B",
    rules: str | Path = "documented",
    options: Mapping[str, Any] | None = None,
    strict: bool = False,
) -> tuple[int, Executor]:
    """Check a call of aclnnConvolutionBackward.

    options  keywords of `convolution_backward` that are no arguments of the interface: accumulation, tiling,
             schedule, order, l2_start, engine, deterministic, fixpipe
    strict   whether the executor runs once, unless it is made repeatable (`executor.state.repeatable`)

    Returns  the workspace in bytes (what the kernels declare, and 16 MiB), and the executor to run
    Raises   AclnnError alone, whatever the arguments are
    Source   docs/interface.md; the vendor's page of aclnnConvolutionBackwardGetWorkspaceSize
    """
    given = {
        "grad_output": grad_output,
        "input": input,
        "weight": weight,
        "grad_input": grad_input,
        "grad_weight": grad_weight,
        "grad_bias": grad_bias,
    }
    call = ConvolutionBackwardCall(
        **{name: describe(name, tensor) for name, tensor in given.items()},
        bias_sizes=bias_sizes,
        stride=stride,
        padding=padding,
        dilation=dilation,
        transposed=transposed,
        output_padding=output_padding,
        groups=groups,
        output_mask=output_mask,
        cube_math_type=cube_math_type,
    )
    return first_phase(call, given, product, rules, options, strict=strict)


def conv_tbc_backward_get_workspace_size(
    grad_output: AclTensor | None,
    input: AclTensor | None,
    weight: AclTensor | None,
    bias: AclTensor | None,
    pad: Any,
    cube_math_type: Any,
    grad_input: AclTensor | None,
    grad_weight: AclTensor | None,
    grad_bias: AclTensor | None,
    *,
    product: str | Path | Profile = "910B",
    rules: str | Path = "documented",
    options: Mapping[str, Any] | None = None,
    strict: bool = False,
) -> tuple[int, Executor]:
    """Check a call of aclnnConvTbcBackward; `grad_output` is what the vendor calls self.

    Returns, raises  as `convolution_backward_get_workspace_size`
    """
    given = {
        "grad_output": grad_output,
        "input": input,
        "weight": weight,
        "bias": bias,
        "grad_input": grad_input,
        "grad_weight": grad_weight,
        "grad_bias": grad_bias,
    }
    call = ConvTbcBackwardCall(
        **{name: describe(name, tensor) for name, tensor in given.items()},
        pad=pad,
        cube_math_type=cube_math_type,
    )
    return first_phase(call, given, product, rules, options, strict=strict)


@default_arithmetic
def first_phase(
    call: ConvolutionBackwardCall | ConvTbcBackwardCall,
    tensors: dict[str, AclTensor | None],
    product: Any,
    rules: Any,
    options: Any = None,
    *,
    strict: bool = False,
) -> tuple[int, Executor]:
    """Check, decide, and plan; both interfaces and `ascendsim check` come together here."""
    # A name goes to the rules as it is: they know products of which there is no file of figures, and refuse a
    # call there for a reason of the interface. A file or a Profile must be loaded to tell its product.
    named = product if isinstance(product, str) and not is_file_name(product) else _profile(product)
    try:
        decision = resolve(call, named, rules)
    except ConfigError as error:
        raise AclnnError(INVALID, CHECK, str(error)) from error
    # Only an accepted call needs figures; see `_profile`.
    profile, checked = _profile(product), typed(call)
    given = _own_options(options)
    size = workspace_bytes(checked, decision, _resolved(profile, rules, given))
    return size, Executor(checked, decision, size, tensors, profile, rules, given, bool(strict))


def _own_options(options: Any) -> FrozenMap[str, Any]:
    """Return the keywords of the operator that are no arguments of the interface."""
    from ascendsim.ops.options.keywords import CallOptions

    # What the interface's own arguments say is said once.
    said = ("product", "rules", "output_dtypes", "output_strides")
    known = [name for name in CallOptions.__annotations__ if name not in said]
    if options is not None and not isinstance(options, Mapping):
        raise AclnnError(
            INVALID, CHECK, f"options is {shown(options)}; it must be a table such as {{'order': 3}}"
        )
    for name in options or {}:
        if name not in (*known, "order"):
            raise AclnnError(
                INVALID, CHECK, f"options has {shown(name)}; it takes {', '.join((*known, 'order'))}"
            )
    return FrozenMap(options or {})


def _resolved(profile: Profile, rules: Any, given: Mapping[str, Any]) -> Options:
    """Return the operator's options, whose values are looked at before anything is planned."""
    from ascendsim.numerics.accumulation.models import AccumulationModel
    from ascendsim.ops.options.call import Options
    from ascendsim.ops.options.keywords import order_given

    try:
        order_given(given.get("order", "program"))
        options = Options(profile, rules=rules, **{name: given[name] for name in given if name != "order"})
        if isinstance(options.accumulation, str):
            AccumulationModel.parse(options.accumulation)
        return options
    except AscendSimError as error:
        raise AclnnError(INVALID, CHECK, str(error)) from error


def _profile(product: Any) -> Profile:
    """Load the product, which products that the rules refuse need not be."""
    from ascendsim.profile import Profile, load_profile

    if isinstance(product, Profile):
        return product
    try:
        if not isinstance(product, str | Path):
            raise ConfigError(f"product is {type(product).__name__}; it must be a name, a path or a Profile")
        return load_profile(product)
    except ConfigError as error:
        raise AclnnError(INVALID, CHECK, str(error)) from error
