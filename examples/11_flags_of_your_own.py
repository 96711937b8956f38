"""Three programs that say their synchronisation themselves, as kernels do: a race, too much, a deadlock.

Each adds rows of a matrix to themselves, on two slots in turn. `check_flags` holds their flags against the
order that the tiles ask for.

Run it with `python examples/11_flags_of_your_own.py`.
"""

from ascendsim import load_profile
from ascendsim.errors import ProgramError
from ascendsim.instructions.flags import BarrierAll, SetFlag, WaitFlag
from ascendsim.instructions.vector import Add, CopyGmToUb, CopyUbToGm
from ascendsim.ops.checks import check_flags
from ascendsim.program.places import Gm, GmTensor
from ascendsim.program.program import ProgramBuilder

ROWS, COLUMNS = 4, 2048
X = GmTensor.of("x", (ROWS, COLUMNS), "float32")
Y = GmTensor.of("y", (ROWS, COLUMNS), "float32", "output")


def doubled(profile, *, forgets=(), begins=True, barrier=False):
    """Return the program of a vector core; `forgets`: a pair of pipes whose flags are left out."""
    b = ProgramBuilder(profile)
    rows = b.ring("UB", COLUMNS * 4, "row", 2)

    def flag(kind, src, dst, event):
        if (src, dst) != forgets:
            b.add(kind(src, dst, event))

    for event in range(2 * begins):
        flag(SetFlag, "MTE3", "MTE2", event)  # both slots are free
    for row in range(ROWS):
        slot, event = rows.next(), rows.turn
        flag(WaitFlag, "MTE3", "MTE2", event)
        b.add(CopyGmToUb.of(slot, Gm(X, (row,))))
        flag(SetFlag, "MTE2", "V", event)
        flag(WaitFlag, "MTE2", "V", event)
        if barrier:
            b.add(BarrierAll("V"))
        b.add(Add(slot, slot, COLUMNS))
        flag(SetFlag, "V", "MTE3", event)
        flag(WaitFlag, "V", "MTE3", event)
        b.add(CopyUbToGm.of(Gm(Y, (row,)), slot))
        flag(SetFlag, "MTE3", "MTE2", event)
    for event in range(2 * begins):
        flag(WaitFlag, "MTE3", "MTE2", event)
    return b.build()


if __name__ == "__main__":
    profile = load_profile("910B2")
    print("right:", check_flags(doubled(profile), profile), sep="\n")
    racing = doubled(profile, forgets=("V", "MTE3"))
    print("\nwithout flags from V to MTE3:", check_flags(racing, profile), sep="\n")
    print("\nwith barriers:", check_flags(doubled(profile, barrier=True), profile), sep="\n")
    try:
        doubled(profile, begins=False)
    except ProgramError as error:
        print(f"\nwithout the first two sets:\n{error}")
