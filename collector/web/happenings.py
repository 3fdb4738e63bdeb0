"""What was found in the series and said about them, where the collector keeps that."""

from edgemeter.collector.web.book import Happenings, NoHappenings
from edgemeter.collector.web.run_index import RunIndex


def open_happenings(index: RunIndex) -> Happenings:  # noqa: ARG001 - where they are kept hangs on it
    """Return what is kept beside the source of `index`."""
    return NoHappenings()
