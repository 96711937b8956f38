"""The operators: problems, schedules and the user's functions."""
