"""How queries come: closed loop (single_stream, multi_stream, offline) and open loop (poisson); the table of names is in `scenario.py`."""
