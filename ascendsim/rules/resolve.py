"""From a described call to a decision, or to the status the interface answers with."""

from __future__ import annotations

from typing import Protocol

from ascendsim.rules.calls import Call
from ascendsim.rules.decision import Decision


class HasProduct(Protocol):
    """Anything that names its product, a Profile first of all."""

    @property
    def product(self) -> str:
        """Name of the product family, as 910B."""
        ...

    @property
    def npu_arch(self) -> str:
        """Number of the architecture, as 2201; decides for products that the rules do not name."""
        ...


def resolve(call: Call, product: str | HasProduct = "910B", rules: str = "documented") -> Decision:
    """Check a call as the interface would, and decide how it is computed.

    product   name of a product, variant or soc ("910B", "910B3", "Ascend310P", "310B"), or a Profile
    rules     documented, documented-001, documented-002, documented-004, shipped or hardware
    Raises    AclnnError of the first check that fails (.status, .name, .check); ConfigError for an unknown
              product or rule set
    """
    raise NotImplementedError
