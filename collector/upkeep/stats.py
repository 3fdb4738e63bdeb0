"""Statistics of a ledger: its contents and what takes the space, with the data derived from it on this machine."""

import dataclasses

from edgemeter.agent.ledger.ledger import LedgerPart, LedgerStats
from edgemeter.collector.ledgers.place import LedgerPlace, open_ledger
from edgemeter.collector.upkeep.copies import derived_files


def ledger_stats(place: LedgerPlace) -> LedgerStats:
    """Return the numbers of the ledger at `place`.

    Raises:
        ConfigError: there is no ledger.
        TransientError: it is in use; retry.
    """
    with open_ledger(place, "read") as ledger:
        found = ledger.stats()
    derived = sum(one.stat().st_size for one in derived_files(place))
    return dataclasses.replace(found, parts=(*found.parts, LedgerPart("derived files on this machine: the index", derived)))
