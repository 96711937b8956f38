"""What the page of every study says about how it was made."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from ascendsim import __version__


def facts(words: Sequence[str], variant: str, digest: str, assumed: int) -> dict[str, str]:
    """Return the command, the version, and which figures the product has."""
    return {
        "command": shlex.join(["ascendsim", *words]),
        "version": f"ascendsim {__version__}",
        "product": f"{variant}; digest of its figures {digest[:16]}",
        "assumed figures": f"{assumed} figures of it that move cycles are assumed: nobody has "
        f"published or measured them; `ascendsim profiles {variant}` lists them with their ranges",
    }
