"""Everything that is printed, plotted or written to a report folder."""
