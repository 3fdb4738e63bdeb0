"""Devices that send the collector more useless messages than any board does."""

from edgemeter.collector.receive.flooding import MUTE_S, USELESS_AT_ONCE, UselessMessages

RESULT = "edgemeter/v1/lab/pi-1/result"


def test_a_flooder_is_named_once_and_muted_until_it_is_quiet():
    """A board that sends its whole window again is none."""
    now_s = 0.0
    useless = UselessMessages(lambda: now_s)
    for _ in range(1000):
        useless.count(RESULT, 4096)
    assert (useless.flooders(), list(useless.muted())) == ([], [])
    for _ in range(int(USELESS_AT_ONCE)):
        useless.count(RESULT, 4096)
    assert (useless.flooders(), list(useless.muted())) == (["pi-1"], ["edgemeter/v1/lab/pi-1"])
    assert useless.flooders() == []
    now_s = MUTE_S + 1
    assert list(useless.muted()) == []


def test_messages_of_no_device_accuse_nobody():
    """A sink's rejections and campaigns are the server's own."""
    useless = UselessMessages(lambda: 0.0)
    for _ in range(3 * int(USELESS_AT_ONCE)):
        useless.count("influx http://influx.example:8086", 1)
    assert useless.flooders() == []
