"""What a device reports of an outbox that it cannot read."""

import msgspec
import pytest

from edgemeter.agent.contract.health import Health, LastStop, decode_health, dropped_records, encode_health, waiting_records
from edgemeter.agent.contract.messages import Number, Receipt
from edgemeter.agent.delivery.outbox import Outbox
from edgemeter.agent.health.collect import CollectOrder, read_health
from edgemeter.agent.ledger.presence import needs_attention
from tests.fixtures.record_factory import make_record

ORDER = CollectOrder(device="pi-1", fleet="lab", session=1, config=None, floor_ns=0, last_words=LastStop(kind="first"))


class HealthBefore(msgspec.Struct):
    """The counts as a reader of before knows them."""

    waiting_records: Number = 0
    dropped_records: Number = 0


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Return an empty home of the agent."""
    monkeypatch.setenv("EDGEMETER_HOME", str(tmp_path))
    return tmp_path


def test_what_has_its_receipt_does_not_wait(home):
    """It is only kept; and where there is no outbox yet nothing waits."""
    assert (waiting_records(read_health(ORDER)), read_health(ORDER).outbox_trouble) == (0, msgspec.UNSET)
    with Outbox(home / "outbox.sqlite") as outbox:
        for _ in range(3):
            outbox.put(make_record(device="pi-1"))
        outbox.forget(Receipt(session=outbox.session, held=((1, 2),)))
    found = read_health(ORDER)
    assert (waiting_records(found), dropped_records(found), found.outbox_trouble) == (1, 0, msgspec.UNSET)


def test_an_outbox_that_cannot_be_read_is_unknown_and_never_empty(home):
    """It is named, and a reader of before still takes the message."""
    (home / "outbox.sqlite").write_text("shopping list")
    sent = encode_health(read_health(ORDER))
    found = decode_health(sent)
    assert isinstance(found, Health)
    assert waiting_records(found) is dropped_records(found) is None
    assert "is not an edgemeter outbox" in found.outbox_trouble
    assert "its outbox cannot be read" in needs_attention(found, found.told_ns)
    assert msgspec.json.decode(sent, type=HealthBefore) == HealthBefore()
