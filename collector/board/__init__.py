"""The public board: a static site made from signed bundles, every figure of which was recomputed."""
