"""`ascendsim check`: what the rules say of calls, without tensors."""
