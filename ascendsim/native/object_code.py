"""Machine code as a linker takes it."""

from typing import NamedTuple


class ObjectCode(NamedTuple):
    """Machine code as a linker takes it, and the name of the function in it that is called from outside."""

    symbol: str
    code: bytes
