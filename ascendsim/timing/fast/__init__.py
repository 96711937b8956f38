"""The compiled engine: the rules of `simpy_engine.py` as loops over integers."""
