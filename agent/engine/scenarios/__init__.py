"""The scenarios, which say how queries arrive; `scenario.py` has the plans.

There are closed loops (single_stream, offline) and open loops (poisson, steady).
"""
