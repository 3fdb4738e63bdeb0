"""The provenance of an energy, from the record.

Energies of different provenance are never ranked together.
"""

from typing import Literal

from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_conditions import Provenance
from edgemeter.agent.contract.record_figures import Energy

# `shared`: the energy of several models that ran at the same time.
EnergyProvenance = Provenance | Literal["shared"]
MEASURED = "measured"


def sensor_provenance(sensor: str, stated_provenance: Provenance | None) -> Provenance | None:
    """Return the provenance of readings by `sensor` (an id).

    It is a replay's, or the one stated in the record; None if none is stated.
    """
    return "replayed" if sensor.startswith("replay") else stated_provenance


def energy_provenance(run: RunRecord, energy: Energy | None = None) -> EnergyProvenance | None:
    """Return the provenance of `energy` of `run`, by default the run's own.

    None if there is none, or none is stated.
    """
    if (energy_of_run := energy or run.energy) is None:
        return None
    if run.together is not None:
        return "shared"
    timed = run.provenance.get("latency")
    # The record's provenance is that of the first energy; the other sensors watched the same
    # queries.
    return sensor_provenance(
        energy_of_run.sensor,
        run.provenance.get("energy", timed) if energy_of_run is run.energy else timed,
    )


def group_provenance(run: RunRecord, group_name: str) -> EnergyProvenance | None:
    """Return the provenance of a group of figures, by default that of the latency.

    None if none is stated.
    """
    is_energy = group_name == "energy" and run.energy is not None
    return (
        energy_provenance(run)
        if is_energy
        else run.provenance.get(group_name, run.provenance.get("latency"))
    )


def provenance_text(run: RunRecord) -> str:
    """Return the provenance of a run's figures.

    It is `measured`, `replayed`, or the groups that were not measured: `energy replayed`.
    """
    provenances = {
        name: group_provenance(run, name) or "of unknown origin" for name in run.provenance
    }
    if len(set(provenances.values())) == 1:
        return next(iter(provenances.values()))
    return ", ".join(
        f"{name} {provenance}" for name, provenance in provenances.items() if provenance != MEASURED
    )


def not_measured(run: RunRecord, group_name: str) -> str | None:
    """Return why a group of figures cannot be compared, None if it was measured or replayed.

    A replayed run is compared with replayed runs only, because provenance is part of the case.
    """
    provenance = group_provenance(run, group_name)
    if provenance == "shared" and run.together is not None:
        return f"{group_name}: shared with {run.together.names}, which ran at the same time"
    return why_unranked(provenance, group_name)


def why_unranked(provenance: str | None, group_name: str) -> str | None:
    """Return why figures of this provenance cannot be compared.

    None if they were measured or replayed.
    """
    if provenance in ("measured", "replayed"):
        return None
    if provenance is None:
        return f"{group_name}: the record does not state that it was measured"
    return f"{group_name}: {provenance}, not measured, so it is not compared with measurements"
