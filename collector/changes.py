"""Changes below the devices: where firmware, kernel, runtime, model file, power mode or meter became another one from run to run.

They are read from the records, so nobody has to announce one. As points of InfluxDB (measurement `change`, tags `device`, `fleet` and
`kind`, field `text`) they are the marks on Grafana's dashboards.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from edgemeter.agent.records import RunRecord
from edgemeter.collector.keep import line_protocol

NONE = "none"
ENVIRONMENT = ("agent", "firmware", "kernel", "power_mode", "governor")

# Fleet, device, and for each kind what it is of and its value.
_Facts = tuple[str, str, tuple[tuple[str, str, str], ...]]


@dataclass(frozen=True, slots=True)
class Change:
    """On `device`, from the run at `started_at_ns` on, `kind` was another one: `text` says from what to what."""

    started_at_ns: int
    fleet: str
    device: str
    kind: str
    text: str


def changes(runs: Iterable[RunRecord]) -> list[Change]:
    """Return the changes in `runs`, which may come in any order, oldest first."""
    # Many runs say the same: each different set of facts is kept once.
    known: dict[_Facts, _Facts] = {}
    looks = [(run.started_at_ns, known.setdefault(facts, facts)) for run in runs for facts in [_facts(run)]]
    looks.sort(key=lambda look: look[0])
    now: dict[tuple[str, str, str, str], str] = {}
    found: dict[Change, None] = {}
    for started_at_ns, (fleet, device, facts) in looks:
        for kind, subject, value in facts:
            before = now.get((fleet, device, kind, subject), value)
            now[fleet, device, kind, subject] = value
            if before != value:
                text = f"{kind}{subject and ' ' + subject}: {before} to {value}"
                found[Change(started_at_ns, fleet, device, kind, text)] = None
    return list(found)


def point(change: Change) -> str:
    """Return the change as a line of line protocol; the same change is the same point."""
    tags = ",".join(f"{name}={line_protocol.tag(getattr(change, name))}" for name in ("device", "fleet", "kind"))
    text = change.text.replace("\\", "\\\\").replace('"', '\\"')
    return f'change,{tags} text="{text}" {change.started_at_ns}'


def _facts(run: RunRecord) -> _Facts:
    """Return what may change: its kind, what it is of where a device has several, and its value."""
    around = run.environment
    found = [(kind.replace("_", " "), "", getattr(around, kind) or NONE) for kind in ENVIRONMENT]
    found.append(("runtime", run.runtime.package, run.runtime.version))
    found.append(("model", f"{run.model.name} {run.precision} on {run.runtime.name}", run.model.sha256[:12]))
    if run.energy is not None:
        found.append(("meter", "", run.energy.sensor))
    return run.fleet, run.device, tuple(found)
