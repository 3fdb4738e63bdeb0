"""A run as one file, from which every statistic can be computed again; `docs/bundle.md` describes it."""
