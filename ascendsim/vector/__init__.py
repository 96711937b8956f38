"""Instructions of the vector core: what each one means and what it costs."""
