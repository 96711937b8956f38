"""What the profile of a device lists, read."""
