import msgspec
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract import record as contract_record
from edgemeter.agent.contract.record import NO_SAMPLES, join_samples, split_samples
from tests.fixtures.record_factory import make_record
from tests.fixtures.rows import table_row


def test_a_record_in_two_parts_is_whole_again():
    """Nothing is lost, and the head alone is a record without samples."""
    record = make_record()
    head, samples = split_samples(contract_record.encode(record))
    assert contract_record.decode(join_samples(head, samples)) == record
    assert contract_record.decode(head) == msgspec.structs.replace(record, samples=())


def test_fields_that_nobody_knows_yet_stay_in_the_head():
    """A newer agent's field is kept by an older collector."""
    head, samples = split_samples(b'{"new": {"a": [1, 2]}, "samples": [{"x": 1}], "id": "i"}')
    assert msgspec.json.decode(head) == {"new": {"a": [1, 2]}, "id": "i"}
    assert msgspec.json.decode(samples) == [{"x": 1}]


def test_without_samples_there_are_none():
    """Absent and empty are the same."""
    assert split_samples(b'{"id":"i"}')[1] == NO_SAMPLES
    assert split_samples(b'{"id":"i","samples":[]}')[1] == NO_SAMPLES


def test_what_is_no_object_cannot_be_taken_apart():
    """A ConfigError, whatever it is."""
    for payload in [b"", b"[]", b"{", b'{"\xff":1}', b"[" * 99_999]:
        with table_row(payload[:20]), pytest.raises(ConfigError, match=r"^not a run record: "):
            split_samples(payload)
