"""A package of one's own with one plug-in: what `edgemeter new` writes, from the templates beside this."""
