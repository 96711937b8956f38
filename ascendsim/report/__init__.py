"""Render records: print them, plot them, write them to report folders. Nothing here runs a call."""
