"""One side of a review: the runs that a selection finds, all of them in memory."""

from edgemeter.agent.errors import ConfigError
from edgemeter.collector import selection
from edgemeter.collector.compare.store import Contents, oldest_first


def read(text: str) -> Contents:
    """Return the runs of a side, `PATH[?KEY=VALUE&KEY=VALUE]`.

    Raises:
        ConfigError: a file is absent or not ours, a selector is unknown, or no run is left.
    """
    chosen = selection.parse(text)
    runs = oldest_first(chosen.runs())
    if not runs:
        message = f"{text!r} holds no run to compare: choose others, or measure some"
        raise ConfigError(message)
    return Contents(runs, chosen.unreadable)
