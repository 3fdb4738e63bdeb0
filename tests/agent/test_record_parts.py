import msgspec
import pytest

from edgemeter.agent import records
from edgemeter.agent.errors import ConfigError
from edgemeter.agent.record_parts import NO_SAMPLES, part, whole
from tests.fixtures.record_factory import make_record


def test_a_record_in_two_parts_is_whole_again():
    """Nothing is lost, and the head alone is a record without samples."""
    record = make_record()
    head, samples = part(records.encode(record))
    assert records.decode(whole(head, samples)) == record
    assert records.decode(head) == msgspec.structs.replace(record, samples=())


def test_fields_that_nobody_knows_yet_stay_in_the_head():
    """A newer agent's field is kept by an older collector."""
    head, samples = part(b'{"new": {"a": [1, 2]}, "samples": [{"x": 1}], "id": "i"}')
    assert msgspec.json.decode(head) == {"new": {"a": [1, 2]}, "id": "i"}
    assert msgspec.json.decode(samples) == [{"x": 1}]


def test_without_samples_there_are_none():
    """Absent and empty are the same."""
    assert part(b'{"id":"i"}')[1] == NO_SAMPLES
    assert part(b'{"id":"i","samples":[]}')[1] == NO_SAMPLES


@pytest.mark.parametrize("payload", [b"", b"[]", b"{", b'{"\xff":1}', b"[" * 99_999])
def test_what_is_no_object_cannot_be_taken_apart(payload):
    """A ConfigError, whatever it is."""
    with pytest.raises(ConfigError, match=r"^not a run record: "):
        part(payload)
