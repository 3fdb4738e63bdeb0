"""Changes that are no field of a record: steps that the trend confirmed, and what people wrote down of a day."""

from contextlib import closing
from pathlib import Path

from edgemeter.collector.changes import Change
from edgemeter.collector.trend import annotations, watch, wording
from edgemeter.collector.trend.history import LedgerHistory
from edgemeter.collector.trend.metrics import DEFAULT
from edgemeter.collector.trend.run_figures import SeriesKey

NS_PER_DAY = 86_400 * 1_000_000_000
# What is about every device (or fleet) has this for a name, so that a dashboard of one device finds it.
ALL = "all"


def noted(ledger: Path) -> list[Change]:
    """Return the confirmed steps that matter in every series of a ledger, and the annotations beside it."""
    known = annotations.of_store(str(ledger))
    remarks = [Change(one.day * NS_PER_DAY, one.fleet or ALL, one.device or ALL, "note", _told(one)) for one in known]
    with closing(LedgerHistory(ledger)) as history:
        found = watch.look(history, known, DEFAULT)
    steps = [
        Change(step.day * NS_PER_DAY, one.key.fleet, one.key.device, "step", f"{_named(one.key)}: {wording.of_step(one.metric, step)}")
        for one in found
        for step in one.steps
        if step.state == "confirmed" and step.matters
    ]
    return [*remarks, *steps]


def _told(one: annotations.Annotation) -> str:
    about = ", ".join(part for part in (one.model, one.metric) if part)
    return f"{one.text}{f' ({about})' if about else ''}"


def _named(key: SeriesKey) -> str:
    return f"{key.model} {key.precision} on {key.runtime}"
