"""Instructions of the cube core: what each one means and what it costs."""
