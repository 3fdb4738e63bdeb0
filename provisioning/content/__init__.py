"""Content for devices: models, suites, data sets and bundles, named by their sha256."""
