"""The page at the end of the demo: its own runs, and a simulated fleet beside them."""

import time
from pathlib import Path

from edgemeter.agent.records import RunRecord
from edgemeter.collector import simulated_fleet
from edgemeter.collector.compare.store import LedgerFile
from edgemeter.collector.web import one_file
from edgemeter.collector.web.happenings import open_happenings
from edgemeter.collector.web.queries import Narrowing
from edgemeter.collector.web.run_index import open_index
from edgemeter.collector.web.sources import DocumentSource


def write(ledger: Path, path: Path) -> int:
    """Write the page of the ledger's runs and of a fleet simulated from one of them; return its size in bytes.

    Raises:
        ConfigError: the file cannot be written.
    """
    own = list(LedgerFile(ledger).runs(with_samples=True))
    simulated = simulated_fleet.records_of(_template(own), end_ns=time.time_ns()) if own else ()
    index = open_index(DocumentSource((*own, *simulated)))
    try:
        index.refresh()
        happenings = open_happenings(index)
        happenings.refresh()
        return one_file.write(index, happenings, path, Narrowing())
    finally:
        index.close()


def _template(own: list[RunRecord]) -> RunRecord:
    """Return the run that the fleet is made from: fp32 and scored, where there is one."""
    return max(own, key=lambda run: (run.precision == "fp32", run.accuracy is not None, run.verdict.state == "valid"))
