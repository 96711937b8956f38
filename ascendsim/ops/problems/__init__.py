"""The problems, free of product and plan."""
