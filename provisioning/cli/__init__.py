"""The commands of `edgemeter fleet`."""
