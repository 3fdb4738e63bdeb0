"""The cases of the stores that a command was given, summed up: a large ledger by its digest."""

from collections.abc import Sequence
from pathlib import Path

from edgemeter.agent.config import home
from edgemeter.collector.compare import views
from edgemeter.collector.compare.store import open_store
from edgemeter.collector.compare.summary import Summary
from edgemeter.collector.digest import digest, progress_bar


def default_ledger() -> Path:
    """Return where the ledger lies when nobody says."""
    return home() / "ledger.sqlite"


def summaries(stores: Sequence[str], influx_token_file: Path | None = None) -> Sequence[Summary]:
    """Return the cases of `stores`, without any those of the default ledger.

    Raises:
        ConfigError: a store is not there or not ours.
        UnavailableError: there is no run in it.
    """
    store = open_store(*(stores or (str(default_ledger()),)), influx_token_file=influx_token_file)
    with progress_bar.shown() as progress:
        ready = digest.digested(store, progress)
    return ready.summaries if ready else views.gather(store.contents()).summaries
