"""The choice of tilings, slow and plain, and requests and layers to ask it for."""

from itertools import product
from math import ceil, prod
from operator import itemgetter
from typing import NamedTuple

from ascendsim import ConvProblem
from ascendsim.instructions.cube import Im2col, Mmad, TapRows, Transposed, round_up, spacing_needed
from ascendsim.instructions.movers import LoadL0A, LoadL0B
from ascendsim.ops.plan import Tiling, even_parts
from ascendsim.ops.problems.sliding import Taps, first_box
from ascendsim.ops.tiling.choose import choose
from ascendsim.ops.tiling.given import plan_of
from ascendsim.ops.tiling.request import PlanRequest
from ascendsim.ops.tiling.search.costs import NOWHERE, BaseBlock, Rates, SearchCosts, base_block
from ascendsim.ops.tiling.vendor.layer import LayerSizes, Layouts
from ascendsim.ops.tiling.vendor.layer import Machine as RulesMachine
from ascendsim.ops.tiling.vendor.operators import (
    first_plan,
    library_plan,
    operator_plan,
    plan_of_layer,
    product_plan,
    product_tiling,
)
from ascendsim.profile import load_profile

# -------------------------------------------------------------------------------------------------------
# The choice of tilings of convolutions, slow and plain: one candidate after another, costs as instructed.
# -------------------------------------------------------------------------------------------------------
# What `ops/tiling/search` does with whole arrays is done here with one number at a time; both must find the
# same tiling, of equal ones too.

LONGEST_LIST, HIDDEN, MOST = 6, 0.2, 512


class Machine:
    """A product with the format that its cube multiplies."""

    def __init__(self, profile, compute_dtype):
        self.profile, self.compute_dtype, self.cores = profile, compute_dtype, profile.cores.cube
        path, links = profile.paths["GM_L1"].bytes_per_cycle, profile.links
        self.load = min(float(path), float(links["l2_read"].total_bytes_per_cycle) / self.cores)
        path = profile.paths["L0C_GM" if profile.has_path("L0C", "GM") else "L0C_UB"].bytes_per_cycle
        self.store = min(float(path), float(links["l2_write"].total_bytes_per_cycle) / self.cores)

    def mmad(self, m, k, n):
        """One product, with the barrier that a small one needs."""
        spacing = self.profile.cube.mmad_latency_cycles if spacing_needed(self.profile, m, n) else 0
        product = Mmad(NOWHERE, NOWHERE, NOWHERE, m, k, n, self.compute_dtype, True)
        return spacing + product.cost(self.profile).cycles

    def left(self, read):
        """A load into L0A."""
        return LoadL0A(NOWHERE, NOWHERE, read).cost(self.profile).cycles

    def right(self, read):
        """A load into L0B."""
        return LoadL0B(NOWHERE, NOWHERE, read).cost(self.profile).cycles


def image_read(sliding, pixels, groups):
    """Return the im2col read of the first pixels of an image."""
    tile = sliding.tile(0, min(pixels, sliding.pixels), Taps(0, 1, 0, 1, 0, 1))
    return Im2col(tile.window, 0, pixels, 0, groups, sliding.itemsize)


def blocks(profile, itemsize, sizes, units, most_m=MOST):
    """Yield the base blocks that L0 holds."""
    for m in even_parts(sizes[0], units[0], min(MOST, most_m)):
        for n in even_parts(sizes[1], units[1], MOST):
            block = base_block(profile, itemsize, m, n, units[2])
            if block is not None:
                yield block


def even_slice(total: int, most: int, unit: int) -> int:
    """Return the slice length, a multiple of `unit` and at most `most`, that cuts `total` most evenly."""
    return min(most, round_up(ceil(total / ceil(total / most)), unit))


class _Candidate(NamedTuple):
    """A base block with the cycles of one task on FIX, and the share of the busiest core."""

    bound: float
    block: BaseBlock
    base_k: int
    fix: float
    rounds: int
    used: int


class _Chunk(NamedTuple):
    """The reduction that a tile in L1 may hold: slices of base_k, and what follows for one task.

    left, right   bytes of a tile of either operand
    tiles         tiles of one operand
    compute       cycles of all Mmads with their loads into L0
    """

    step: int
    left: int
    right: int
    tiles: int
    compute: float


def dgrad(gemm, profile):
    """Return the tilings of grad_input, that of the least bound first; none if nothing fits."""
    machine = Machine(profile, gemm.compute_dtype)
    for shorten, in_row in product((False, True), (False, True)):
        found = _best(gemm, machine, shorten=shorten, in_row=in_row)
        if found:
            return found
    return []


def _best(gemm, machine, *, shorten, in_row):
    """Return the best tilings with tiles of whole rows or inside a row; none if nothing fits."""
    s = gemm.sliding
    pixels = s.out_size[1] if in_row else s.pixels
    most_m, ub = MOST, machine.profile.buffers["UB"].capacity_bytes
    if machine.profile.core_structure == "unified" and s.insert != (1, 1):
        # Two pieces of results, float32 if the reduction is split, beside four of a pixel of 32 bytes.
        most_m = (ub - 4 * 32) // (2 * s.c0 * 4)
    unit = max(s.c0, machine.profile.cube.rates[gemm.compute_dtype].k0)
    found = blocks(machine.profile, s.itemsize, (pixels, gemm.columns), (16, s.c0, unit), most_m)
    ranked = sorted((_rank(gemm, machine, block, in_row=in_row) for block in found), key=lambda c: c.bound)
    best = []
    for number, candidate in enumerate(ranked):
        # Whatever the bound says of the others: the search leaves some of them out.
        if best and number >= LONGEST_LIST:
            break
        fitting = _with_chunks(gemm, machine, candidate, in_row=in_row)
        while fitting is None and shorten and candidate.base_k > unit:
            block = candidate.block._replace(k=round_up(candidate.base_k // 2, unit))
            candidate = _rank(gemm, machine, block, in_row=in_row)
            fitting = _with_chunks(gemm, machine, candidate, in_row=in_row)
        if fitting is not None:
            best.append(fitting)
    return in_order(best)


def _rank(gemm, machine, block, *, in_row):
    """Bound the cycles of a base block as if loads from GM were free."""
    s = gemm.sliding
    unit = max(s.c0, machine.profile.cube.rates[gemm.compute_dtype].k0)
    reduction = round_up(gemm.all_taps.groups * s.c0, unit)
    base_k = even_slice(reduction, min(block.k, reduction), unit)
    # A depth that nothing reaches is filled with zeros, not computed; the others meet unequally many depths.
    depths = [len(pairs) for pairs in gemm.depths if pairs]
    tiles = s.pixel_tile_count(block.m, in_row=in_row)
    tasks = gemm.groups * gemm.batch * max(1, len(depths)) * tiles * -(-gemm.columns // block.n)
    used = min(tasks, machine.cores)
    # The busiest core counts: with one task more than cores everything takes twice as long.
    rounds = -(-tasks // used)
    count = sum(depths) / max(1, len(depths)) * -(-reduction // base_k)
    compute = count * _slice_cycles(gemm, machine, block, base_k)
    fix = block.m * block.n * gemm.output.itemsize / machine.store
    # One accumulator: M waits until it has left. Two: the slower of both pipes.
    each = compute + fix if block.copies == 1 else max(compute, fix)
    return _Candidate(rounds * each + fix, block, base_k, fix, rounds, used)


def _slice_cycles(gemm, machine, block, k):
    """Bound the cycles of one Mmad and the loads of its operands."""
    s, groups = gemm.sliding, k // gemm.sliding.c0
    load = machine.left(image_read(s, block.m, groups))
    taps = gemm.all_taps.rows * gemm.all_taps.cols
    load += machine.right(TapRows(taps, gemm.backwards, 0, groups, s.c0, block.n, s.itemsize))
    return max(load, machine.mmad(block.m, k, block.n))


def _with_chunks(gemm, machine, candidate, *, in_row):
    """Return the bound and the tiling with the best L1 tiles for a base block, or None if L1 holds none."""
    s, (_, block, base_k, fix, rounds, used) = gemm.sliding, candidate
    whole, capacity = gemm.all_taps, machine.profile.buffers["L1"].capacity_bytes
    most = -(-whole.groups * s.c0 // base_k)
    steps = _useful_steps(whole, base_k, s.c0, most)
    chunks = [_chunk(gemm, machine, candidate, step, in_row=in_row) for step in steps]
    depth = max((len(pairs) for pairs in gemm.depths), default=1)
    path = machine.profile.paths["GM_L1"]
    # What the next copy waits for of the one before.
    head = path.head_cycles + min(path.in_turn_cycles, path.latency_cycles)
    column_blocks = -(-gemm.columns // block.n)
    # Cycles for each byte of a tile in L1; with zeros inserted less is loaded, but the tile is cleared first.
    right_cycles = 1 / machine.load
    left_cycles = right_cycles / (s.insert[0] * s.insert[1])
    if s.insert != (1, 1):
        left_cycles += 1 / float(machine.profile.paths["GM_L1"].bytes_per_cycle)
    best = None
    for a, b, copies in product(chunks, chunks, (2, 1)):
        # One copy of the weights pays only where they are whole, and so need not come again.
        if (copies == 1 and b.step < most) or 2 * a.left + copies * b.right > capacity:
            continue
        # A whole left tile serves all column blocks; whole right tiles stay if every column block has a copy.
        left_again = 1 if a.step < most or depth > 1 else 1 / min(column_blocks, rounds)
        stays = b.step == most and depth == 1 and column_blocks <= copies
        right_again = min(1.0, column_blocks / rounds) if stays else 1.0
        mte2 = left_again * depth * a.tiles * (head + a.left * left_cycles)
        mte2 += right_again * depth * b.tiles * (head + b.right * right_cycles)
        # What two copies would hide: weights that come while M waits, a tile that leaves while M waits.
        stall = b.right * right_cycles if copies == 1 and not stays else 0.0
        exposed = fix if block.copies == 1 else 0.0
        # The shorter tile decides how long the runs of the reduction are that slices are cut from.
        compute = depth * min(a, b, key=lambda chunk: chunk.step).compute
        each = max(compute, mte2, fix) + exposed + stall
        start = a.left * left_cycles + b.right * right_cycles
        bound = start + rounds * (each + HIDDEN * mte2) + fix
        if best is None or bound < best[0]:
            base = block.m, block.n, base_k, a.step, b.step
            best = bound, Tiling(*base, bl1_buffers=copies, cl0_buffers=block.copies, used_cores=used)
    return best


def _chunk(gemm, machine, candidate, step, *, in_row):
    """Return what L1 tiles of so many slices mean for a base block, at one kernel depth."""
    s, whole, block = gemm.sliding, gemm.all_taps, candidate.block
    box = first_box(whole, step * candidate.base_k, s.c0)
    left = s.tile_bytes(block.m, box, in_row=in_row)
    right = box.groups * s.c0 * round_up(block.n, machine.profile.cube.n0) * s.itemsize
    # (channel groups, kernel rows, kernel columns) of the whole in those of a box
    tiles = prod(-(-extent // part) for part, extent in zip(box[1::2], whole[1::2], strict=True))
    # The Mmads of a box are as equal as they can be.
    count = -(-box.groups // (candidate.base_k // s.c0))
    compute = count * _slice_cycles(gemm, machine, block, -(-box.groups // count) * s.c0)
    return _Chunk(step, left, right, tiles, tiles * compute)


def _useful_steps(whole, base_k, c0, most):
    """Return steps to try, longest first: the whole, halves of it by channel groups, parts of one group."""
    # A box is a run of whole channel groups, or of whole kernel rows of one group: steps in between would
    # leave a part of the tile empty.
    per_channel = whole.rows * whole.cols * c0
    channels, steps = whole.channels, {1}
    while channels >= 1:
        steps.add(-(-channels * per_channel // base_k))
        if channels == 1:
            break
        channels = -(-channels // 2)
    steps |= {max(1, per_channel // base_k // part) for part in (2, 4, 8)}
    return sorted({min(step, most) for step in steps}, reverse=True)


def in_order(found):
    """Return the tilings of pairs (bound, tiling), that of the least bound first, each once."""
    tilings = []
    for _, tiling in sorted(found, key=itemgetter(0)):
        if tiling not in tilings:
            tilings.append(tiling)
        if len(tilings) == LONGEST_LIST:
            break
    return tilings


def wgrad(gemm, profile):
    """Return the tilings of grad_weight, the least bound first; none where only a part of a row fits."""
    s, machine = gemm.sliding, Machine(profile, gemm.compute_dtype)
    k0 = max(16, profile.cube.rates[gemm.compute_dtype].k0)
    sizes, units = (gemm.rows, gemm.all_taps.groups * s.c0), (s.c0, s.c0, k0)
    found = [
        candidate
        for block in blocks(profile, s.itemsize, sizes, units)
        for candidate in _candidates(gemm, machine, block, k0)
    ]
    return in_order(found)


def _candidates(gemm, machine, block, k0):
    """Yield the bound and the tiling of one base block for each useful split of the reduction."""
    s, profile = gemm.sliding, machine.profile
    taps = s.kernel[0] * s.kernel[1]
    groups = block.n // s.c0
    # The columns of a block are a run of (channel group, tap). A run that begins inside a group touches one
    # group more than its length says, unless runs and groups fit into each other.
    channels = min(gemm.big.shape[3], -(-groups // taps) + (groups % taps != 0 and taps % groups != 0))
    box = gemm.all_taps._replace(channels=channels)
    base_k = even_slice(s.pixels, min(block.k, round_up(s.pixels, k0)), k0)
    step = _slices_in_l1(gemm, profile, block, base_k, box)
    if step is None:
        return
    pixels, k = min(step * base_k, s.pixels), min(base_k, s.pixels)
    images = gemm.batch * sum(len(pairs) for pairs in gemm.depths) / len(gemm.depths)
    segments = images * -(-s.pixels // pixels)
    outputs = gemm.groups * len(gemm.depths)
    outputs *= -(-gemm.rows // block.m) * -(-gemm.all_taps.groups // groups)
    per_slice = machine.left(Transposed(block.m // s.c0, 0, k, s.c0, s.itemsize, 0, s.out_size[1]))
    per_slice += machine.right(image_read(s, k, groups))
    slices_each = pixels / base_k
    mte1, cube = slices_each * per_slice, slices_each * machine.mmad(block.m, k, block.n)
    # Neither operand is met again within a task, so every segment loads both.
    loads = pixels * block.m * s.itemsize + s.tile_bytes(pixels, box, in_row=False)
    mte2 = loads / machine.load
    each = max(mte1, cube, mte2)
    fix = block.m * block.n * 4 / machine.store
    # With two copies in L0C a tile leaves while the next one is added up. Half of its time is charged all the
    # same: a short reduction does not hide all of it.
    exposed = fix if block.copies == 1 else fix / 2
    for split in _useful_splits(outputs, machine.cores, max(1, int(segments))):
        tasks = outputs * split
        used = min(tasks, machine.cores)
        # The busiest core decides, then the first loads and the last tile, which nothing hides.
        bound = -(-tasks // used) * (-(-segments // split) * each + exposed) + mte2 + fix
        if split > 1:
            # Zeros must be written, and all cores meet, before the first part can be added.
            bound += profile.sync.barrier_cycles + outputs * fix / used
        base = block.m, block.n, base_k, step, step
        yield bound, Tiling(*base, cl0_buffers=block.copies, k_split=split, used_cores=used)


def _useful_splits(outputs, cores, segments):
    """Return the numbers of parts to try: one, and those that fill whole rounds of all cores."""
    # One round leaves the fewest parts to add; two or three may cut the rest of a round.
    splits = {1} | {cores * rounds // outputs for rounds in (1, 2, 3)}
    return sorted(min(split, segments) for split in splits if split >= 1)


def _slices_in_l1(gemm, profile, block, base_k, box):
    """Return how many slices one pair of L1 tiles holds in two copies, or None if not even one fits."""
    s, capacity = gemm.sliding, profile.buffers["L1"].capacity_bytes
    # The whole image at best: its pixels are then fetched in one copy. Both tiles twice, for ping-pong.
    for step in sorted({-(-s.pixels // base_k), 16, 12, 8, 6, 4, 3, 2, 1}, reverse=True):
        pixels = step * base_k
        if pixels >= s.pixels + base_k:
            continue
        left = round_up(block.m, profile.cube.m0) * pixels * s.itemsize
        right = s.tile_bytes(pixels, box, in_row=False)
        if 2 * (left + right) <= capacity:
            return step
    return None


# --- The library's search for 2-D plans of grad_input, slow and plain: one base block after another. ---
# What `ops/tiling/vendor/arch22/library` does with whole arrays; both must find the same blocks, of equal
# ones too.


def best_dgrad_tiles(gemm, profile, m_all, n_all):
    """Return (m, n, k, blocks, cycles) of the best block of a cell of so many fractals; None if none fits."""
    costs = SearchCosts(Rates(profile, gemm.compute_dtype, profile.cores.cube), gemm.sliding, "L0A")
    results, operand = room_of(profile)
    best, whole, wide = None, gemm.all_taps.groups, gemm.sliding.itemsize == 4
    for columns in range(1, n_all + 1):
        n = -(-n_all // columns)
        # The least rows of blocks that fit, found one by one.
        fitting = [r for r in range(1, m_all + 1) if max(-(-m_all // r), n) <= operand]
        fitting = [r for r in fitting if -(-m_all // r) * n <= results]
        if not fitting:
            continue
        m = -(-m_all // fitting[0])
        k = 1 if wide else max(p for p in range(1, operand // max(m, n) + 1) if whole % p == 0)
        pixels, width, rows = min(16 * m, gemm.sliding.pixels), 16 * n, k * gemm.sliding.c0
        load = int(costs.load_image(pixels, k))
        load += int(costs.load_weights(rows, width, backwards=gemm.backwards, taps=gemm.taps))
        step = max(load, int(costs.mmad(pixels, rows, width)))
        blocks = fitting[0] * columns
        if best is None or blocks * (whole // k) * step < best[-1]:
            best = m, n, k, blocks, blocks * (whole // k) * step
    return best


def room_of(profile):
    l0a, l0b, l0c = (profile.buffers[name].capacity_bytes for name in ("L0A", "L0B", "L0C"))
    return l0c // 1024, min(l0a, l0b) // 2 // 512


# -------------------------------------------------------------------------------------------------------
# Plans as tests ask for them: requests written in one line, with operands by their format in memory.
# -------------------------------------------------------------------------------------------------------


def asked(problem, gradient, dtype, profile, *, hf32=False, **more):
    """A request; hf32: float32 that the cube rounds."""
    return PlanRequest(problem, gradient, "hf32" if hf32 else dtype, profile, **more)


def chosen_plan(*of, strategy="product", **more):
    """The plan of a strategy."""
    return choose(asked(*of, **more), strategy)


def operators_plan(*of, by_winograd=True, **more):
    """The plan of the product's operator, in its own words."""
    return operator_plan(asked(*of, **more), by_winograd=by_winograd)


def nest_plan(*of, by_winograd=True, **more):
    """The same for a loop nest."""
    return product_tiling(asked(*of, **more), by_winograd=by_winograd)


def products_plan(*of, **more):
    """The plan of the product's rules, and why there is none."""
    return product_plan(asked(*of, **more))


def first_rule(*of, **more):
    """The plan by the rules of the first generation."""
    return first_plan(asked(*of, **more))


def library_rule(*of, **more):
    """The plan by the library of 2-D kernels."""
    return library_plan(asked(*of, **more))


def plans_of(problem, gradients, compute, profile, tilings=None, schedules=None, out_dtype=None, **more):
    """The plans of several gradients of a call, what the user gives of them by gradient."""
    given = tilings or {}, schedules or {}
    of = {
        gradient: PlanRequest(problem, gradient, compute, profile, out_dtype, **more)
        for gradient in gradients
    }
    return {name: plan_of(request, *(each.get(name) for each in given)) for name, request in of.items()}


# --- Layers and cores for tests of the products' rules: what these ask for, without a profile. ---------

# 910B2 and the 32 cores of a 910_95.
ARCH22 = RulesMachine(524288, 65536, 65536, 131072, 196608, 24)
ARCH35 = RulesMachine(524288, 65536, 65536, 262144, 253952, 32)
LAST = Layouts("NDHWC", "NCDHW", "NDHWC")


def layer(input, weight, *attributes, dtype="float16", hf32=False, layouts=None, **more):
    """A layer as the rules see it; attributes as those of a convolution."""
    found = LayerSizes.of(ConvProblem(input, weight, *attributes, **more), "hf32" if hf32 else dtype)
    return found if layouts is None else found._replace(layouts=layouts)


def square(channels, out, size, kernel=3, stride=1, batch=1, padding=None, **more):
    """A layer of square images and kernels, padded so that unit steps keep the size."""
    pad = kernel // 2 if padding is None else padding
    return layer((batch, channels, size, size), (out, channels, kernel, kernel), stride, pad, **more)


def rows(height, width, channels, out, batch=128, kernel=1, **more):
    """Images of any height and width, padded likewise; 128 of them are no few tasks for 32 cores."""
    return layer((batch, channels, height, width), (out, channels, kernel, kernel), 1, kernel // 2, **more)


def plan(layer, gradient, machine, dtype="float16", **more):
    """What the operator chooses on either generation of cores, which L0C tells apart here."""
    arch = "2201" if machine.l0c == ARCH22.l0c else "3510"
    return plan_of_layer(layer, machine, gradient, dtype, arch, **more)


def base(plan):
    """The sides of the base block of a plan, or of a tiling."""
    return plan.base_m, plan.base_n, plan.base_k


# --- A layer, a part and what its rules give: shared by the tests of the first generation's plans. -----

OLD = load_profile("910B_old_1001")
# 128 <- 128 channels of 3x3 on 40x40, 32 images.
LAYER = ConvProblem((32, 128, 40, 40), (128, 128, 3, 3), 1, 1)


def tiling_of(problem, gradient, profile=OLD, **more):
    """The tiling of a gradient in float16, as the rules choose it."""
    return first_rule(problem, gradient, "float16", profile, **more).tiling


def grid_of(tiling):
    """The parts of batch, columns and rows, and the cores that work on them."""
    return tiling.batch_dim, tiling.n_dim, tiling.m_dim, tiling.used_cores
