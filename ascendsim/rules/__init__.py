"""Rules of the interface as data: the calls that each document and the shipped operator accept, per product.

Pure functions on descriptions of calls; no arrays. The only reader of configs/rules.
"""

from ascendsim.rules.calls import (
    Call,
    ConvolutionBackwardCall,
    ConvTbcBackwardCall,
    CubeMathType,
    TensorDescription,
)
from ascendsim.rules.decision import Decision
from ascendsim.rules.loader import load_rules, product_names, rule_set_names, rules_digest
from ascendsim.rules.products import known_product, rule_product
from ascendsim.rules.resolve import resolve

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
