"""The library's search for 2-D plans, slow and plain: one base block after another, one number at a time.

What `ops/tiling/vendor/library` does with whole arrays; both must find the same blocks, of equal ones too.
"""

from ascendsim.cube.load3d import row_spans
from ascendsim.ops.tiling.search.costs import Costs
from ascendsim.ops.tiling.search.rates import Rates

# As the library has them.
LOAD3D, MMAD, COPY, SLOW, EXTRA = 42, 20, 300, {"L0A": 32, "L0B": 28}, {"L0A": 0, "L0B": 2}


def best_dgrad_tiles(gemm, profile, m_all, n_all):
    """Return (m, n, k, blocks, cycles) of the best block of a cell of so many fractals; None if none fits."""
    costs = Costs(Rates(profile, gemm.compute_dtype, profile.cores.cube), gemm.sliding, "L0A")
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


def ranked_wgrad_tiles(gemm, profile, grids):
    """Return (grid, (m, n, pixels, cycles)) of all blocks of the cells of some grids, the best first."""
    found = [(grid, tiles) for grid in grids for tiles in wgrad_tiles(gemm, profile, grid)]
    return sorted(found, key=lambda one: one[1][-1])


def wgrad_tiles(gemm, profile, grid):
    s, whole = gemm.sliding, gemm.all_taps
    results, operand = room_of(profile)
    (height, width), units = s.out_size, 16 // s.c0
    rows, m_all = -(-height // grid.height), -(-gemm.rows // (16 * grid.rows))
    pixels, taps = rows * width, whole.rows * whole.cols
    n_all = -(-(-(-whole.channels // grid.columns) * taps * s.c0) // 16)
    l1 = profile.buffers["L1"].capacity_bytes
    long_m = 32 if pixels * m_all * 16 * s.itemsize <= l1 else 16
    long_n = 32 if window_bytes(gemm, grid, n_all, rows) <= l1 else 16
    for m in even(m_all, min(long_m, results)):
        for n in even(n_all, min(long_n, results // m)):
            most, runs = operand // (units * max(m, n)), -(-pixels // 16)
            k = max((run for run in range(1, min(runs, most) + 1) if runs % run == 0), default=0)
            if k:
                yield m, n, 16 * k, cycles(gemm, grid, (m_all, n_all), (m, n, 16 * k), rows)


def cycles(gemm, grid, sizes, base, rows):
    s, (m, n, k), units = gemm.sliding, base, 16 // gemm.sliding.c0
    images, width = -(-gemm.batch // grid.batch), s.out_size[1]
    pixels = rows * width
    steps, blocks = images * -(-pixels // k), -(-sizes[0] // m) * -(-sizes[1] // n)
    slower = 2 if gemm.compute_dtype == "float32" else 1
    mmad = slower * m * n * units * (k // 16) + MMAD
    mte1 = 2 * LOAD3D + load_cycles(width, "L0A", 1, k) * m * units
    mte1 += load_cycles(width, "L0B", s.stride[1], k) * n * units
    moved = pixels * m * 16 * s.itemsize + window_bytes(gemm, grid, n, rows)
    mte2 = images * (2 * COPY + moved / 96)
    result = m * n * 1024
    return blocks * (max(steps * max(mmad, mte1), mte2) + (result / 256 + result / 128))


def load_cycles(width, buffer, stride, pixels):
    if stride not in (1, 2, 4, 8):
        return 512 // SLOW[buffer] * -(-pixels // 16)
    each = 2 * stride + EXTRA[buffer]
    return sum(count * (each + rows - 1) for rows, count in row_spans(0, pixels, width).items())


def window_bytes(gemm, grid, n, rows):
    s, whole = gemm.sliding, gemm.all_taps
    taps, groups = whole.rows * whole.cols, n * (16 // s.c0)
    inside_both = groups % taps != 0 and taps % groups != 0
    channels = min(-(-whole.channels // grid.columns), -(-groups // taps) + inside_both)
    height = min(s.image_size[0], (rows - 1) * s.stride[0] + (s.kernel[0] - 1) * s.dilation[0] + 1)
    return channels * height * s.image_size[1] * s.c0 * s.itemsize


def wgrad_step(cells, grid, tiles):
    """The step of the first number of parts that fits, one number after the other."""
    s, cell = cells.gemm.sliding, cells.of(grid)
    width, l1 = s.out_size[1], cells.profile.buffers["L1"].capacity_bytes
    pixels = cell.rows * width
    for parts in range(1, -(-pixels // tiles.pixels) + 1):
        step = -(-pixels // (tiles.pixels * parts))
        run = step * tiles.pixels
        high = min(cell.rows, -(-run // width) + (run % width > 0))
        right = cells.window_bytes(cell._replace(rows=high), tiles.n, run)
        if 2 * (run * tiles.m * 16 * s.itemsize + right) <= l1:
            return step
    return 0


def even(total, most):
    """The largest parts of the even cuts of a number, found by cutting it into every number of parts."""
    return sorted({-(-total // parts) for parts in range(1, total + 1)} & set(range(1, most + 1)))[::-1]


def room_of(profile):
    l0a, l0b, l0c = (profile.buffers[name].capacity_bytes for name in ("L0A", "L0B", "L0C"))
    return l0c // 1024, min(l0a, l0b) // 2 // 512
