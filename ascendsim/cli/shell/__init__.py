"""What a shell and its user see beside the answers: completion, and messages about the work."""
