"""Read the values of the command line: from their texts to what they mean."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence

from ascendsim.errors import ConfigError

GRADIENT_NAMES = ("input", "weight", "bias")
GRADIENTS = tuple(f"grad_{name}" for name in GRADIENT_NAMES)


def sizes(text: str) -> tuple[int, ...]:
    """Read "4,128,28,28"."""
    # Whether they fit together is for the problem to say, which knows what each stands for.
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a list of whole numbers such as 4,128,28,28"
        ) from None


def gradients(text: str) -> tuple[bool, bool, bool]:
    """Read "input,weight" as an output mask."""
    # Reports call them grad_input and so on: what was read there may be written here.
    names = [part.strip().removeprefix("grad_") for part in text.split(",")]
    for name in names:
        if name not in GRADIENT_NAMES:
            raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(GRADIENT_NAMES)}")
    return ("input" in names, "weight" in names, "bias" in names)


def order(text: str) -> str | int:
    """Read an order of execution: "program", "arrival" or the seed of a random legal one."""
    if text in ("program", "arrival"):
        return text
    try:
        return natural(text)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not program, arrival or a seed (0, 1, 2, ...)"
        ) from None


def positive(text: str) -> int:
    """Read 1, 2, 3, ..."""
    number = _whole(text)
    if not number:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return number


def natural(text: str) -> int:
    """Read 0, 1, 2, ..."""
    number = _whole(text)
    if number is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 0 or more")
    return number


def finite(text: str) -> float:
    """Read a number that is neither infinite nor NaN."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number")
    return number


def _whole(text: str) -> int | None:
    # int() would also take "1_000", " 7" and digits of other scripts; 19 digits could exceed 64 bits.
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def each_once(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of different products, in their order, and say which are the same chip.

    A product's plain name is that of one of its variants, and a file may hold what another does: to answer
    both would print one answer twice, and count one chip as two.

    Raises   ConfigError for a name of no product, or for two products that reports would call the same
    """
    from ascendsim.profile import load_profile

    found: dict[tuple[str, bytes], str] = {}
    called: dict[str, str] = {}
    for name in dict.fromkeys(names):
        profile = load_profile(name)
        first = found.setdefault((profile.variant, profile.content), name)
        if first != name:
            print(f"--product {name}: is {profile.variant}, as {first} is; answered once", file=sys.stderr)
            continue
        other = called.setdefault(profile.variant, name)
        if other != name:
            raise ConfigError(
                f"--product {other} and --product {name} are two products that are both called "
                f'{profile.variant}; give one of the files another name, or a line variant = "..."'
            )
    return tuple(found.values())
