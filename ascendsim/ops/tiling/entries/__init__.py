"""The vendor's files of tuned tilings (runtime_kb): a layer and its tiling, entry after entry.

layers    the fields that say which layer an entry is for
tilings   the fields that say how it is cut: what each means, and what follows from the layer and the plan
entry     one entry, and the entries of a file as plans that calls take
files     reading and writing
"""
