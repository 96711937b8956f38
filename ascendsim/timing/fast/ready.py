"""Get the machine code of the compiled engine ready before anything is timed."""

from __future__ import annotations


def get_ready() -> None:
    """Load the machine code of the engine and of the account of L2; compile and keep it if it is in no cache.

    Whoever starts several processes calls it first: they then find the code, where each would compile it for
    itself, and what is told of that reaches the one who waits.
    """
    # Imported here: who asks one process for nothing needs none of it.
    from ascendsim.timing.fast.compiled.machine_code import ENGINE
    from ascendsim.timing.l2.classes import CLASSIFY
    from ascendsim.timing.l2.rounds import PREPARE
    from ascendsim.timing.l2.walk import WALK

    for code in (ENGINE, WALK, PREPARE, CLASSIFY):
        code.load()
