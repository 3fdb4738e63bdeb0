"""The tags beside those of `point_schema.TAGS`, so that no two cases of a model, and no two kinds of energies, are ever one series.

A record's attributes are read by name: `point_schema.read_figures` gives an object that has only those.
"""

from collections.abc import Callable
from functools import lru_cache

from edgemeter.agent.contract.energy_provenance import energy_provenance, sensor_provenance
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_conditions import Tensor
from edgemeter.agent.contract.record_figures import PowerTrace

# What is read of a record for them.
PATHS = (
    "batch", "energy.is_modelled", "energy.scope", "energy.sensor", "environment.power_mode", "inputs", "load.samples_per_query",
    "load.target_per_s", "provenance", "runtime.backend", "runtime.threads",
)  # fmt: skip


def variant(record: RunRecord) -> str:
    """Return what distinguishes the case from others of its model, runtime, precision, scenario and data: `cuda, 4 threads, batch 8`."""
    load = record.load
    return _variant(
        record.runtime.backend,
        record.runtime.threads,
        record.batch,
        None if load is None or load.samples_per_query == record.batch else load.samples_per_query,
        None if load is None else load.target_per_s,
        record.environment.power_mode,
        record.inputs,
        record.provenance.get("latency", "not stated to be measured"),
    )


def energy_source(record: RunRecord) -> str | None:
    """Return the scope, sensor and provenance of the energy: `board-input, ina219, measured`; None without an energy."""
    energy = record.energy
    return None if energy is None else _source(energy.scope, energy.sensor, energy_provenance(record))


def trace_source(record: RunRecord, trace: PowerTrace) -> str:
    """Return the same of a sensor's readings."""
    provenance = sensor_provenance(trace.sensor or trace.name, record.provenance.get("latency"), is_modelled=trace.is_modelled)
    return _source(trace.scope, trace.sensor or trace.name, provenance)


def _source(scope: str | None, sensor: str | None, provenance: str | None) -> str:
    return f"{scope or 'unknown scope'}, {sensor or 'unknown sensor'}, {provenance or 'not stated to be measured'}"


CASE_TAGS: dict[str, Callable[[RunRecord], str | None]] = {"energy_source": energy_source, "variant": variant}


@lru_cache(65_536)
def _variant(
    backend: str,
    threads: int,
    batch: int,
    samples_per_query: int | None,
    rate_per_s: float | None,
    power_mode: str | None,
    inputs: tuple[Tensor, ...],
    provenance: str,
) -> str:
    parts = [backend, f"{threads} thread{'s' * (threads != 1)}", f"batch {batch}"]
    parts += ["x".join(map(str, tensor.shape)) for tensor in inputs]
    parts += [f"{samples_per_query} a query"] if samples_per_query is not None else []
    parts += [f"{rate_per_s:g} per s"] if rate_per_s is not None else []
    parts += [power_mode] if power_mode else []
    parts += [provenance] if provenance != "measured" else []
    return ", ".join(parts)
