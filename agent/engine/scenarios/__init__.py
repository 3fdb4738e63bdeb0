"""How queries come: closed loop (single_stream, offline), open loop (poisson, steady); names are in `scenario.py`."""
