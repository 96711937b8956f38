"""Estimate one layer on several products, and a what-if: the same product with another figure.

Run it with `python examples/02_products_side_by_side.py`.
"""

from ascendsim import ConvProblem, estimate, load_profile

PROBLEM = ConvProblem(input=(8, 256, 14, 14), weight=(256, 256, 3, 3), stride=1, padding=1)

for name in ("910B", "910_93", "910_95", "310P", "910"):
    result = estimate(PROBLEM, dtype="float16", product=name, output_mask=(True, True, False))
    print(f"{name:>8} ({result.variant}): {result.cycles:>9,} cycles, {result.time_us:8.1f} us")

# What if the path from L1 into L0B were as fast as the one into L0A?
faster = load_profile("910B", {"paths.L1_L0B.bytes_per_cycle": 256})
result = estimate(PROBLEM, dtype="float16", product=faster, output_mask=(True, True, False))
print(f"    910B with L1 -> L0B at 256 bytes a cycle: {result.cycles:,} cycles")
