"""Content for devices: models, suites and bundles, each a file named by its sha256; handed out over MQTT and over HTTPS."""
