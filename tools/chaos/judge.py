"""The verdict on a run.

It compares the records that had to arrive, by the journals, to those in ledgers and InfluxDB.
"""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from edgemeter.collector.ledgers.place import ledger_place, open_ledger
from tests.fixtures.servers import Influx
from tools.chaos import agents


@dataclass(frozen=True, slots=True)
class Expected:
    """The expected ids, by the journals.

    They are ids that were kept for certain, ids that may have been (a kill came between), and
    repeats.
    """

    kept: frozenset[str]
    meant: frozenset[str]
    retransmitted: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """The counts of a run.

    `lost` and `doubled` count a record once for each store that misses it or has it twice.
    """

    sent: int
    ledger: int
    influx: int
    duplicates_dropped: int
    retransmitted: int
    quarantined: int
    lost: int
    doubled: int
    examples: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Return whether every record is in each store exactly once, and nothing else is."""
        return self.lost == self.doubled == self.quarantined == 0 and self.sent > 0

    def line(self) -> str:
        counts = asdict(self)
        del counts["examples"]
        return json.dumps(counts)


def expected(folder: Path) -> Expected:
    """Return what the journals in `folder` say."""
    kept_ids: set[str] = set()
    meant: set[str] = set()
    repeats = 0
    for journal in sorted(folder.glob("*.journal")):
        for event, number in agents.lines(journal):
            if event == "r":
                repeats += number
            else:
                (kept_ids if event == "k" else meant).add(f"{journal.stem}:{number}")
    return Expected(frozenset(kept_ids), frozenset(meant), repeats)


def in_ledger(ledger: str | Path) -> tuple[Counter[str], int]:
    """Return how often each id is in the ledger, and how many entries its quarantine has."""
    with open_ledger(ledger_place(str(ledger)), "read") as opened:
        return Counter(held_record.record.id for held_record in opened.records()), len(
            opened.quarantined()
        )


def in_influx(server: Influx, devices: Iterable[str]) -> Counter[str]:
    """Return how many points of each id InfluxDB holds."""
    counts: Counter[str] = Counter()
    for device in devices:
        counts.update(
            row["id"]
            # The names are our own.
            for row in server.query(f"SELECT id FROM run WHERE device = '{device}'")  # noqa: S608
        )
    return counts


def judge(
    journals: Expected,
    ledgers: list[Counter[str]],
    influx: Counter[str],
    quarantined: int,
    duplicates_dropped: int,
) -> Verdict:
    """Return the verdict.

    Several ledgers may hold the same record; each only once, and InfluxDB only once in all.
    """
    together = set().union(*ledgers)
    # After a kill, a record that was "meant" but not marked "kept" counts as sent if it arrived
    # anywhere.
    sent = journals.kept | (journals.meant & (together | set(influx)))
    foreign = (together | set(influx)) - journals.meant
    lost = [f"{record_id} not in a ledger" for record_id in sorted(sent - together)] + [
        f"{record_id} not in InfluxDB" for record_id in sorted(sent - set(influx))
    ]
    doubled = [
        f"{record_id} {times} times"
        for counts in (*ledgers, influx)
        for record_id, times in sorted(counts.items())
        if times > 1
    ]
    doubled += [f"{record_id} was never sent" for record_id in sorted(foreign)]
    return Verdict(
        sent=len(sent),
        ledger=len(together),
        influx=sum(influx.values()),
        duplicates_dropped=duplicates_dropped,
        retransmitted=journals.retransmitted,
        quarantined=quarantined,
        lost=len(lost),
        doubled=len(doubled),
        examples=(lost + doubled)[:20],
    )
