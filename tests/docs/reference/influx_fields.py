"""What is written to InfluxDB: every measurement, tag and field."""

from edgemeter.agent.contract.figures import field_name
from edgemeter.collector.influx.points import CASE_TAGS, ENERGY_PROVENANCE, FACTS, TAGS
from edgemeter.collector.influx.status_points import DEVICE_FIELDS
from tests.docs.reference.tables import table

HEAD = """# InfluxDB fields

Names, types and units are stable: a field is never renamed, and never changes its type. New ones may come. What is one series, and what
limits names: [Collector](../tasks/collector.md#copy-results-into-influxdb).

## Measurement run

A point is a run. Its fields are the [figures](figures.md) with their bounds and uncertainties, and which run it is.

"""
CASE_TEXTS = {
    "case_hash": "hash of the case: of all that distinguishes it, but for device and fleet",
    "energy_source": "scope, sensor and provenance of the energy: `board-input, ina219, measured`",
    "variant": "what else distinguishes the case: backend, threads, batch, input shapes, load, power mode, `replayed` of a replay, "
    "settings, served model",
}


def page() -> str:
    """Return the page."""
    tags = [*((name, f"`{path}` of the record") for name, path in TAGS.items()), *((name, CASE_TEXTS[name]) for name in CASE_TAGS)]
    facts = ", ".join(f"`{name}`" for name in map(field_name, FACTS))
    return (
        f"{HEAD}{table(['tag', 'meaning'], ((f'`{name}`', meaning) for name, meaning in tags))}\n"
        f"Fields of the [record](record.md): {facts}. `{ENERGY_PROVENANCE}` is measured, replayed, published or shared.\n"
        "\n## Measurement device\n\nPresence and health of a device, tags `device` and `fleet`.\n\n"
        f"{table(['field', 'meaning'], ((f'`{name}`', meaning) for name, (meaning, _) in DEVICE_FIELDS.items()))}"
        "\n## Measurement collector\n\nTag `collector`, the id of its ledger. `lag_rows` is how many records wait for the drain.\n"
        "\n## Measurement change\n\nTags `device`, `fleet` and `kind` (`step`, `note`, or what changed: `firmware`, `kernel`, ...).\n"
        "`text` is the change in words. `edgemeter collector changes` writes them.\n"
    )
