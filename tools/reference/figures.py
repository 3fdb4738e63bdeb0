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
from tests.fixtures.figure_bounds import bounds_of
from tools.reference.tables import table

HEAD = """# Figures

A figure has the same name in JSON, CSV, Parquet, InfluxDB, the web page and the trend. In the
record, `latency_p50_ms` is `p50_ms` of `latency`. Options also take its title: `--figure p50`. In a
comparison, `_min` and `_max` are the range over runs, `_low` and `_high` the 95% interval, and `_u`
the half-width of the interval of an energy.

TTFT is the time to the first token, TPOT the mean time of each further token. *pp* is the rate of
reading the prompt, *tg* that of generating text, *per user* that of one answer. *missed* is the
share of frames that were dropped or late, *slow-down* the latency next to other models divided by
that alone. `is_...` is true or false; the trend uses the share of runs.

A record with a figure outside its bounds is refused, and quarantined by a collector. An accuracy
may exceed 1 only if lower is better. A figure without bounds is computed from others.

The trend and its alerts follow the figures with a number in the last column. The number is the
smallest change that matters, in percent, or in points (hundredths) if the unit is 1. Figures with
`*` are followed only if you name them.

"""
CASE_TEXTS = {
    "case_hash": "hash of the case without device and fleet",
    "energy_source": "scope, sensor and provenance of the energy",
    "variant": (
        "backend, threads, batch, input shapes, load, power mode, replay, settings and served model"
    ),
}
METRICS = f"""
## Metrics of the collector

`edgemeter collector up --metrics [HOST:]PORT` serves them at `/metrics` for Prometheus, by default
on 127.0.0.1. All begin with `{PREFIX}`. The drain writes the ledger's records to InfluxDB, the
sink.

"""
HEALTH = """
`/healthz` answers 200 while the collector can receive, else 503 with the reason.
"""


def page() -> str:
    """Return the page."""
    return (
        HEAD
        + table(["name", "title", "unit", "better", "bounds", "trend"], map(_cells, FIGURES))
        + _influx()
        + METRICS
        + _metrics()
        + HEALTH
    )


def _cells(entry: Figure) -> tuple[str, str, str, str, str, str]:
    trend = (
        ""
        if entry.trend is None
        else f"{entry.trend.matters:g}{'' if entry.trend.is_default else ' *'}"
    )
    return (
        f"`{entry.name}`",
        entry.title,
        entry.unit or "1",
        entry.better or "-",
        _bounds(entry),
        trend or "-",
    )


def _bounds(entry: Figure) -> str:
    if entry.of is not None:
        return "-"
    low, high = bounds_of(entry.path)
    return f"{low:g} to {high:g}"


def _influx() -> str:
    fields, tags = (
        ", ".join(f"`{name}`" for name in names) for names in (map(field_name, FACTS), TAGS)
    )
    bounds = ", ".join(
        f"`{field_name(path)}`"
        for entry in FIGURES
        for path in (entry.low, entry.high, entry.u)
        if path
    )
    case_tags = "".join(f"- tag `{name}`: {CASE_TEXTS[name]}\n" for name in CASE_TAGS)
    device = "".join(f"- `{name}`: {meaning}\n" for name, (meaning, _) in DEVICE_FIELDS.items())
    return f"""
## InfluxDB

No field is renamed or changes its type; new ones may be added.

**Measurement `run`**: one point for each run, at its start.

- fields: the figures above, {bounds}, {fields}, `{ENERGY_PROVENANCE}`
- tags: {tags}
{case_tags}
**Measurement `device`**: presence and health, with the tags `device` and `fleet`.

{device}
**Measurement `collector`**: `lag_rows` counts the records not yet in InfluxDB. The tag `collector`
is the id of the ledger.

**Measurement `change`**: `text` describes a change of a device. Tags are `device`, `fleet` and
`kind` (`step`, `note`, `firmware`, ...).
"""


def _metrics() -> str:
    """Return the metrics of a collector that is not started, each with a value from a ledger."""
    with tempfile.TemporaryDirectory() as folder:
        ledger = Path(folder) / "ledger.sqlite"
        with SqliteLedger(ledger) as opened:
            opened.commit(
                [],
                changes=[PresenceChange("lab", "pi-1", DeviceState(state="online", session=1), 1)],
            )
            opened.advance("influx", 0)
        with WatchFile(watch_file_beside(str(ledger))) as file, file.writing() as statements:
            statements.execute("INSERT INTO alert_checks VALUES (1, 1)")
        families = [
            *CollectorMetrics(Collector(parse_address("127.0.0.1:1", environ={}), ledger)).collect()
        ]
    return table(["metric", "meaning"], map(_metric_cells, families))


def _metric_cells(family: Any) -> Iterator[str]:
    suffix = "_total" if family.type == "counter" else ""
    labels = "".join(f"{{{label}}}" for label in family.samples[0].labels if label != "le")
    yield f"`{family.name.removeprefix(PREFIX)}{suffix}{labels}`"
    yield family.documentation
