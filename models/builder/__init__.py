"""The shipped detector made again from nothing (`make models`); not a part of the wheel."""
