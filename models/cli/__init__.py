"""The commands `edgemeter models ...`."""
