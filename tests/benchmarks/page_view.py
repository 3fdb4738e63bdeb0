"""Prints a view of the page as the server makes it, in a process that just started: `... tests.benchmarks.page_view LEDGER ADDRESS`."""

import sys
from pathlib import Path

from edgemeter.collector.index.run_index import open_index
from edgemeter.collector.index.sources import LedgerSource
from edgemeter.collector.web.events import TrendEvents
from edgemeter.collector.web.server import PageServer
from edgemeter.collector.web.view import read_address


def main(path: Path, address: str) -> None:
    """Bring the index up to date and print the view."""
    index = open_index(LedgerSource(path))
    index.refresh()
    sys.stdout.buffer.write(PageServer(index, TrendEvents(index.source)).answer(read_address(address), "").body)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
