"""Studies: are the answers of the studies right, kept, and said plainly?"""
