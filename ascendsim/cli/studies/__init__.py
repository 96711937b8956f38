"""The studies of the command line, one file each, and the options that all of them take."""
