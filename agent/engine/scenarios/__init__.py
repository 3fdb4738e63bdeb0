"""How queries arrive: closed loops (single_stream, offline) and open loops (poisson, steady); `scenario.py` has the plans."""
