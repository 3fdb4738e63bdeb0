import itertools
import re

import msgspec
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract import record as contract_record
from edgemeter.agent.contract.record_figures import Load
from edgemeter.agent.contract.record_generation import LanguageModel
from edgemeter.collector.influx import point_schema
from edgemeter.collector.influx import points as influx_points
from tests.fixtures.point_lines import point_line, read_whole
from tests.fixtures.random_records import random_record
from tests.fixtures.record_factory import (
    make_energy,
    make_environment,
    make_generation,
    make_latency,
    make_record,
    make_runtime,
)
from tests.fixtures.rows import table_row

LINE = r"((?:[^ \\]|\\.)*) (.*) (-?\d+)"
FIELD = r'[^=,]*=(?:"(?:[^"\\]|\\.)*"|[^",]*)'


def fields_of(record, extent="all"):
    """Return the fields of a record's line as they are written, by name."""
    head, fields, _ = re.fullmatch(LINE, point_line(record, extent), re.DOTALL).groups()
    assert head.startswith("run,")
    return dict(field.split("=", 1) for field in re.findall(FIELD, fields, re.DOTALL))


def plain(**changes):
    """Return a numbered record."""
    return make_record(session=5, seq=1, **changes)


def kinds(schema, kind, prefix=""):
    """Yield the flat names of a struct in the JSON Schema, each with the kind of field that it has to be."""
    for name, field in schema["$defs"][kind]["properties"].items():
        options = [option for option in field.get("anyOf", [field]) if option.get("type") != "null"]
        inner = next((option["$ref"].rsplit("/", 1)[1] for option in options if "$ref" in option), None)
        if inner:
            yield from kinds(schema, inner, f"{prefix}{name}_")
        elif "enum" in options[0]:
            yield prefix + name, "text"
        else:
            types = {"number": "float", "integer": "integer", "boolean": "boolean", "string": "text", "array": "json", "object": "json"}
            yield prefix + name, types[options[0]["type"]]


def test_every_field_of_the_schema_has_one_name_and_one_type():
    """A field that is added to the record comes along by itself, and no two share a name: a column never changes its type."""
    declared = dict(kinds(contract_record.json_schema(), "RunRecord"))
    fields = [(field.name, field.kind) for field in point_schema.every_field(point_schema.RECORD)]
    assert len(fields) == len(dict(fields))
    assert dict(fields) | dict.fromkeys(point_schema.AS_TAGS, "text") == {name: declared[name] for name in declared.keys() - {"samples"}}
    assert not point_schema.TAGS.keys() & dict(fields).keys()


KIND_OF = (("integer", r"-?\d+i"), ("boolean", "true|false"), ("text", '"(?s:.*)"'), ("float", r"-?\d+(\.\d+)?(e[+-]?\d+)?"))


def test_whatever_a_record_holds_a_column_keeps_its_type():
    """Over random records: extreme numbers, odd texts, names from the wire; a whole float is no integer."""
    declared = {field.name: field.kind for field in point_schema.every_field(point_schema.RECORD)} | dict.fromkeys(
        point_schema.EXACT.values(), "text"
    )
    kinds = {"all": {}, "figures": {}}
    for seed in range(20):
        record = random_record(seed)
        for extent, seen_kinds in kinds.items():
            for name, text in fields_of(record, extent).items():
                kind = next(kind for kind, form in KIND_OF if re.fullmatch(form, text))
                assert seen_kinds.setdefault(name, kind) == kind, (extent, name)
                assert declared.get(name, kind).replace("json", "text") == kind, (extent, name)
    assert len(kinds["all"]) > 100
    assert len(kinds["figures"]) > 15


def test_the_figures_are_few_and_each_is_a_field_of_the_record():
    """The names are those of the whole point, so that one query reads both."""
    declared = {field.name for field in point_schema.every_field(point_schema.RECORD)} | {entry.name for entry in point_schema.WORKED_OUT}
    assert declared >= point_schema.FIGURES
    fields = fields_of(plain(), "figures")
    assert fields.keys() <= point_schema.FIGURES | {point_schema.ENERGY_PROVENANCE}
    assert [fields[f"energy_{name}"] for name in ("scope", "sensor", "provenance")] == ['"board-input"', '"ina219"', '"measured"']
    assert fields["latency_p50_ms"] == "12.25"


def test_not_a_number_is_never_written():
    """The wire cannot carry it: where a number may be absent it is, and else that is no record."""
    assert "latency_p50_ms" not in fields_of(plain(latency=make_latency(p50_ms=float("inf"))))
    with pytest.raises(ConfigError, match="Expected `float`, got `null`"):
        point_line(plain(throughput_per_s=float("nan")))


def test_the_variant_distinguishes_the_cases_of_a_model():
    """Whatever a comparison keeps apart is another series."""
    for (changes, expected), extent in itertools.product(
        (
            ({}, "cpu, 2 threads, batch 1, 1x3x96x96"),
            ({"batch": 8}, "cpu, 2 threads, batch 8, 1x3x96x96"),
            ({"runtime": make_runtime(backend="cuda", threads=1, options={})}, "cuda, 1 thread, batch 1, 1x3x96x96"),
            (
                {"runtime": make_runtime(backend="cpu", options={"b": "2", "a": "1"}), "cpus": (0, 1)},
                "cpu, 2 threads, batch 1, 1x3x96x96, a 1, b 2, cpus 0 1",
            ),
            (
                {"generation": make_generation(is_local=False, model=LanguageModel(name="qwen", parameters=494, kv_type="q8_0"))},
                "cpu, 2 threads, batch 1, 1x3x96x96, kv_type q8_0, qwen, 494 parameters",
            ),
            ({"environment": make_environment(power_mode="15W")}, "cpu, 2 threads, batch 1, 1x3x96x96, 15W"),
            ({"provenance": {"latency": "replayed"}}, "cpu, 2 threads, batch 1, 1x3x96x96, replayed"),
            ({"load": Load(samples=80, target_per_s=2.5)}, "cpu, 2 threads, batch 1, 1x3x96x96, 2.5 per s"),
        ),
        ("all", "figures"),
    ):
        with table_row(changes, extent):
            record = plain(**({"runtime": make_runtime(backend="cpu", options={})} | changes))
            slim = read_whole(contract_record.encode(record), extent)
            assert influx_points.tags_of(slim)[0]["variant"] == expected


def test_an_energy_carries_scope_sensor_and_provenance():
    """In a tag that panels group by, and as fields, of the figures too."""
    for energy, source, provenance in (
        (make_energy(), "board-input, ina219, measured", "measured"),
        (make_energy(sensor="replay:demo"), "board-input, replay:demo, replayed", "replayed"),
    ):
        with table_row(source):
            for extent in ("all", "figures"):
                record = plain(energy=energy)
                slim = read_whole(contract_record.encode(record), extent)
                assert influx_points.tags_of(slim)[0]["energy_source"] == source
                fields = fields_of(record, extent)
                assert (fields["energy_provenance"], fields["energy_scope"]) == (f'"{provenance}"', f'"{energy.scope}"')
    assert influx_points.tags_of(plain(energy=None))[0]["energy_source"] is None
    assert "energy_provenance" not in fields_of(plain(energy=None))


def test_tags_are_escaped_and_what_they_cannot_hold_is_replaced():
    """Line ends and a final backslash have no escape in a tag."""
    for text, tag in (
        ("plain", "plain"),
        ("a b", r"a\ b"),
        ("a,b=c", r"a\,b\=c"),
        ('a"b', 'a"b'),
        ("grün 深", r"grün\ 深"),
        ("a\nb\rc\td", r"a\ b\ c\ d"),
        ("a\\", "a/"),
        ("a\\ b", r"a/\ b"),
    ):
        with table_row(text):
            tags = influx_points.tags_of(plain(precision=text))[1]
            assert f",precision={tag},role=device," in tags
            assert "\n" not in tags


def test_absent_tags_are_left_out_and_tags_come_sorted():
    """An empty tag value is an error to InfluxDB; sorted tags are what it wants."""
    record = plain(suite=None, precision="")
    head = point_line(record).split(" ")[0]
    assert "suite=" not in head
    assert "precision=" not in head
    head = point_line(plain()).replace("\\ ", "_").replace("\\,", "_").split(" ")[0]
    names = [part.split("=")[0] for part in head.split(",")[1:]]
    assert names == sorted(names)


def test_two_records_of_the_same_start_are_two_points():
    """Same tags, same nanosecond: session and seq tell them apart, and the millisecond stays."""
    points = {
        influx_points.point_ns(plain_number(session, seq)) for session in (1, 2, 2**52, 77 << 16 | 4, 78 << 16 | 4) for seq in range(1, 200)
    }
    assert len(points) == 5 * 199
    start = plain().started_at_ns
    assert {point // 1_000_000 for point in points} == {start // 1_000_000}


@pytest.mark.parametrize("extent", ["all", "figures"])
def test_a_record_stamped_by_two_collectors_is_one_point_of_the_day(extent):
    """The device never knew the time; each collector stamped it when it came there, and both drain."""
    day_ns = 24 * 3600 * 1_000_000_000
    morning_ns = make_record().started_at_ns // day_ns * day_ns + 7 * 3600 * 1_000_000_000
    records = [
        msgspec.structs.replace(plain_number(5, seq), clock_synchronised=False, stamped_by="collector", started_at_ns=stamp_ns)
        for seq in range(1, 500)
        for stamp_ns in (morning_ns, morning_ns + 300_123_456_789)
    ]
    points = [(point_line(record, extent).rsplit(" ", 1)[1], record.seq) for record in records]
    assert len(set(points)) == 499
    assert len({at_ns for at_ns, _ in points}) == 499
    assert all(int(at_ns) // day_ns == morning_ns // day_ns for at_ns, _ in points)
    read = [int(fields_of(record, extent)["started_at_ns"].rstrip("i")) for record in records[:2]]
    assert read == [morning_ns, morning_ns + 300_123_456_789]


def plain_number(session, seq):
    """Return a record of that number."""
    return msgspec.structs.replace(make_record(), session=session, seq=seq)
