"""What an inference of a case costs in energy: gross and net, of one sensor and scope, with its uncertainty."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from edgemeter.agent.records import Energy, RunRecord
from edgemeter.collector.compare.cases import distinct
from edgemeter.collector.compare.spread import Spread, of_one_kind, of_points, point_of
from edgemeter.collector.compare.store import LeftOut


@dataclass(frozen=True, slots=True)
class EnergySummary:
    """Energy per inference.

    The uncertainties (k = 2) are the largest of the runs, None when any is not known: repeating a run does not shrink what the sensor
    contributes. `net_mj` is None unless net energy is resolved in every run.
    """

    provenance: str
    sensor: str
    scope: str
    excludes: tuple[str, ...]
    gross_mj: Spread
    gross_u_mj: float | None
    net_mj: Spread | None
    net_u_mj: float | None
    net_state: str
    mean_power_w: Spread


def energy_of(runs: Sequence[RunRecord]) -> tuple[EnergySummary | None, str | None, list[LeftOut]]:
    """Return the energy of the runs of a case (oldest first), or why there is none, and what is left out of it."""
    kept, left_out = of_one_kind(runs, "energy", lambda run: run.energy, _kind)
    gross = of_points([point_of(run, energy.gross_mj) for run, energy in kept])
    power = of_points([point_of(run, energy.mean_power_w) for run, energy in kept])
    if gross is None or power is None:
        reasons = distinct([*(run.energy_reason for run in runs), *map(_estimate, runs), *(entry.reason for entry in left_out)])
        return None, "; ".join(reasons) or "not measured", left_out
    newest = kept[-1][1]
    net_state = next((energy.net_state for _, energy in kept if energy.net_state != "resolved"), "resolved")
    resolved = kept if net_state == "resolved" else []
    summary = EnergySummary(
        provenance=runs[-1].provenance.get("energy", runs[-1].provenance.get("latency", "")),
        sensor=newest.sensor,
        scope=newest.scope,
        excludes=newest.excludes,
        gross_mj=gross,
        gross_u_mj=_largest(energy.gross_u_mj for _, energy in kept),
        net_mj=of_points([point_of(run, energy.net_mj) for run, energy in resolved if energy.net_mj is not None]),
        net_u_mj=_largest(energy.net_u_mj for _, energy in resolved),
        net_state=net_state,
        mean_power_w=power,
    )
    return summary, None, left_out


def _estimate(run: RunRecord) -> str | None:
    """Return the estimate of a run in words: it is shown apart, as a reason and not as a figure."""
    if run.energy is None or run.provenance.get("energy") != "estimated":
        return None
    how = f"modelled by {run.energy.sensor}" if run.energy.is_modelled else f"from a stated {run.energy.mean_power_w:.4g} W"
    return f"estimated {run.energy.gross_mj:.4g} mJ gross {how}"


def _kind(energy: Energy) -> str:
    excludes = f" without {', '.join(energy.excludes)}" if energy.excludes else ""
    return f"{energy.sensor}, scope {energy.scope}{excludes}"


def _largest(values: Iterable[float | None]) -> float | None:
    known = list(values)
    return max((value for value in known if value is not None), default=None) if None not in known else None
