"""Machine code as a linker takes it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ObjectCode:
    """Machine code as a linker takes it, and the name of the function in it that is called from outside."""

    symbol: str
    code: bytes
