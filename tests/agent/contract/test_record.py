import json

import jsonschema
import msgspec
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract import record as contract_record
from edgemeter.agent.contract.record import NO_SAMPLES, join_samples, split_samples
from tests.fixtures.record_factory import make_record
from tests.fixtures.rows import table_row


def test_a_record_comes_back_as_it_was_sent_in_one_part_and_in_two():
    """The head by itself is a record without samples."""
    record = make_record()
    assert contract_record.decode(contract_record.encode(record)) == record
    record = make_record()
    head, samples = split_samples(contract_record.encode(record))
    assert contract_record.decode(join_samples(head, samples)) == record
    assert contract_record.decode(head) == msgspec.structs.replace(record, samples=())
    assert (
        split_samples(b'{"id":"i"}')[1]
        == split_samples(b'{"id":"i","samples":[]}')[1]
        == NO_SAMPLES
    )


def test_a_failing_assertion_about_a_record_is_readable():
    """A record's representation is one line with its id, case and verdict."""
    record = make_record()
    assert repr(record) == f"<RunRecord {record.id} of case {record.case}: ok>"


def test_an_unknown_field_is_tolerated():
    """A newer agent's extra fields, at any depth, do not stop an older collector."""
    document = json.loads(contract_record.encode(make_record()))
    document["new"] = {"x": 1}
    document["latency"]["p99_99_ms"] = 3.0
    assert contract_record.decode(json.dumps(document).encode()) == contract_record.decode(
        contract_record.encode(make_record(id=document["id"]))
    )
    head, samples = split_samples(b'{"new": {"a": [1, 2]}, "samples": [{"x": 1}], "id": "i"}')
    assert msgspec.json.decode(head) == {"new": {"a": [1, 2]}, "id": "i"}
    assert msgspec.json.decode(samples) == [{"x": 1}]


def test_a_wrong_value_is_refused_with_its_path():
    """Names that cannot be topics, wrong types and unknown words name the field."""
    for change, says in [
        ({"device": "a/b"}, r"\$.device"),
        ({"device": ""}, r"\$.device"),
        ({"device": "a\n"}, r"\$.device"),
        ({"throughput_per_s": "fast"}, r"\$.throughput_per_s"),
        ({"verdict": {"state": "fine"}}, r"\$.verdict.state"),
        ({"id": None}, r"\$.id"),
        ({"seq": 1.5}, r"\$.seq"),
    ]:
        document = json.loads(contract_record.encode(make_record())) | change
        with table_row(change), pytest.raises(ConfigError, match=says):
            contract_record.decode(json.dumps(document).encode())


def test_what_is_no_record_is_refused():
    """Anything else than a record ends in one error and not in a crash.

    So does a record whose meaning may have changed.
    """
    for payload in [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"schema": NaN}',
        b"[" * 100_000,
        b'{"schema": 1e400}',
    ]:
        with table_row(payload[:20]), pytest.raises(ConfigError, match="not a run record"):
            contract_record.decode(payload)
    for payload in [b"", b"[]", b"{", b'{"\xff":1}', b"[" * 99_999]:
        with table_row(payload[:20]), pytest.raises(ConfigError, match=r"^not a run record: "):
            split_samples(payload)
    payload = json.dumps({"schema": contract_record.SCHEMA + 1, "anything": "else"}).encode()
    with pytest.raises(ConfigError, match="schema 2"):
        contract_record.decode(payload)


def test_the_json_schema_accepts_a_record_and_refuses_a_wrong_one():
    """The output of `edgemeter config schema` describes what travels."""
    schema = contract_record.json_schema()
    document = json.loads(contract_record.encode(make_record()))
    jsonschema.validate(document, schema, cls=jsonschema.Draft202012Validator)
    del document["latency"]["count"]
    with pytest.raises(jsonschema.ValidationError, match="count"):
        jsonschema.validate(document, schema, cls=jsonschema.Draft202012Validator)


def test_the_names_that_others_script_against_are_there():
    """The fixed names of the record are paths of its JSON."""
    document = json.loads(contract_record.encode(make_record()))
    fixed = """device model.name model.sha256 runtime.name runtime.version precision latency.count
        latency.p50_ms latency.p90_ms throughput_per_s cold_start.load_ms cold_start.first_ms
        memory.peak_mb accuracy.metric accuracy.value accuracy.detail energy reasons verdict.state
        verdict.violations schema"""
    for path in fixed.split():
        value = document
        for key in path.split("."):
            assert key in value, path
            value = value[key]


def test_the_record_stays_small():
    """A new property has to replace another, since nobody reads all of a long record."""
    assert (
        sum(len(part["properties"]) for part in contract_record.json_schema()["$defs"].values())
        <= 250
    )
