"""The interface's rules as data: what each document and the shipped operator accept, per product.

Pure functions on descriptions of calls; no arrays. The only reader of configs/rules.
"""

from ascendsim.rules.calls import (
    Call,
    ConvolutionBackwardCall,
    ConvTbcBackwardCall,
    TensorDescription,
)
from ascendsim.rules.decision import Decision
from ascendsim.rules.resolve import HasProduct, resolve

__all__ = [
    "Call",
    "ConvTbcBackwardCall",
    "ConvolutionBackwardCall",
    "Decision",
    "HasProduct",
    "TensorDescription",
    "resolve",
]
