"""Updates: the available releases, and the choice for each device."""
