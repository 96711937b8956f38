"""Are compiled conversions between binary16 and binary32 those of numpy, which rounds correctly?"""

import numpy as np
import pytest

from ascendsim.numerics.compiled.gathered import halves
from ascendsim.numerics.compiled.gathered import turned as turning
from ascendsim.numerics.compiled.gathered.halves import narrowed, on_half_grid, rounded_halves, widened
from ascendsim.numerics.compiled.gathered.turned import turn_to, turned, turned_to_halves

CODES = np.arange(65536, dtype=np.uint16).view(np.float16)


def same_bits(x, y):
    kind = f"u{x.itemsize}"
    nan = np.isnan(x) & np.isnan(y)
    return x.dtype == y.dtype and x.shape == y.shape and np.all((x.view(kind) == y.view(kind)) | nan)


def test_every_code_is_widened_exactly():
    assert same_bits(widened(CODES), CODES.astype(np.float32))


def test_every_value_and_the_midpoints_with_their_neighbours_are_rounded_to_the_even_side():
    finite = CODES[np.isfinite(CODES)].astype(np.float64)
    ordered = np.unique(finite)
    # 65520 is the midpoint between the largest value and where the next one would be.
    middles = np.append((ordered[1:] + ordered[:-1]) / 2, [65520.0, -65520.0]).astype(np.float32)
    values = [np.nextafter(middles, np.float32(side)) for side in (-np.inf, np.inf)]
    every = np.concatenate([finite.astype(np.float32), middles, *values])
    with np.errstate(all="ignore"):
        assert same_bits(on_half_grid(every), every.astype(np.float16).astype(np.float32))
        assert same_bits(rounded_halves(every), every.astype(np.float16))


@pytest.mark.parametrize("place", [0, 130, 299])
def test_only_what_is_on_the_grid_is_narrowed(place):
    # All codes but those of NaN, whose payloads the conversion makes quiet: in whole panels and beyond.
    codes = CODES[~np.isnan(CODES)]
    assert same_bits(narrowed(codes.astype(np.float32)), codes)
    values = np.resize(codes, 300).astype(np.float32)
    assert same_bits(narrowed(values), np.resize(codes, 300))
    for off in (np.nextafter(np.float32(1), np.float32(2)), 65520.0, 2.0**-25, 3 * 2.0**-25):
        wrong = values.copy()
        wrong[place] = off
        assert narrowed(wrong) is None
    # The lowest bit of a payload has no place in binary16, the highest has.
    lost, kept = np.array([0x7FC00001, 0x7FC02000], np.uint32).view(np.float32)
    values[place] = lost
    assert narrowed(values) is None
    values[place] = kept
    assert same_bits(narrowed(values).astype(np.float32), values)


def test_any_bits_are_rounded():
    values = np.random.default_rng(0).integers(0, 2**32, 300_001, dtype=np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        assert same_bits(on_half_grid(values), values.astype(np.float16).astype(np.float32))
        assert same_bits(rounded_halves(values), values.astype(np.float16))
    # To the last bit, that of a NaN too: what two passes make.
    assert rounded_halves(values).tobytes() == narrowed(on_half_grid(values)).tobytes()


@pytest.mark.parametrize("shape", [(0,), (1,), (127,), (3, 5, 43), (4, 0, 2)])
def test_shapes_are_kept_and_strides_are_followed(shape):
    values = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    halves = values.astype(np.float16)
    on_grid = halves.astype(np.float32)
    assert same_bits(narrowed(on_grid), halves)
    assert same_bits(narrowed(on_grid.T), halves.T.copy())
    assert same_bits(on_half_grid(values.T), on_grid.T.copy())
    assert same_bits(rounded_halves(values.T), halves.T.copy())
    assert same_bits(widened(halves.T), halves.T.astype(np.float32).copy())


def test_halves_that_lie_anywhere_are_converted():
    # From an odd address, and read-only.
    values = np.arange(300, dtype=np.float16)
    moved = np.frombuffer(b"\0" + values.tobytes(), np.uint8)[1:].view(np.float16)
    assert not moved.flags.aligned
    assert not moved.flags.writeable
    assert same_bits(widened(moved), values.astype(np.float32))


@pytest.mark.parametrize("converts", [True, False])
@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 5, 40), (3, 33, 17), (2, 32, 48), (0, 4, 4)])
def test_matrices_are_converted_from_and_to_binary16_as_they_are_turned(monkeypatch, converts, shape):
    # Without conversions of the processor's own it takes a pass more, and numpy.
    own = converts and turning.HALF_CONVERSIONS
    for module in (turning, halves):
        monkeypatch.setattr(module, "HALF_CONVERSIONS", own)
    codes = np.random.default_rng(0).integers(0, 1 << 16, shape).astype(np.uint16).view(np.float16)
    assert same_bits(turned(codes), codes.astype(np.float32).transpose(0, 2, 1).copy())
    # Read-only, from an odd address, and in strides.
    moved = np.frombuffer(b"\0" + codes.tobytes(), np.uint8)[1:].view(np.float16).reshape(shape)
    assert same_bits(turned(moved), codes.astype(np.float32).transpose(0, 2, 1).copy())
    assert same_bits(turned(codes[:, ::-1]), codes[:, ::-1].astype(np.float32).transpose(0, 2, 1).copy())
    # Ties between neighbours in binary16, what lies beyond its largest value, and below its smallest.
    same = np.zeros((shape[0], shape[2], shape[1]), np.float16)
    turn_to(codes, np.arange(shape[2]) * shape[1], same)
    assert same.tobytes() == codes.transpose(0, 2, 1).tobytes()  # to the last bit of a NaN
    with np.errstate(all="ignore"):
        values = np.ldexp(codes.astype(np.float32), np.random.default_rng(1).integers(-12, 2, shape))
        assert same_bits(turned_to_halves(values), values.astype(np.float16).transpose(0, 2, 1).copy())
