"""What makes code recur: rings of slots, how they stand and turn, what follows what, numbers of rounds."""
