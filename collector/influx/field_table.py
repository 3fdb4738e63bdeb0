"""The table of what is written to InfluxDB: every measurement, tag and field."""

from collections.abc import Iterator, Mapping
from typing import Any

from edgemeter.agent.base.documents import csv_document
from edgemeter.agent.contract import record
from edgemeter.collector.influx import point_schema, status_points
from edgemeter.collector.influx.points import BOUNDS_NS

# Ends the name of a field that is written with `--influx-fields figures`.
STAR = " *"
TEXTS = {
    "case_hash": "hash of the case: of all that distinguishes it, but for device and fleet",
    "energy_source": "scope, sensor and provenance of the energy: `board-input, ina219, measured`; of `power_trace` those of the readings",
    "variant": "what else distinguishes the case: backend, threads, batch, input shapes, load, power mode, `replayed` of a replay, "
    "settings, served model",
}


def _descriptions(parts: Mapping[str, Any], kind: str, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the name of every field of a struct in the record's schema with its description."""
    for name, field in parts[kind]["properties"].items():
        options = field.get("anyOf", [field])
        inner = next((option["$ref"].rsplit("/", 1)[1] for option in options if "$ref" in option), None)
        if inner:
            yield from _descriptions(parts, inner, f"{prefix}{name}_")
        else:
            yield prefix + name, field["description"]


def rows() -> Iterator[tuple[str, ...]]:
    """Yield the rows: measurement, tag or field, name, type, meaning; a field of `figures` has a star."""
    for name in sorted({*point_schema.TAGS, *point_schema.CASE_TAGS}):
        yield "run", "tag", name, "text", TEXTS.get(name) or f"`{point_schema.TAGS[name]}` of the record"
    meaning = dict(_descriptions(record.json_schema()["$defs"], "RunRecord"))
    for point_field in point_schema.every_field(point_schema.RECORD):
        star = STAR if point_field.name in point_schema.FIGURES else ""
        yield (
            "run",
            "field",
            point_field.name + star,
            "JSON text" if point_field.kind == "json" else point_field.kind,
            meaning[point_field.name],
        )
        for key, name in point_field.by_name.items():
            yield "run", "field", name, point_field.by_name_kind or "", f"`{key}` of `{point_field.name}`"
    for figure in point_schema.WORKED_OUT:
        yield "run", "field", figure.name + STAR, "boolean" if figure.is_truth else "float", f"{figure.title}, worked out from the record"
    yield "run", "field", point_schema.ENERGY_PROVENANCE + STAR, "text", "measured, replayed or published"
    for tag, name in point_schema.EXACT.items():
        yield "run", "field", name, "text", f"the exact text of the tag `{tag}`, where the tag does not hold it"
    for measurement, tags, fields in (
        (status_points.DEVICE, status_points.DEVICE_TAGS, status_points.DEVICE_FIELDS),
        (status_points.COLLECTOR, status_points.COLLECTOR_TAGS, status_points.COLLECTOR_FIELDS),
    ):
        yield from ((measurement, "tag", name, "text", f"the {name}") for name in tags)
        yield from ((measurement, "field", field.name, field.kind, field.description) for field in fields)
    for name, text in (("kind", "`step`, or what changed: firmware, kernel, ..."), ("device", "the device"), ("fleet", "the fleet")):
        yield "change", "tag", name, "text", text
    yield "change", "field", "text", "text", "the change in words"
    yield "latency_histogram", "tag", "as `run`", "", ""
    yield "latency_histogram", "field", "to_N_ns", "integer", f"queries of at most N ns, above the bound before; {len(BOUNDS_NS)} bounds"
    yield "latency_histogram", "field", "above_ns", "integer", "queries above the last bound"
    yield "latency_histogram", "field", "run_id", "text", "the run"
    yield "power_trace", "tag", "as `run`", "", ""
    for name, kind, text in (
        ("sensor", "text", "name of the sensor"), ("run_id", "text", "the run"), ("power_w", "float", "a reading in W"),
        ("energy_mj", "float", "a reading of an energy counter in mJ"),
    ):  # fmt: skip
        yield "power_trace", "field", name, kind, text


def csv_file() -> str:
    """Return every row as CSV; those of `figures` have a 1 in the last column."""
    head = ["measurement", "kind", "name", "type", "meaning", "figures"]
    return csv_document(head, ([*row[:2], row[2].removesuffix(STAR), *row[3:], "1" if row[2].endswith(STAR) else ""] for row in rows()))
