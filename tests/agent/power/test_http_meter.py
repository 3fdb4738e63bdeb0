"""Facts about `edgemeter.agent.power.http_plugs`: a real HTTP server plays the meter."""

from contextlib import closing

import pytest

from edgemeter.agent.base.errors import ConfigError, TransientError, UnavailableError
from edgemeter.agent.base.http_client import authorisation, challenge, json_number, json_object
from edgemeter.agent.power import AbsentError, http_plugs
from edgemeter.agent.power.http_plugs import HttpMeter
from tests.fixtures.http_meter import PlayedMeter, playing
from tests.fixtures.rows import table_row


@pytest.fixture
def password_file(tmp_path):
    """Return a file with the meter's password."""
    path = tmp_path / "password"
    path.write_text("secret\n")
    return str(path)


def ask(path, *meter, **settings):
    """Return what the meter answers, its connection closed afterwards."""
    with closing(HttpMeter(*meter, **settings)) as one:
        return one.get(path)


def answers(body=b"{}", status=200):
    """Return a meter that answers every request with `body`."""
    return PlayedMeter(lambda _: (status, body))


@pytest.mark.parametrize(("algorithm", "response"), [
    ("MD5", "8ca523f5e9506fed4657c9700eebdbec"),
    ("SHA-256", "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1"),
])  # fmt: skip
def test_the_digest_is_that_of_the_standards_own_example(algorithm, response):
    """RFC 7616, section 3.9.1."""
    header = (
        f'Digest realm="http-auth@example.org", qop="auth, auth-int", algorithm={algorithm}, '
        'nonce="7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v", opaque="FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS"'
    )
    asked = challenge(header, "the meter")
    own = "f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ"
    said = authorisation(asked, "GET", "/dir/index.html", "Mufasa", "Circle of Life", 1, own)
    assert f'response="{response}"' in said
    assert 'opaque="FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS"' in said


@pytest.mark.parametrize("protect", ["SHA-256", "MD5", "basic"])
def test_a_password_is_given_where_it_is_asked_for(protect, password_file):
    """Once asked, every later request carries it at once."""
    played = answers(b'{"apower": 1}')
    played.protect = protect
    with playing(played):
        meter = HttpMeter("shelly", played.address, password_file=password_file)
        assert [meter.get("/a"), meter.get("/b?id=0")] == [b'{"apower": 1}'] * 2
        assert played.asked == ["/a", "/a", "/b?id=0"]
        # The device was started again, with another nonce.
        played.nonce = "71ab"
        assert meter.get("/c") == b'{"apower": 1}'
        meter.close()


def test_a_wrong_password_is_reported_and_not_shown(tmp_path, password_file):
    """Nor does a missing one pass in silence."""
    played = answers()
    played.protect, played.password = "SHA-256", "another"
    with playing(played):
        with pytest.raises(UnavailableError, match="refuses the password of 'admin'") as caught:
            ask("/", "shelly", played.address, password_file=password_file)
        assert "secret" not in str(caught.value)
        with pytest.raises(UnavailableError, match="set password_file"):
            ask("/", "shelly", played.address)
        with pytest.raises(ConfigError, match="cannot read"):
            ask("/", "shelly", played.address, password_file=str(tmp_path / "absent"))


def test_a_slow_meter_is_a_reading_that_failed(monkeypatch):
    """Its answer is not waited for without end, and does not turn up as that of the next request."""
    monkeypatch.setattr(http_plugs, "TIMEOUT_S", 0.2)
    played = answers(b"late")
    played.delay_s = 1.0
    with playing(played):
        meter = HttpMeter("shelly", played.address)
        with pytest.raises(TransientError, match="timed out"):
            meter.get("/")
        played.delay_s, played.answer = 0.0, lambda _: (200, b"now")
        assert meter.get("/") == b"now"
        meter.close()


def test_a_dropped_connection_is_opened_again():
    """One reading fails, the next does not."""
    played = answers(b"here")
    with playing(played):
        meter = HttpMeter("shelly", played.address)
        assert meter.get("/") == b"here"
        meter.close()
        played.drops = 1
        with pytest.raises(TransientError, match="does not answer"):
            meter.get("/")
        assert meter.get("/") == b"here"
        meter.close()


@pytest.mark.parametrize(
    ("status", "error"), [(404, UnavailableError), (500, TransientError), (503, TransientError), (429, TransientError)]
)
def test_a_refusal_is_distinguished_from_a_busy_meter(status, error):
    """And the query, which may hold a password, is not shown."""
    with playing(answers(b"no", status)) as played, pytest.raises(error, match=str(status)) as caught:
        ask("/cm?password=secret", "tasmota", played.address)
    assert "secret" not in str(caught.value)


def test_a_flood_is_not_read():
    """A megabyte is more than any meter says."""
    with playing(answers(b" " * ((1 << 20) + 1))) as played, pytest.raises(UnavailableError, match="more than 1 MiB"):
        ask("/", "shelly", played.address)


def test_a_port_without_listener_is_a_reading_that_failed():
    """A port that nobody listens on."""
    with playing(answers()) as played:
        address = played.address
    with pytest.raises(TransientError, match="switched on"):
        ask("/", "shelly", address)


def test_an_address_that_was_not_set_is_an_absent_meter():
    """And one that cannot be used is a mistake in the configuration."""
    with pytest.raises(AbsentError, match="set address"):
        ask("/", "shelly", "")
    for address in ("https://plug", "http://", "plug:port", "//[", "ftp://plug"):
        with pytest.raises(ConfigError, match="give HOST"):
            ask("/", "shelly", address)


def test_an_unknown_challenge_is_refused():
    """Rather than answered with something weaker."""
    with pytest.raises(UnavailableError, match="'SHA-512-256'"):
        challenge('Digest realm="x", nonce="y", algorithm=SHA-512-256', "the meter")
    with pytest.raises(UnavailableError, match="not known here"):
        challenge("Negotiate", "the meter")


CUT = [
    b"",
    b"{",
    b'{"a": 1',
    b"\xff{\xfe}",
    b"[1]",
    b'"text"',
    b"{" * 100_000,
    b'{"a": NaN}',
    b'"b": {"a": 1}, "c": 2}',
    b'"b": {"a": 1}}',
    b'[{"a": 1}]',
]


def test_a_reply_that_is_cut_or_garbled_is_a_reading_that_failed():
    """In one line, whatever its depth."""
    for content in CUT:
        with table_row(content[:20]), pytest.raises(TransientError) as caught:
            json_object(content, "the meter")
        assert len(str(caught.value)) < 300, f"{content[:20]!r}"


def test_headers_or_a_topic_before_the_reply_do_no_harm():
    """As people paste them."""
    assert json_object(b'HTTP/1.1 200 OK\r\nServer: x\r\n\r\n{"a": 1}', "") == {"a": 1}
    assert json_object(b'tele/plug/SENSOR = {"a": 1}\n', "") == {"a": 1}


def test_text_after_a_reply_does_no_harm():
    """The prompt behind curl's output, which ends without a new line, and the next replies of a log."""
    assert json_object(b'{"a": 1}pi@board:~ $ ', "") == {"a": 1}
    assert json_object(b'{"a": 1}\n{"a": 2}\n', "") == {"a": 1}


def test_numbers_may_be_strings_and_nothing_else():
    """True is no watt, and infinity none either."""
    assert [json_number(value) for value in (1, 2.5, "3.5", " 4")] == [1.0, 2.5, 3.5, 4.0]
    assert [json_number(value) for value in (True, None, "", "x", [1], {}, "inf", "nan", float("inf"))] == [None] * 9
