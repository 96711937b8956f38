"""Are the bytes at every level, and the energy, those that a plain count of every instruction gives?"""

from collections import Counter
from random import Random

import pytest

from ascendsim import load_profile
from ascendsim.instructions.cube import Mmad
from ascendsim.instructions.movers import (
    CopyGmToL1,
    CopyL0cToUb,
    FillL1,
    Fixpipe,
    LoadL0A,
    ReadOut,
)
from ascendsim.instructions.relayout import PieceToL1, Rearrange, SpreadPixels, TurnTile
from ascendsim.instructions.vector import (
    Add,
    AddLanes,
    AddRows,
    Cast,
    CopyGmToUb,
    CopyUbToGm,
    Fill,
    SumLanes,
    SumPixels,
)
from ascendsim.instructions.winograd import ToPoints, ToTaps
from ascendsim.numerics.dtypes import ELEMENTS, find
from ascendsim.ops.matmul import estimate_matmul
from ascendsim.ops.plan import Tiling
from ascendsim.ops.problems.products import MatmulProblem
from ascendsim.studies.traffic import kernel_traffic
from tests.helpers.both_engines import random_call, random_matmul

# What hands on a tile as it is; the others compute.
MOVES = (CopyGmToL1, CopyGmToUb, LoadL0A, Cast, PieceToL1, Rearrange, SpreadPixels, TurnTile, ToPoints)


class Tile:
    """Something in a slot: the tensor it is of, where that is known, and the bytes counted before that."""

    def __init__(self, owner=None):
        self.owner, self.part_of, self.counts = owner, None, Counter()

    def tensor(self):
        return self.owner or (self.part_of.tensor() if self.part_of else "any")


def element_bytes(name):
    return 4 if name.startswith("hf32") else find(name, ELEMENTS).itemsize


def plain_sizes(made):
    """Bytes of each slot that an instruction reads and writes, by the sizes of its tiles."""
    match made:
        case LoadL0A():
            rows, columns = made.tile_read.matrix_shape()
            return [rows * columns * made.tile_read.itemsize] * 2
        case Mmad():
            size, sums = element_bytes(made.compute_dtype), made.m * made.n * 4
            return [made.m * made.k * size, made.n * made.k * size, *[sums] * (2 - made.first)]
        case CopyGmToL1() | FillL1() | CopyGmToUb() | CopyUbToGm() | Fill():
            return [made.bytes]
        case Fixpipe():
            return [0 if made.read_out else made.bytes // made.dst.tensor.itemsize * 4]
        case ReadOut():
            return [made.elements * 4, 0]
        case CopyL0cToUb():
            return [made.elements * 4, made.elements * element_bytes(made.dtype)]
        case Cast():
            return [made.elements * made.source_bytes, made.elements * element_bytes(made.dtype)]
        case PieceToL1() | Rearrange():
            return [made.bytes] * 2
        case Add():
            return [made.elements * 4] * 3
        case AddLanes():
            return [made.rows * 256, made.rows * made.length * made.itemsize, made.rows * 256]
        case AddRows():
            return [made.length * 4, made.rows * made.length * made.itemsize, made.length * 4]
        case SumLanes():
            return [made.rows * 256, made.rows * 4]
        case SumPixels():
            return [made.rows * made.pixels * 4, made.rows * 4]
        case TurnTile() | SpreadPixels() | ToPoints() | ToTaps():
            return made.touched_bytes
    return []


def plain_counts(kernel, profile):
    """Walk every instruction of every core by itself: (level, tensor, written) -> bytes."""
    found = Counter()
    for work in (work for phase in kernel.phases for work in phase.work):
        tiles, all_tiles = {}, []
        for made in work.build().instructions:
            read = [tiles.setdefault(slot.index, Tile()) for slot in made.reads]
            tensor = made.gm.tensor.name if made.gm is not None else None
            for tile in read:
                tile.owner = tile.owner or tensor
            for slot in made.writes:
                old = tiles.get(slot.index)
                # Zeros between copied pixels belong to these.
                zeros = old is not None and not old.owner and isinstance(made, CopyGmToL1 | CopyGmToUb)
                if slot not in made.reads and not zeros:
                    tiles[slot.index] = Tile()
                target = tiles[slot.index]
                if isinstance(made, MOVES):
                    target.owner = target.owner or tensor or read[-1].owner
                for tile in read:
                    if tile is not target:
                        tile.part_of = target
            uses = [(tile, slot, False) for tile, slot in zip(read, made.reads, strict=True)]
            uses += [(tiles[slot.index], slot, True) for slot in made.writes]
            for (tile, slot, written), size in zip(uses, plain_sizes(made), strict=True):
                tile.counts[slot.buffer.rpartition(".")[2], written] += size
                tile.ring = slot.buffer, slot.name.partition("[")[0]
                all_tiles.append(tile)
            if moved := made.cost(profile).traffic:
                found["L2", moved.tensor.name, moved.kind != "read"] += moved.bytes
        for tile in {id(tile): tile for tile in all_tiles}.values():
            # Zeros in the place of a tensor's tile are the tensor's.
            own = (one.owner for one in [tile, *all_tiles] if one.ring == tile.ring and one.owner)
            tensor = next(own, None) or tile.tensor()
            for (level, written), size in tile.counts.items():
                found[level, tensor, written] += size
    return {key: size for key, size in found.items() if size}


def counted(traffic):
    """What `kernel_traffic` counts on chip and at L2, in the form of `plain_counts`."""
    both = ((move, way) for move in traffic.moves if move.level != "memory" for way in (False, True))
    sizes = {(m.level, m.operand, way): m.written if way else m.read for m, way in both}
    return {key: size for key, size in sizes.items() if size}


def joined(plain, names):
    """A plain count, with tensors taken together that the other cannot tell apart: "a+b"."""
    found = Counter()
    for (level, tensor, written), size in plain.items():
        parts = set(tensor.split("+"))
        shared = [name for at, name in names if at == level and parts < set(name.split("+"))]
        found[level, shared[0] if shared else tensor, written] += size
    return found


def random_kernels(seed):
    rng = Random(seed)
    if rng.random() < 0.3:
        kernels, profile = random_matmul(rng)
        return kernels, profile
    kernels, profile, _ = random_call(rng)
    return kernels, profile


def results_of(kernels, profile):
    """Kernels as results, which `kernel_traffic` reads."""
    from ascendsim.ops.graph_times import known_times, summarise

    for kernel in kernels:
        times = known_times(kernel, profile, folded=True, l2_start="cold")
        yield summarise(kernel, profile, times, None, "compiled", "cold")


@pytest.mark.parametrize(
    "first", [0, *(pytest.param(first, marks=pytest.mark.slow) for first in range(30, 230, 50))]
)
def test_counts_are_those_of_every_instruction_by_itself(first):
    left = 30 if not first else 50
    seed = first
    while left > 0:
        kernels, profile = random_kernels(f"traffic {seed}")
        seed += 1
        for result in results_of(kernels[:left], profile):
            traffic = kernel_traffic(result, profile)
            found = counted(traffic)
            names = [name[:2] for name in found]
            plain = plain_counts(result.kernel, profile)
            assert joined(found, names) == joined(plain, names), (seed, result.name)
            assert traffic.at("L2") == (result.bytes["l2_read"], result.bytes["l2_write"])
            assert traffic.at("memory") == (result.bytes["memory_read"], result.bytes["memory_write"])
            left -= 1


def test_a_product_is_counted_by_its_loop_bounds():
    # 256 x 512 x 384 in tiles of 64 x 128: A once for each of 3 tiles along n, B for each of 4 along m.
    m, k, n = 256, 512, 384
    tiling = Tiling(64, 128, 64, 1, 1, used_cores=4)
    profile = load_profile("910B2")
    (result,) = estimate_matmul(MatmulProblem(m, k, n), product=profile, tiling=tiling).kernels
    traffic = kernel_traffic(result, profile)
    assert traffic.macs == {"float16": m * k * n}
    assert [traffic.at(level)[0] for level in ("L0A", "L0B")] == [3 * m * k * 2, 4 * k * n * 2]
    # Sums are read for all but the first of 512 / 64 products into a tile, and by Fixpipe.
    assert traffic.at("L0C") == (8 * m * n * 4, 8 * m * n * 4)
