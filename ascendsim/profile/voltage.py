"""The voltage at the clock of a product, and what that does to the energy of an event.

A product file may say at which clock its figures of [energy] hold (`energy.nominal_mhz`), and the voltage of
the cores at some clocks (`energy.voltage_v`). Between two of them it is a straight line. Then

    multiply-adds, bytes of L1, L0 and UB, cycles of vector units and cores   go by (V / V nominal)^2
    leakage a second                                                          goes by V / V nominal
    bytes of L2 and of memory                                                 stay as they are

The second line is an assumption of this model; `energy.leakage_exponent` states another power. L2, memory and
links have a supply and a clock of their own: their rates do not follow the clock of the cores either.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

from ascendsim.errors import ConfigError
from ascendsim.profile.records import Profile

LEAKAGE = "energy.leakage_pj_per_cycle"
_TABLE = "energy.voltage_v."
_OWN_SUPPLY = (".L2", ".memory")


class Supply(NamedTuple):
    """The clock and voltage of a product's cores, and those at which its figures of [energy] hold.

    volts, nominal_volts   exact; None where the product has no table: one voltage at any clock
    exponent               power of the voltage by which leakage goes
    """

    mhz: int
    nominal_mhz: int
    volts: Fraction | None
    nominal_volts: Fraction | None
    exponent: int

    def factor(self, figure: str) -> Fraction:
        """Return by what a figure of [energy] is multiplied, given by its path."""
        ratio = self.volts / self.nominal_volts if self.volts and self.nominal_volts else Fraction(1)
        if figure == LEAKAGE:
            # So much a second: a cycle of a slower clock lasts longer.
            return ratio**self.exponent * Fraction(self.nominal_mhz, self.mhz)
        return Fraction(1) if figure.endswith(_OWN_SUPPLY) else ratio**2


def supply_of(profile: Profile) -> Supply | None:
    """Return the supply of a product's cores; None where it does not say at which clock its energies hold.

    Raises   ConfigError for a clock outside those of the table
    """
    figures, mhz = profile.figures, profile.clock.cube_mhz
    if "energy.nominal_mhz" not in figures:
        return None
    # Through text, since the float 0.1 is no tenth.
    volts = {
        int(path.removeprefix(_TABLE)): Fraction(str(figure.value))
        for path, figure in figures.items()
        if path.startswith(_TABLE)
    }
    if volts and not min(volts) <= mhz <= max(volts):
        raise ConfigError(
            f"clock.cube_mhz: got {mhz}; energy.voltage_v of {profile.variant} has voltages for {min(volts)} "
            f"to {max(volts)} MHz: take a clock among them, or add its voltage"
        )
    nominal = int(figures["energy.nominal_mhz"].value)
    exponent = figures["energy.leakage_exponent"].value if "energy.leakage_exponent" in figures else 1
    return Supply(mhz, nominal, volts_at(mhz, volts), volts_at(nominal, volts), exponent)


def volts_at(mhz: int, volts: Mapping[int, Fraction]) -> Fraction | None:
    """Return the voltage at a clock within a table, MHz -> V; None where the table is empty."""
    if mhz in volts or not volts:
        return volts.get(mhz)
    low, high = next(pair for pair in pairwise(sorted(volts)) if pair[0] < mhz < pair[1])
    return volts[low] + (volts[high] - volts[low]) * Fraction(mhz - low, high - low)
