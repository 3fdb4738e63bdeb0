"""Documents that travel between machines or are stored: records, messages, orders, suites. Of our modules it imports only `base`."""
