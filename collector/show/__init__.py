"""Tables on a terminal, and the report: one HTML file with its drawings."""
