import msgspec
import pytest

from edgemeter.agent import records
from edgemeter.collector.keep import line_protocol
from tests.fixtures.record_factory import make_accuracy, make_environment, make_latency, make_model, make_record, make_runtime


def fields_of(record):
    """Return the fields of a record's line as text by name, split by hand: no value of these tests holds a comma or a blank."""
    _, fields, _ = line_protocol.line(record).replace("\\ ", "_").split(" ")
    return dict(field.split("=", 1) for field in fields.split(","))


def plain(**changes):
    """Return a record whose texts hold no comma and no blank."""
    changes = {"case": "case", "inputs": (), "outputs": (), "conditions": (), "energy": None, "provenance": {}} | changes
    environment = make_environment(board="pi5", os="os", libraries={}, attached=())
    return make_record(session=5, seq=1, runtime=make_runtime(options={}), environment=environment, **changes)


def test_every_scalar_of_the_record_is_a_field_with_the_type_of_the_schema():
    """Floats are always floats, whole numbers integers; names are the record's with `_` for `.`."""
    fields = fields_of(plain(throughput_per_s=80.0))
    expected = {
        "latency_p50_ms": "12.25", "latency_count": "64i", "throughput_per_s": "80.0", "accuracy_value": "0.625", "accuracy_ap50": "0.875",
        "memory_peak_mb": "92.5", "verdict_state": '"valid"', "session": "5i", "seq": "1i", "warm_up_steady": "true", "mode": '"rapid"',
        "latency_refused_p95": "110i", "model_name": '"tiny-detector"', "started_at_ns": "1760000000123456789i",
    }  # fmt: skip
    assert {name: fields[name] for name in expected} == expected
    assert fields["dataset_sha256"] == '"' + "d5" * 32 + '"'


def test_a_float_field_stays_a_float_even_when_an_integer_slipped_in():
    """One whole number without a point would pin the column to integers for everybody."""
    assert fields_of(plain(throughput_per_s=80))["throughput_per_s"] == "80.0"
    assert fields_of(plain(throughput_per_s=1e22))["throughput_per_s"] == "1e+22"


def test_what_is_absent_has_no_field():
    """Absent is absent, not zero."""
    fields = fields_of(plain(accuracy=None, preprocess=None, latency=make_latency(p90_ms=None)))
    assert not [name for name in fields if name.startswith(("accuracy_", "energy_", "preprocess_")) and name != "energy_reason"]
    assert "latency_p90_ms" not in fields
    assert "latency_p90_low_ms" in fields


def test_a_field_of_every_scalar_in_the_schema_is_written():
    """A field that is added to the record comes along by itself; only the raw samples stay behind."""
    schema = {name for name in walk(records.json_schema(), "RunRecord") if not name.startswith("samples")}
    written = set(line_protocol._NAMES) | {named.path for named in line_protocol._NAMED} | line_protocol._AS_TAGS
    assert written == schema


def walk(schema, kind, prefix=""):
    """Yield the flat names of a struct in the JSON Schema."""
    for name, field in schema["$defs"][kind]["properties"].items():
        options = field.get("anyOf", [field])
        inner = next((option["$ref"].rsplit("/", 1)[1] for option in options if "$ref" in option), None)
        if inner:
            yield from walk(schema, inner, f"{prefix}{name}_")
        else:
            yield prefix + name


def test_no_two_fields_share_a_name():
    """Flattening must not fold two values into one."""
    names = [one.name for one in line_protocol._FIELDS]
    assert len(names) == len(set(names))
    tags = {"board", "model", "runtime", "backend", "device", "fleet", "role", "suite", "scenario", "precision"}
    assert not tags & set(names)


def test_a_name_from_the_wire_cannot_take_over_a_field_or_break_the_line():
    """`accuracy.detail` has names that others chose."""
    detail = {"value": 0.5, "ap 50,x=1\n": 0.25, "": 0.125}
    fields = fields_of(plain(accuracy=make_accuracy(detail=detail)))
    assert fields["accuracy_value"] == "0.625"
    assert fields["accuracy_detail_value"] == "0.5"
    assert fields["accuracy_ap_50_x_1_"] == "0.25"
    assert fields["accuracy_"] == "0.125"


@pytest.mark.parametrize(
    ("text", "tag"),
    [
        ("plain", "plain"),
        ("a b", r"a\ b"),
        ("a,b=c", r"a\,b\=c"),
        ('a"b', 'a"b'),
        ("grün 深", r"grün\ 深"),
        ("a\nb\rc\td", r"a\ b\ c\ d"),
        ("a\\", "a/"),
        ("a\\ b", r"a/\ b"),
    ],
)
def test_tags_are_escaped_and_what_they_cannot_hold_is_replaced(text, tag):
    """Line ends and a final backslash have no escape in a tag."""
    line = line_protocol.line(plain(precision=text))
    assert f",precision={tag},role=device," in line
    assert "\n" not in line


def test_absent_tags_are_left_out_and_tags_come_sorted():
    """An empty tag value is an error to InfluxDB; sorted tags are what it wants."""
    record = plain(suite=None, precision="")
    head = line_protocol.line(record).split(" ")[0]
    assert "suite=" not in head
    assert "precision=" not in head
    names = [part.split("=")[0] for part in line_protocol.line(plain()).replace("\\ ", "_").split(" ")[0].split(",")[1:]]
    assert names == sorted(names)


def test_one_record_is_always_the_same_point():
    """A retry overwrites itself: the line of what was kept and read back is the same, to the byte."""
    record = plain()
    again = records.decode(records.encode(record))
    assert line_protocol.line(record) == line_protocol.line(again)
    assert line_protocol.line(msgspec.structs.replace(again, samples=())) == line_protocol.line(record)


def test_two_records_of_the_same_start_are_two_points():
    """Same tags, same nanosecond: session and seq tell them apart, and the millisecond stays."""
    points = {
        line_protocol.point_ns(plain_number(session, seq)) for session in (1, 2, 2**52, 77 << 16 | 4, 78 << 16 | 4) for seq in range(1, 200)
    }
    assert len(points) == 5 * 199
    start = plain().started_at_ns
    assert {point // 1_000_000 for point in points} == {start // 1_000_000}


def plain_number(session, seq):
    """Return a record of that number."""
    return msgspec.structs.replace(make_record(), session=session, seq=seq)


def test_a_model_name_with_a_blank_stays_one_tag():
    """Names may hold blanks, colons and at signs."""
    assert r",model=a\ b:c@d," in line_protocol.line(plain(model=make_model(name="a b:c@d")))
