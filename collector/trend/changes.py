"""Changes of the devices between runs, confirmed steps, and annotations.

A change is one of firmware, kernel, runtime, model file, power mode or meter.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.contract.record import RunRecord
from edgemeter.collector.influx.points import tag_text
from edgemeter.collector.ledgers.place import LedgerPlace
from edgemeter.collector.trend import watch
from edgemeter.collector.trend.history import History
from edgemeter.collector.trend.metrics import DEFAULT
from edgemeter.collector.trend.series_trend import is_event
from edgemeter.collector.trend.trend_text import step_text
from edgemeter.collector.trend.watch_file import annotations_of

NOT_SET = "none"
ENVIRONMENT = ("agent", "firmware", "kernel", "power_mode", "governor")
# The name for every device (or fleet), so that a dashboard of one device finds it.
EVERY_DEVICE = "all"
# Fleet, device, and for each kind its subject and its value.
_Facts = tuple[str, str, tuple[tuple[str, str, str], ...]]


@dataclass(frozen=True, slots=True)
class FleetChange:
    """A change of `kind` on `device`, first seen in the run at `started_at_ns`.

    `text` names the old and new value.
    """

    started_at_ns: int
    fleet: str
    device: str
    kind: str
    text: str


def changes_of(runs: Iterable[RunRecord]) -> list[FleetChange]:
    """Return the changes in `runs` (in any order), oldest first."""
    # Many runs have the same facts: each set is stored once.
    unique_facts: dict[_Facts, _Facts] = {}
    timed_facts = [
        (run.started_at_ns, unique_facts.setdefault(facts, facts))
        for run in runs
        for facts in [_facts(run)]
    ]
    timed_facts.sort(key=lambda entry: entry[0])
    now: dict[tuple[str, str, str, str], str] = {}
    changes: dict[FleetChange, None] = {}
    for started_at_ns, (fleet, device, facts) in timed_facts:
        for kind, subject, value in facts:
            before = now.get((fleet, device, kind, subject), value)
            now[fleet, device, kind, subject] = value
            if before != value:
                text = f"{kind}{subject and ' ' + subject}: {before} to {value}"
                changes[FleetChange(started_at_ns, fleet, device, kind, text)] = None
    return list(changes)


def change_point_line(change: FleetChange) -> str:
    """Return the change as a line of line protocol; the same change is the same point."""
    tags = ",".join(
        f"{name}={tag_text(getattr(change, name))}" for name in ("device", "fleet", "kind")
    )
    text = change.text.replace("\\", "\\\\").replace('"', '\\"')
    return f'change,{tags} text="{text}" {change.started_at_ns}'


def _facts(run: RunRecord) -> _Facts:
    around = run.environment
    facts = [(kind.replace("_", " "), "", getattr(around, kind) or NOT_SET) for kind in ENVIRONMENT]
    facts.append(("runtime", run.runtime.package, run.runtime.version))
    facts.append(
        ("model", f"{run.model.name} {run.precision} on {run.runtime.name}", run.model.sha256[:12])
    )
    if run.energy is not None:
        facts.append(("meter", "", run.energy.sensor))
    return run.fleet, run.device, tuple(facts)


def noted_changes(ledger: LedgerPlace, history: History) -> list[FleetChange]:
    """Return a ledger's annotations and the confirmed steps that matter in its series.

    The ledger's history is given.
    """
    annotations = annotations_of(ledger)
    changes = []
    for note in annotations:
        about = ", ".join(part for part in (note.model, note.metric) if part)
        text = f"{note.text}{f' ({about})' if about else ''}"
        changes.append(
            FleetChange(
                note.day * NS_PER_DAY,
                note.fleet or EVERY_DEVICE,
                note.device or EVERY_DEVICE,
                "note",
                text,
            )
        )
    for trend in watch.trends_of(history, annotations, DEFAULT):
        key = trend.key
        for step in (step for step in trend.steps if is_event(trend.metric, step)):
            text = f"{key.model} {key.precision} on {key.runtime}: {step_text(trend.metric, step)}"
            changes.append(FleetChange(step.day * NS_PER_DAY, key.fleet, key.device, "step", text))
    return changes
