"""Where an energy comes from, worked out in one place from what the record has; energies of different provenance never rank together."""

from typing import Literal

from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_conditions import Provenance
from edgemeter.agent.contract.record_figures import Energy

# `shared`: that of all models that ran at the same time, and no cost of one of them.
EnergyProvenance = Provenance | Literal["shared"]
MEASURED = "measured"
REPLAY_SENSOR = "replay"


def sensor_provenance(sensor: str, stated_provenance: Provenance | None) -> Provenance | None:
    """Return where what `sensor` (an id) read comes from; `stated_provenance` is what the record states, which the sensor may contradict.

    None: nobody stated that it was measured.
    """
    return "replayed" if sensor.startswith(REPLAY_SENSOR) else stated_provenance


def energy_provenance(run: RunRecord, energy: Energy | None = None) -> EnergyProvenance | None:
    """Return where `energy` of `run` comes from, by default the run's own; None if it has none, or does not state that it was measured."""
    if (energy_of_run := energy or run.energy) is None:
        return None
    if run.together is not None:
        return "shared"
    timed = run.provenance.get("latency")
    # What the record states of its energy is stated of the first; the sensors beside it had the same queries.
    return sensor_provenance(energy_of_run.sensor, run.provenance.get("energy", timed) if energy_of_run is run.energy else timed)


def group_provenance(run: RunRecord, group_name: str) -> EnergyProvenance | None:
    """Return where the numbers `group_name` of `run` come from, None if that is not stated; by default from where its latency does."""
    is_energy = group_name == "energy" and run.energy is not None
    return energy_provenance(run) if is_energy else run.provenance.get(group_name, run.provenance.get("latency"))


def provenance_text(run: RunRecord) -> str:
    """Return where the numbers of a run come from: `measured`, `replayed`, or by group what was not measured: `energy replayed`."""
    provenances = {name: group_provenance(run, name) or "of unknown origin" for name in run.provenance}
    if len(set(provenances.values())) == 1:
        return next(iter(provenances.values()))
    return ", ".join(f"{name} {provenance}" for name, provenance in provenances.items() if provenance != MEASURED)


def not_measured(run: RunRecord, group_name: str) -> str | None:
    """Return why the numbers `group_name` of `run` cannot be compared, None if they were measured (or replayed).

    A replayed run is compared with replayed runs only: provenance is part of the case. A group without its own provenance has that of the
    latency.
    """
    if group_name == "energy" and run.energy is not None and run.energy.gross_mj <= 0:
        return (
            f"energy: {run.energy.gross_mj:.4g} mJ gross by {run.energy.sensor} is no energy: "
            "a reversed clamp or shunt, or a load below what the sensor shows"
        )
    provenance = group_provenance(run, group_name)
    if provenance == "shared" and run.together is not None:
        return f"{group_name}: shared with {run.together.names}, which ran at the same time: it is no cost of one model"
    return why_unranked(provenance, group_name)


def why_unranked(provenance: str | None, group_name: str) -> str | None:
    """Return why numbers of this provenance cannot be compared, None if they were measured (or replayed)."""
    if provenance in ("measured", "replayed"):
        return None
    if provenance is None:
        return f"{group_name}: the record does not state that it was measured"
    return f"{group_name}: {provenance}, not measured: it does not rank beside measurements"
