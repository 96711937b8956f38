"""Rules of the interface as data: the calls that each document and the shipped operator accept, per product.

Pure functions on descriptions of calls; no arrays. The only reader of configs/rules.
"""

from ascendsim.rules.loader import (
    known_product,
    load_rules,
    product_names,
    rule_product,
    rule_set_names,
    rules_digest,
)
from ascendsim.rules.resolve import resolve
from ascendsim.rules.typed import (
    Call,
    ConvolutionBackwardCall,
    ConvTbcBackwardCall,
    CubeMathType,
    Decision,
    TensorDescription,
)

__all__ = [
    "Call",
    "ConvTbcBackwardCall",
    "ConvolutionBackwardCall",
    "CubeMathType",
    "Decision",
    "TensorDescription",
    "known_product",
    "load_rules",
    "product_names",
    "resolve",
    "rule_product",
    "rule_set_names",
    "rules_digest",
]
