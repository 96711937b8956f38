"""grad_weight by Winograd: pixels to points on vector cores, products at 16 points, sums to taps."""
