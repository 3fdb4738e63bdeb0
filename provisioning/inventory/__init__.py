"""The inventory: what people say of their devices in `fleet.toml`, what the registry knows, and how devices are picked from both."""
