"""Documents that are sent between machines or stored: records, messages, orders, suites.

It imports only `base`.
"""
