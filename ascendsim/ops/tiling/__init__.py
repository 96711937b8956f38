"""Plans: how a problem is cut into tiles and shared among cores."""
