"""What is written to InfluxDB: every measurement, tag and field."""

from edgemeter.collector.influx.field_table import TEXTS, rows
from tests.docs.reference.tables import table

HEAD = """# InfluxDB fields

Names, types and units are stable: a field is never renamed, and never changes its type. New ones may come. What is one series, and what
limits names: [InfluxDB and Grafana](../influxdb.md). `edgemeter config schema influxdb` lists every tag and field with its
type and meaning as CSV.

## Measurement run

A field of the [record](record.md) has the record's name; inside a part, the part's name comes first: `p50_ms` of `latency` is
`latency_p50_ms`. A list or a map is JSON text. `exact_TAG` is the exact text of a tag that cannot hold it. With `--influx-fields figures`
only those are written that its column `figures` marks.

"""


def page() -> str:
    """Return the page: the tags, how the fields of a run are named, and the names in the other measurements."""
    all_rows = list(rows())
    tags = [row for row in all_rows if row[:2] == ("run", "tag")]
    plain = ", ".join(f"`{row[2]}` ({row[4].partition(' ')[0]})" for row in tags if row[2] not in TEXTS)
    text = f"{HEAD}Tags with the field of the record: {plain}; and\n\n"
    text += table(["tag", "meaning"], ((f"`{row[2]}`", row[4]) for row in tags if row[2] in TEXTS))
    for measurement in dict.fromkeys(row[0] for row in all_rows if row[0] != "run"):
        fields_and_tags = [row for row in all_rows if row[0] == measurement]
        names = ", ".join(f"`{row[2]}`" for row in fields_and_tags if row[1] == "tag")
        text += f"\n## Measurement {measurement}\n\nTags: {names.replace('`as `run``', 'as `run`')}.\n\n"
        text += f"Fields: {', '.join(f'`{row[2]}`' for row in fields_and_tags if row[1] == 'field')}.\n"
    return text
