"""How queries come: one file per scenario; the table of names is in `scenario.py`."""
