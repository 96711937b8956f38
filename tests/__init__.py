"""Tests, in folders named by what they ask; the first line of each file is its question."""
