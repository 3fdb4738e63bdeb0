"""Content for devices: models, suites, data sets and releases, named by their sha256."""
