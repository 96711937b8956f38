"""The arithmetic at speed, equal to its definition bit for bit."""
