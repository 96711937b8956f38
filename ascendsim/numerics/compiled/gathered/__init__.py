"""Long products of matrices whose elements are left where they lie, and conversions of whole tensors.

From the bottom up; each module imports only from lines above its own, and from `compiled`:

    threads    the work of a call in parts, side by side
    factor     one of the two matrices: its elements by places in an array; where a reduction may be cut
    lines      rows and columns of a factor for panels: copied, laid out, measured
    kernels    seq, seq-muladd and block in RNE
    turned     binary16 from and to binary32, and matrices transposed
    product    the one door: make a product that was cut into many Mmads
"""
