"""The figures of a run, what InfluxDB gets of them, and the metrics that a collector serves."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from edgemeter.agent.base.broker_address import parse_address
from edgemeter.agent.contract.figures import FIGURES, Figure, field_name
from edgemeter.agent.contract.messages import DeviceState
from edgemeter.agent.ledger.presence import PresenceChange
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.collector.influx.points import CASE_TAGS, ENERGY_PROVENANCE, FACTS, TAGS
from edgemeter.collector.influx.status_points import DEVICE_FIELDS
from edgemeter.collector.receive.collector import Collector
from edgemeter.collector.receive.monitor import PREFIX, CollectorMetrics
from edgemeter.collector.trend.watch_file import WatchFile, watch_file_beside
from tests.docs.reference.tables import table

HEAD = """# Figures

A figure has the same name in the record (with a `.` after the first part), JSON, CSV, Parquet, InfluxDB, the page and the trend. Options
also take its title: `--figure p99`. In a comparison, `_min` and `_max` are the range over runs, `_low` and `_high` the 95% interval, and
`_u` the expanded uncertainty.

The trend, and alerts by it, follow the figures with a number in the last column: the smallest change that counts, in percent, or in points
(hundredths) for a ratio. Those with `*` are followed only if you name them.

"""
CASE_TEXTS = {
    "case_hash": "hash of the case without device and fleet",
    "energy_source": "scope, sensor and provenance of the energy",
    "variant": "backend, threads, batch, input shapes, load, power mode, replay, settings and served model",
}
METRICS = f"""
## Metrics of the collector

`edgemeter collector up --metrics [HOST:]PORT` serves them at `/metrics` for Prometheus, by default on 127.0.0.1.
All begin with `{PREFIX}`.

"""
HEALTH = """
`/healthz` answers 200 and `ok` while the collector can receive. Otherwise it answers 503 and the reason, such as a full disk. Use it for a
container's health check.
"""


def page() -> str:
    """Return the page."""
    return HEAD + table(["name", "title", "unit", "better", "trend"], map(_cells, FIGURES)) + _influx() + METRICS + _metrics() + HEALTH


def _cells(entry: Figure) -> tuple[str, str, str, str, str]:
    trend = "" if entry.trend is None else f"{entry.trend.matters:g}{'' if entry.trend.is_default else ' *'}"
    return f"`{entry.name}`", entry.title, entry.unit or "1", entry.better or "-", trend or "-"


def _influx() -> str:
    fields, tags = (", ".join(f"`{name}`" for name in names) for names in (map(field_name, FACTS), TAGS))
    case_tags = "".join(f"- `{name}`: {CASE_TEXTS[name]}\n" for name in CASE_TAGS)
    device = "".join(f"- `{name}`: {meaning}\n" for name, (meaning, _) in DEVICE_FIELDS.items())
    return f"""
## InfluxDB

Fields are never renamed and never change their type; new ones may be added.

**Measurement `run`**: one point for each run. Its fields are the figures above, {fields}, and `{ENERGY_PROVENANCE}`. Its tags are {tags},
and:

{case_tags}
**Measurement `device`**: presence and health, with the tags `device` and `fleet`.

{device}
**Measurement `collector`**: `lag_rows` is the number of records that wait for the drain. The tag `collector` is the id of the ledger.

**Measurement `change`**: `text` describes a change of a device. Tags are `device`, `fleet` and `kind` (`step`, `note`, `firmware`, ...).
"""


def _metrics() -> str:
    """Return the metrics of a collector that is not started, with a ledger in which each has a value."""
    with tempfile.TemporaryDirectory() as folder:
        ledger = Path(folder) / "ledger.sqlite"
        with SqliteLedger(ledger) as opened:
            opened.commit([], changes=[PresenceChange("lab", "pi-1", DeviceState(state="online", session=1), 1)])
            opened.advance("influx", 0)
        with WatchFile(watch_file_beside(str(ledger))) as file, file.writing() as statements:
            statements.execute("INSERT INTO alert_checks VALUES (1, 1)")
        families = [*CollectorMetrics(Collector(parse_address("127.0.0.1:1", environ={}), ledger)).collect()]
    return table(["metric", "meaning"], map(_metric_cells, families))


def _metric_cells(family: Any) -> Iterator[str]:
    suffix = "_total" if family.type == "counter" else ""
    labels = "".join(f"{{{label}}}" for label in family.samples[0].labels if label != "le")
    yield f"`{family.name.removeprefix(PREFIX)}{suffix}{labels}`"
    yield family.documentation
