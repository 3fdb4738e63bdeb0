"""The tags beside those of `point_schema.TAGS`, so that no two cases of a model, and no two kinds of energies, are ever one series.

A record's attributes are read by name: `point_schema.read_figures` gives an object that has only those.
"""

from collections.abc import Callable
from functools import lru_cache
from hashlib import sha256

from edgemeter.agent.contract.case_identity import FIELD, FIELDS, CaseKey, key_of
from edgemeter.agent.contract.energy_provenance import energy_provenance, sensor_provenance
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_conditions import Tensor
from edgemeter.agent.contract.record_figures import PowerTrace

# The fields of a case's identity in `variant`: what no tag of its own holds, but for what may change within a series.
VARIANT = (
    "backend", "threads", "batch", "input_values", "samples_per_query", "target_per_s", "power_mode", "provenance", "settings",
    "served_model", "text_form",
)  # fmt: skip

# Characters; a tag holds 200.
LONGEST_PART = 60

# What is read of a record for the tags.
PATHS = sorted({*(path for field in FIELDS for path in field.paths), "energy.is_modelled", "energy.scope", "energy.sensor"})


def variant(record: RunRecord) -> str:
    """Return what distinguishes the case from others of its model, runtime, precision, scenario and data: `cuda, 4 threads, batch 8`."""
    return _variant(key_of(record), record.inputs)


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
def _variant(key: CaseKey, inputs: tuple[Tensor, ...]) -> str:
    parts: list[str] = []
    usual = {"samples_per_query": key.batch, "provenance": "measured", "settings": ""}
    for name in VARIANT:
        if name == "input_values":
            parts += ["x".join(map(str, tensor.shape)) for tensor in inputs]
        elif getattr(key, name) not in (None, usual.get(name)):
            parts.append(_short(FIELD[name].text(key)))
    return ", ".join(parts)


def _short(text: str) -> str:
    """Return a text that leaves room in a tag for the others: a long one ends with its hash."""
    return text if len(text) <= LONGEST_PART else f"{text[: LONGEST_PART // 2]} {sha256(text.encode()).hexdigest()[:8]}"
