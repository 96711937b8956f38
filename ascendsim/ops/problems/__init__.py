"""What is to be computed, free of product and plan."""
