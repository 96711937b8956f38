"""The loop nest of grad_weight."""
