"""The fleet as people describe it: its folder, fleet.toml, and the language of selections."""
