"""One check: look at the rules, settle the alerts, ask boards for more runs, send what happened."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgemeter.collector.alerts import lifecycle, sending
from edgemeter.collector.alerts.firing import World, firings
from edgemeter.collector.alerts.lifecycle import Change
from edgemeter.collector.alerts.rules import Rules
from edgemeter.collector.keep.ledger import Ledger
from edgemeter.collector.keep.presence import Device
from edgemeter.collector.trend import annotations, more_runs, watch
from edgemeter.collector.trend.history import History, LedgerHistory
from edgemeter.collector.trend.metrics import DEFAULT
from edgemeter.collector.trend.more_runs import Request
from edgemeter.collector.trend.watch_file import WatchFile


@dataclass(frozen=True, slots=True)
class Checked:
    """What a check did: what happened to alerts, what was sent, which runs were asked for."""

    changes: Sequence[Change]
    sent: Sequence[sending.Sent]
    requests: Sequence[Request]


def check(history: History, store: str, file: WatchFile, rules: Rules, now_ns: int, *, is_dry: bool = False) -> Checked:
    """Check the rules once; with `is_dry` nothing is written and nothing sent."""
    known = annotations.read(file)
    world = World(history, known, _devices(history, store), now_ns)
    changes = lifecycle.settle(file, firings(rules.rule, world), now_ns, is_dry=is_dry)
    if is_dry:
        return Checked(changes, (), ())
    requests: Sequence[Request] = ()
    if rules.more_runs:
        found = watch.look(history, known, DEFAULT)
        lately = sum(world.today - run.day < more_runs.OVER_DAYS for key in history.series() for run, _ in history.points(key))
        requests = more_runs.ask(file, found, day=world.today, runs_lately=lately)
    return Checked(changes, sending.send(file, rules, changes), requests)


def _devices(history: History, store: str) -> Sequence[Device]:
    if not isinstance(history, LedgerHistory):
        return ()
    with Ledger(Path(store).expanduser(), "read") as ledger:
        return ledger.devices()
