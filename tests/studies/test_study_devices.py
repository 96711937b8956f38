"""Is the step of data parallel training that of a plain simulation, and the needed link the slowest one?"""

import json
import random
from fractions import Fraction
from math import ceil

import pytest

from ascendsim.cli import main
from ascendsim.studies.devices import BackwardCall, DeviceRing, in_turn, needed_link, overlapped, simulated

# At 1000 MHz a cycle is a nanosecond, and a GB/s a byte in a cycle.
MHZ = 1000


@pytest.mark.parametrize(
    ("devices", "size", "cycles"),
    # Two: half of the bytes twice, two latencies of 10 cycles; four: 6 quarters, 6 latencies.
    [(2, 4000, 4000 + 20), (4, 4000, 6000 + 60), (3, 10, 14 + 40), (4, 0, 0)],
)
def test_a_ring_sends_each_share_and_waits_for_each_latency(devices, size, cycles):
    assert DeviceRing(devices, Fraction(1), Fraction(1, 100)).cycles(size, MHZ) == cycles


@pytest.mark.parametrize(
    ("shares", "together", "apart"),
    [
        # Each all-reduce takes its bytes and 20. The second waits for its call, 150, not for the link.
        ([(100, 10), (50, 30)], 150 + 50, 150 + 30 + 50),
        # The link is free at 100 + 220; the second waits for it.
        ([(100, 200), (50, 30)], 100 + 220 + 50, 150 + 220 + 50),
        # The one without gradients sends nothing.
        ([(100, 200), (500, 0)], 600, 600 + 220),
        ([], 0, 0),
    ],
)
def test_steps_by_hand(shares, together, apart):
    shares, ring = [BackwardCall(*one) for one in shares], DeviceRing(2, Fraction(1), Fraction(1, 100))
    assert simulated(shares, ring, MHZ) == overlapped(shares, ring, MHZ) == together
    assert in_turn(shares, ring, MHZ) == apart


@pytest.mark.parametrize("seed", range(50))
def test_one_pass_is_the_simulation_and_the_link_the_slowest_one(seed):
    drawn = random.Random(seed)
    sizes = [(drawn.randrange(1, 500), drawn.choice((0, drawn.randrange(9000)))) for _ in range(seed % 9 + 1)]
    shares, devices = [BackwardCall(*one) for one in sizes], drawn.randrange(2, 9)
    ring = DeviceRing(devices, Fraction(drawn.randrange(1, 90), 7), Fraction(drawn.randrange(3), 1000))
    assert simulated(shares, ring, MHZ) == overlapped(shares, ring, MHZ)
    calls, most = sum(one.cycles for one in shares), Fraction(1, 10)
    needed = needed_link(shares, ring, MHZ, most, overlap=True)

    def added(rate):
        step = simulated(shares, ring._replace(gb_per_s=rate), MHZ)
        return Fraction(step - calls, step)

    if needed is None:
        assert added(Fraction(10**6)) > most
    else:
        assert added(needed) <= most
        slower = needed - Fraction(1, 1000)
        assert not slower or added(slower) > most


def test_two_dies_are_what_910C_means_and_others_state_their_link(tmp_path, capsys):
    words = ["study", "devices", "s5b1*", "--store", str(tmp_path / "kept.sqlite"), "--jobs", "1", "--json"]
    assert main([*words, "--product", "910C"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["variant"], made["ring"]) == (
        "910_9382",
        {"devices": 2, "gb_per_s": 224.0, "latency_us": 0.2},
    )
    (step,) = made["steps"]
    # Of 2 x (1x1 of 2048 to 512, and 3x3 of 512) all bytes cross the link once, each with two latencies, in
    # whole cycles of 1800 MHz.
    sizes = [2 * 2048 * 512, 2 * 9 * 512 * 512]
    sent = 2 * sum(ceil((Fraction(size, 224_000) + Fraction(4, 10)) * 1800) for size in sizes)
    assert step["reduce_us"] == sent / 1800
    assert step["alone_share"] == sent / (round(step["calls_us"] * 1800) + sent)
    assert step["added_us"] < step["reduce_us"]
    assert main([*words, "--product", "910C", "--link-gb-per-s", "x0.5"]) == 0
    half = json.loads(capsys.readouterr().out)
    assert half["ring"] == {"devices": 2, "gb_per_s": 112.0, "latency_us": 0.2}
    # A part of what is assumed is assumed.
    assert "with 112 GB/s (assumed, 56 to 112) and 0.2 us" in half["answer"]
    assert main([*words, "--product", "910C", "--link-gb-per-s", "x0"]) != 0
    assert "'x0' is no factor of a rate; give one above 0, such as x0.5" in capsys.readouterr().err
    assert main([*words, "--product", "910B2"]) != 0
    assert "its file has no link between devices" in capsys.readouterr().err
    # The product's link lies in a range; that of the user does not.
    assert "with 224 GB/s (assumed, 112 to 224) and 0.2 us" in made["answer"]
    assert "begun after the backward, the all-reduce takes " in made["answer"]
    link = "--devices", "4", "--link-gb-per-s", "28", "--link-latency-us", "2"
    assert main([*words, "--product", "910B2", *link]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["ring"] == {"devices": 4, "gb_per_s": 28.0, "latency_us": 2.0}
    assert "with 28 GB/s and 2 us" in made["answer"]
    assert main([*words[:-1], "--product", "910C"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "needs GB/s, alone GB/s: The slowest link" in text
