"""The accumulation models as machine code: fast ways to the bits that `accumulation_twins.py` defines.

From the bottom up; each module imports only from lines above its own:

    jit               compile a function, and keep the machine code
    panels            a value of ROWS x LANES accumulators in vector registers, and its operations; the
                      processor's own rounding toward zero, while a kernel runs
    panel_rounding    panels from and to memory; sticky doubles, two-term sums, one correct rounding in any
                      mode; the exact sum of any terms
    packing           operands packed for panels, a panel reduced to one scalar, memory that is taken in turn
    workspace         the memory of one call, filled; the proofs that doubles suffice for its operands
    block_sums        one block of products, summed as fast as is proven exact, and from block to block
    block_kernels     a loop over panels for block, block-add, exact; seq and seq-muladd; all with binary16
                      accumulators too
    align_kernels     a loop over panels for align, tree
    lines             rows and columns of a factor that lies anywhere, for panels: copied, laid out, measured
    gathered_kernels  long products of such factors: seq, seq-muladd and block in RNE
    turned            binary16 from and to binary32, and matrices transposed
    accumulate        the one door: choose the kernel of a model at its first use, also for long products
                      that were cut into many Mmads

A kernel is right when its bits equal the twin's; speed is measured by `python -m benchmarks accumulation`.
"""
