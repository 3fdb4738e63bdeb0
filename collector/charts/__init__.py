"""Charts by a grammar: each is a Vega-Lite specification and the table that it draws."""
