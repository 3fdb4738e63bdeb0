"""The outcome of comparing a ledger with its InfluxDB, run by run, and where it is kept: in the ledger, the newest of each sink."""

from typing import Literal

import msgspec

from edgemeter.agent.base.figures import count, stamp
from edgemeter.agent.ledger.ledger import Ledger

# missing: a run without its point; doubled: another point of it at its time, under other tags; misplaced: one at another time;
# withdrawn: of a run that was excluded or deleted.
DifferenceKind = Literal["missing", "doubled", "misplaced", "withdrawn"]
KINDS: tuple[DifferenceKind, ...] = ("missing", "doubled", "misplaced", "withdrawn")
_SAVE = """INSERT INTO reconciled VALUES (?, ?, ?)
ON CONFLICT (sink) DO UPDATE SET at_ns = excluded.at_ns, body = excluded.body"""


class DayDifference(msgspec.Struct, frozen=True):
    """A day, UTC, of the points' times on which something differed: drained runs of the ledger, their points, and differences by kind."""

    day: str
    runs: int
    points: int
    differences: dict[str, int]


class Reconciliation(msgspec.Struct, frozen=True):
    """The outcome at `at_ns`, UTC: what differed, by day and kind, and what `remaining` of it was not repaired.

    These are no differences: `expired` runs, older than what InfluxDB retains; `refused` ones, which it rejected (see the quarantine);
    `unknown` points of runs that this ledger does not have, since retention removed them or another ledger shares the bucket;
    `untagged` points from before the tag `case_hash`.
    """

    sink: str
    at_ns: int
    runs: int
    points: int
    expired: int
    refused: int
    unknown: int
    untagged: int
    repaired: int
    days: tuple[DayDifference, ...]
    remaining: dict[str, int]

    @property
    def sentence(self) -> str:
        """The outcome in words, with what to do."""
        head = f"InfluxDB at {self.sink.removeprefix('influx ')}, compared with the ledger {stamp(self.at_ns)} UTC: "
        if self.remaining:
            kinds = ", ".join(f"{number:,} {kind}" for kind, number in self.remaining.items())
            return f"{head}{kinds} of {count(self.runs, 'run')}: repair it with `edgemeter collector reconcile`"
        left_out = [f"{self.expired:,} older than it retains"] if self.expired else []
        left_out += [f"{self.refused:,} refused, see the quarantine"] if self.refused else []
        repairs = f"; {count(self.repaired, 'difference')} repaired" if self.repaired else ""
        except_for = f" but for {' and '.join(left_out)}" if left_out else ""
        return f"{head}{count(self.runs, 'run')}, each there once{except_for}{repairs}"


def save(ledger: Ledger, outcome: Reconciliation) -> None:
    """Keep the outcome in the ledger; a database whose owner has not run `init-ledger` since cannot keep it."""
    if ledger.has_table("reconciled"):
        with ledger.writing() as statements:
            statements.execute(_SAVE, (outcome.sink, outcome.at_ns, msgspec.json.encode(outcome).decode()))


def outcomes(ledger: Ledger) -> list[Reconciliation]:
    """Return the newest outcome of each sink; one that another version kept and that cannot be read is left out."""
    readable = []
    for (body,) in ledger.query("SELECT body FROM reconciled ORDER BY sink") if ledger.has_table("reconciled") else ():
        try:
            readable.append(msgspec.json.decode(body, type=Reconciliation))
        except msgspec.MsgspecError:
            continue
    return readable
