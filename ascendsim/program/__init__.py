"""Programs as data: what a schedule returns and both executors read."""
