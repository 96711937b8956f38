"""Loop nests by name: how the tiles of a problem are walked by the cores."""
