"""Speed, measured as ratios within one run where the machine's own speed matters."""
