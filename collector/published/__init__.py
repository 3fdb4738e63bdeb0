"""Published figures: what others state, with the source, judged by three laws of physics, beside own runs; never ranked with them."""
