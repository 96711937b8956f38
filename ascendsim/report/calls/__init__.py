"""The page of a run: pictures and tables of a call, or of the layers of a network, on each product."""
