"""Decision of the rules about an accepted call."""

from collections.abc import Mapping
from typing import NamedTuple

from ascendsim.rules.calls import GRADIENTS


class Decision(NamedTuple):
    """State how an accepted call is computed.

    api             "aclnnConvolutionBackward" or "aclnnConvTbcBackward"
    product         family that the rules know: 910_95, 910_93, 910B, 310P, 910
    rules           name of the rule set
    promoted_dtype  common dtype of the three inputs
    compute_dtype   what the cube multiplies: float32, hf32, float16, bfloat16, hifloat8, float8_...
    dtypes          storage dtype of every tensor of the call that is not null, outputs included
    wanted          which of grad_input, grad_weight, grad_bias are asked for
    output_padding  value for each spatial axis that the shapes imply (they rule, not the argument); zeros
                    where the convolution is not transposed
    determinism     of the sums of grad_weight: "off" or "product" (a switch: off, or as the product's figures
                    say, until somebody sets it), or "fixed" (one order in any case)
    empty           a tensor is empty: no kernel computes, the gradients are what `empty_grad_bias` says
    empty_grad_bias "zeros", "sum" (of grad_output) or "count" (terms of that sum, whatever their values);
                    the other gradients of an empty call are zeros
    warnings        sentences that the operator would log
    direct_outputs  every gradient leaves the core in its own format; otherwise as `RuleSet` says
    """

    api: str
    product: str
    rules: str
    promoted_dtype: str
    compute_dtype: str
    dtypes: Mapping[str, str]
    wanted: tuple[bool, bool, bool]
    # Implied, not the argument: the operator takes the size of the big side from its tensor as well.
    output_padding: tuple[int, ...] = ()
    determinism: str = "product"
    empty: bool = False
    empty_grad_bias: str = "zeros"
    warnings: tuple[str, ...] = ()
    direct_outputs: bool = False

    @property
    def wanted_gradients(self) -> tuple[str, ...]:
        """Names of the gradients that are asked for."""
        return tuple(name for name, wanted in zip(GRADIENTS, self.wanted, strict=True) if wanted)
