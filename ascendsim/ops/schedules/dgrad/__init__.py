"""The loop nests of grad_input."""
