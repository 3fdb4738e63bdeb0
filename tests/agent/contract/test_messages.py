import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract import messages
from tests.fixtures.rows import table_row

BIRTH = messages.Birth(
    device="pi-1",
    fleet="lab",
    session=7,
    agent="0.1.0",
    board=None,
    os=None,
    arch="aarch64",
    runtimes={"onnx": "1.22"},
)


def test_every_message_comes_back_equal_and_a_field_from_a_newer_version_is_tolerated():
    """Receipt, state and birth survive encoding and decoding."""
    for message, decode in (
        (messages.Receipt(session=2**53 - 1, held=((1, 3), (7, 7))), messages.decode_receipt),
        (messages.DeviceState(state="lost", session=7), messages.decode_state),
        (BIRTH, messages.decode_birth),
    ):
        assert decode(messages.encode_message(message)) == message
    assert messages.decode_receipt(
        b'{"session":1,"held":[[1,2]],"collector":"x"}'
    ) == messages.Receipt(session=1, held=((1, 2),))


def test_what_is_no_receipt_ends_in_one_line():
    """Garbage is refused, as are numbers beyond what JSON readers keep exactly."""
    for payload in [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b'{"session":-1,"held":[]}',
        b'{"session":1,"held":[[1]]}',
        b'{"session":1,"held":[[0,9007199254740992]]}',
        b"[" * 99_999,
    ]:
        with table_row(payload[:40]), pytest.raises(ConfigError, match=r"^not a receipt: "):
            messages.decode_receipt(payload)


def test_a_topic_is_taken_apart_and_put_together():
    """A topic has fleet, device and kind, and one that is not ours is refused."""
    topic = messages.parse_topic("edgemeter/v1/lab/pi 1/result")
    assert topic == messages.Topic("lab", "pi 1", "result")
    assert str(topic) == "edgemeter/v1/lab/pi 1/result"
    for text in [
        "",
        "edgemeter/v1/lab/pi/other",
        "edgemeter/v1/lab/pi",
        "edgemeter/v1/lab/pi/result/x",
        "edgemeter/v1//pi/result",
        "edgemeter/v2/l/p/state",
    ]:
        with table_row(text), pytest.raises(ConfigError, match="is not a topic of ours"):
            messages.parse_topic(text)
