"""The public site of results: static pages made from signed bundles, every figure of which was recomputed."""
