"""The accumulation models as machine code: fast ways to the bits that `accumulation.twins` defines.

From the bottom up; each module imports only from lines above its own:

    jit               compile a function, and keep the machine code
    panels            a value of ROWS x LANES accumulators in vector registers, and its operations
    rounding_mode     the processor's own rounding toward zero, while a kernel runs
    panel_memory      panels and scalars from and to memory
    crossing          from one block to the next
    next_block        panels through blocks whose sums doubles hold
    panel_rounding    sticky doubles, two-term sums, one correct rounding in any mode
    lanes             a panel reduced to one scalar
    extents           largest magnitude and lowest set bit of operands: the proofs that doubles suffice
    long_integer      the exact sum of any terms
    scratch           memory that the calls of a thread take in turn
    packing           operands packed for panels, accumulators in whole panels
    workspace         the memory of one call, filled; the model's parameters
    block_sums        one block of products, summed as fast as is proven exact
    kernels           a loop over panels for each kind of model:
        fused         seq and seq-muladd in RNE and RZ, by the processor's own instructions
        chain         the same in any rounding, and with split products
        half          the same with binary16 accumulators: RNE on narrow operands, RZ
        block         block, block-add, exact
        tree          tree
        align         align
    accumulate        the one door: choose the kernel of a model at its first use
    gathered          the same for long products of operands that are left where they lie

A kernel is right when its bits equal the twin's; speed is measured by `python -m benchmarks accumulation`.
"""
