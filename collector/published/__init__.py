"""Published figures: other people's, with their source, judged by three laws of physics, next to own runs; never ranked with them."""
