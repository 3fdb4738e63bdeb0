"""The option `--store`: a file, or the URL of an InfluxDB."""

from collections.abc import Sequence

import click


class StorePath(click.Path):
    """Several files stand in the environment as in PATH, between colons; one URL, which has colons of its own, stands alone."""

    def split_envvar_value(self, rv: str) -> Sequence[str]:
        """Return what one variable of the environment names."""
        return [rv] if "://" in rv else super().split_envvar_value(rv)
