"""Random calls at every door: `make fuzz SECONDS=60`, or `python -m fuzz --help`.

Each call follows from its fuzzer's name, a seed and its number alone, so that any of them can be drawn again.
"""
