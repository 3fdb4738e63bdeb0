"""The shipped scenes, texts and models made again from nothing (`make models`); not a part of the wheel."""
