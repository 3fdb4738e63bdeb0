"""The energy of a case: over its runs of one meter, by the inference, and of a language model by the token."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from edgemeter.agent.contract.energy_provenance import energy_provenance
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_figures import Energy, Scope
from edgemeter.agent.contract.record_generation import GenerationEnergy, TokenEnergy
from edgemeter.collector.compare.spread import Spread, of_one_kind, of_points, point_of
from edgemeter.collector.runs.cases import distinct
from edgemeter.collector.runs.energy_class import EnergyClass
from edgemeter.collector.runs.store import LeftOut


@dataclass(frozen=True, slots=True)
class TokenEnergySummary:
    """Gross energy per token of one part of a language model's requests; the uncertainty as in `EnergySummary`."""

    gross_mj: Spread
    gross_u_mj: float | None


@dataclass(frozen=True, slots=True)
class EnergySummary:
    """Energy per inference, of a language model per request and by the token.

    `output_token` is the whole request by its output tokens, prefill included; `prefill_token` and `decode_token` are of those parts alone.

    The uncertainties (k = 2) are the largest of the runs, None when any is not known: repeating a run does not shrink what the sensor
    contributes. `net_mj` is None unless net energy is resolved in every run.
    """

    provenance: str
    sensor: str
    scope: Scope
    excludes: tuple[str, ...]
    gross_mj: Spread
    gross_u_mj: float | None
    net_mj: Spread | None
    net_u_mj: float | None
    net_state: str
    mean_power_w: Spread
    output_token: TokenEnergySummary | None = None
    prefill_token: TokenEnergySummary | None = None
    decode_token: TokenEnergySummary | None = None

    @property
    def ranks_as(self) -> EnergyClass:
        """The class of energies that it may be ranked with."""
        return EnergyClass(self.scope, self.provenance)


def energy_of(runs: Sequence[RunRecord]) -> tuple[EnergySummary | None, str | None, list[LeftOut]]:
    """Return the energy of the runs of a case (oldest first), or why there is none, and what is left out of it."""
    kept, left_out = of_one_kind(runs, "energy", lambda run: run.energy, _kind_of_energy)
    gross = of_points([point_of(run, energy.gross_mj) for run, energy in kept])
    power = of_points([point_of(run, energy.mean_power_w) for run, energy in kept])
    if gross is None or power is None:
        reasons = distinct([*(run.energy_reason for run in runs), *map(_estimate, runs), *(entry.reason for entry in left_out)])
        return None, "; ".join(reasons) or "not measured", left_out
    newest_run, newest = kept[-1]
    net_state = next((energy.net_state for _, energy in kept if energy.net_state != "resolved"), "resolved")
    resolved = kept if net_state == "resolved" else []
    summary = EnergySummary(
        provenance=energy_provenance(newest_run) or "",
        sensor=newest.sensor,
        scope=newest.scope,
        excludes=newest.excludes,
        gross_mj=gross,
        gross_u_mj=_largest_uncertainty(energy.gross_u_mj for _, energy in kept),
        net_mj=of_points([point_of(run, energy.net_mj) for run, energy in resolved if energy.net_mj is not None]),
        net_u_mj=_largest_uncertainty(energy.net_u_mj for _, energy in resolved),
        net_state=net_state,
        mean_power_w=power,
        output_token=_by_token(kept, lambda found: (found.output_token_gross_mj, found.output_token_gross_u_mj)),
        prefill_token=_by_token(kept, lambda found: _gross(found.prefill_token)),
        decode_token=_by_token(kept, lambda found: _gross(found.decode_token)),
    )
    return summary, None, left_out


def _gross(found: TokenEnergy | None) -> tuple[float, float | None] | None:
    return (found.gross_mj, found.gross_u_mj) if found else None


def _by_token(
    kept: Sequence[tuple[RunRecord, Energy]], part: Callable[[GenerationEnergy], tuple[float, float | None] | None]
) -> TokenEnergySummary | None:
    """Return the energy per token of the runs whose energy counts."""
    having = [(run, run.generation.energy) for run, _ in kept if run.generation and run.generation.energy]
    known = [(run, figure) for run, energy in having if (figure := part(energy)) is not None]
    gross = of_points([point_of(run, gross_mj) for run, (gross_mj, _) in known])
    return TokenEnergySummary(gross, _largest_uncertainty(u_mj for _, (_, u_mj) in known)) if gross else None


def _estimate(run: RunRecord) -> str | None:
    """Return the estimate of a run in words: it is shown as a reason, not as a figure."""
    if run.energy is None or energy_provenance(run) not in ("estimated", "modelled"):
        return None
    how = f"modelled by {run.energy.sensor}" if run.energy.is_modelled else f"from a stated {run.energy.mean_power_w:.4g} W"
    return f"estimated {run.energy.gross_mj:.4g} mJ gross {how}"


def _kind_of_energy(run: RunRecord, energy: Energy) -> str:
    excludes = f" without {', '.join(energy.excludes)}" if energy.excludes else ""
    return f"{energy.sensor}, scope {EnergyClass(energy.scope, energy_provenance(run) or '')}{excludes}"


def _largest_uncertainty(values: Iterable[float | None]) -> float | None:
    known = list(values)
    return max((value for value in known if value is not None), default=None) if None not in known else None
