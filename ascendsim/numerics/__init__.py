"""Number formats, casts and accumulation models; knows no time and no machine."""
