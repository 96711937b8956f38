"""Times of kernels under tilings that are drawn at random, for tests that compare two ways to find them."""

from ascendsim import estimate, legal_tilings


def random_times(problem, gradient, profile, count, seed):
    """Times and bytes of all kernels of one gradient under so many legal tilings."""
    mask = (gradient == "grad_input", gradient == "grad_weight", False)
    drawn = legal_tilings(problem, gradient, profile).sample(count, seed=seed)
    made = [
        estimate(problem, product=profile, tiling={gradient: tiling}, output_mask=mask) for tiling in drawn
    ]
    return [[(kernel.times, kernel.bytes) for kernel in each.kernels] for each in made]
