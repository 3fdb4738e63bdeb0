"""Charts: each is a Vega-Lite specification and its table of data."""
