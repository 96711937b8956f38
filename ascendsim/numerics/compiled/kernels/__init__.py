"""One loop over panels for each kind of model."""
