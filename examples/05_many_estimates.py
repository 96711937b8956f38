"""Estimate a layer at many batches on two products, over all cores of the computer.

Run it with `python examples/05_many_estimates.py`.
"""

from ascendsim import ConvProblem, Item, estimate_many

BATCHES = (1, 2, 4, 8)
PRODUCTS = ("910B", "910_95")


def layer(batch: int) -> ConvProblem:
    """Return the convolution at a batch."""
    return ConvProblem(input=(batch, 128, 28, 28), weight=(128, 128, 3, 3), stride=1, padding=1)


def main() -> None:
    """Print microseconds for each image."""
    calls = [(product, batch) for product in PRODUCTS for batch in BATCHES]
    items = [Item(layer(batch), product=product, output_mask=(True, True, False)) for product, batch in calls]
    # What cannot be estimated has its error in place of its estimate; the others are there all the same.
    items.append(Item(layer(1), dtype="float8_e4m3fn", product="910B"))
    *results, refused = estimate_many(items)
    for (product, batch), result in zip(calls, results, strict=True):
        print(f"{product:>6}, batch {batch}: {result.time_us / batch:6.2f} us an image")
    print(f"{type(refused).__name__}: {refused}")


# Needed: each worker process imports this file, for the classes that it might define, and must not run it.
if __name__ == "__main__":
    main()
