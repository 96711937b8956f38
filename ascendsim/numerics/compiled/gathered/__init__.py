"""Long products of matrices whose elements are left where they lie, and conversions of whole tensors.

From the bottom up; each module imports only from lines above its own, and from `compiled`:

    threads    the work of a call in parts, side by side
    factor     one of the two matrices: its elements by places in an array
    cuts       where a reduction may be cut into pieces without a change of the bits
    places     elements of a factor, taken for a panel
    packed     rows of a piece of a reduction, close together for panels
    measured   extents of a factor's elements, and of pieces of a reduction
    chain      seq and seq-muladd in RNE
    block_panels, blocks   block in RNE: one panel, and all of them
    halves     binary16 from and to binary32
    squares    small squares of elements transposed in registers
    turned     matrices transposed
    product    the one door: make a product that was cut into many Mmads
"""
