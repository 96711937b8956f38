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
from itertools import pairwise, product
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
    ratios                 volts / nominal_volts where each voltage of the table lies at an end of its range
    exponents              the ends of the range of `exponent`
    volts_assumed, exponent_assumed   whether nobody published or measured them
    """

    mhz: int
    nominal_mhz: int
    volts: Fraction | None
    nominal_volts: Fraction | None
    exponent: int
    ratios: frozenset[Fraction]
    exponents: frozenset[int]
    volts_assumed: bool
    exponent_assumed: bool

    def factor(self, figure: str) -> Fraction:
        """Return by what a figure of [energy] is multiplied, given by its path."""
        ratio = self.volts / self.nominal_volts if self.volts and self.nominal_volts else Fraction(1)
        return self._factor(figure, ratio, self.exponent)

    def ends(self, figure: str) -> tuple[Fraction, Fraction]:
        """Return the least and the largest factor of a figure, as voltages and the exponent have ranges."""
        factors = [self._factor(figure, *both) for both in product(self.ratios, self.exponents)]
        return min(factors), max(factors)

    def is_assumed(self, figure: str) -> bool:
        """Tell whether the factor of a figure hangs on an assumption."""
        least, most = self.ends(figure)
        return least < most and (self.volts_assumed or (figure == LEAKAGE and self.exponent_assumed))

    def _factor(self, figure: str, ratio: Fraction, exponent: int) -> Fraction:
        if figure == LEAKAGE:
            # So much a second: a cycle of a slower clock lasts longer.
            return ratio**exponent * Fraction(self.nominal_mhz, self.mhz)
        return Fraction(1) if figure.endswith(_OWN_SUPPLY) else ratio**2


def supply_of(profile: Profile) -> Supply | None:
    """Return the supply of a product's cores; None where it does not say at which clock its energies hold.

    Raises   ConfigError for a clock outside those of the table
    """
    figures, mhz = profile.figures, profile.clock.cube_mhz
    if "energy.nominal_mhz" not in figures:
        return None
    table = {
        int(path.removeprefix(_TABLE)): figure for path, figure in figures.items() if path.startswith(_TABLE)
    }
    if table and not min(table) <= mhz <= max(table):
        raise ConfigError(
            f"clock.cube_mhz: got {mhz}; energy.voltage_v of {profile.variant} has voltages for {min(table)} "
            f"to {max(table)} MHz: take a clock among them, or add its voltage"
        )
    nominal = int(figures["energy.nominal_mhz"].value)
    power = figures.get("energy.leakage_exponent")
    exponent = power.value if power else 1
    # Through text, since the float 0.1 is no tenth.
    usual = {clock: Fraction(str(figure.value)) for clock, figure in table.items()}
    met = sorted({*_beside(mhz, usual), *_beside(nominal, usual)})
    ends = ([Fraction(str(end)) for end in table[clock].range or (table[clock].value,)] for clock in met)
    # A ratio of straight lines is least and largest where each voltage is at an end.
    corners = [dict(zip(met, volts, strict=True)) for volts in product(*ends)]
    ratios = frozenset(_volts_at(mhz, own) / _volts_at(nominal, own) for own in corners if own)
    return Supply(
        mhz,
        nominal,
        _volts_at(mhz, usual) if usual else None,
        _volts_at(nominal, usual) if usual else None,
        exponent,
        ratios or frozenset([Fraction(1)]),
        frozenset(power.range if power and power.range else [exponent]),
        any(table[clock].confidence == "assumed" for clock in met),
        power is not None and power.confidence == "assumed",
    )


def _beside(mhz: int, volts: Mapping[int, Fraction]) -> tuple[int, ...]:
    """Return the clocks of a table on whose voltages that at a clock depends."""
    if mhz in volts or not volts:
        return (mhz,) if volts else ()
    return next(pair for pair in pairwise(sorted(volts)) if pair[0] < mhz < pair[1])


def _volts_at(mhz: int, volts: Mapping[int, Fraction]) -> Fraction:
    """Return the voltage at a clock within a table, MHz -> V."""
    low, high = (clocks := _beside(mhz, volts))[0], clocks[-1]
    slope = (volts[high] - volts[low]) / (high - low) if high > low else Fraction(0)
    return volts[low] + slope * (mhz - low)
