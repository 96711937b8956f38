"""The library's search for 2-D plans of grad_input, slow and plain: one base block after another.

What `ops/tiling/vendor/library` does with whole arrays; both must find the same blocks, of equal ones too.
"""

from ascendsim.ops.tiling.search.costs import Costs, Rates


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


def room_of(profile):
    l0a, l0b, l0c = (profile.buffers[name].capacity_bytes for name in ("L0A", "L0B", "L0C"))
    return l0c // 1024, min(l0a, l0b) // 2 // 512
