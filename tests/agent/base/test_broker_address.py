"""Facts about `edgemeter.agent.base.broker_address`.

They concern an address and what it names, and which version of MQTT answers there.
"""

from contextlib import contextmanager

import pytest

from edgemeter.agent.base import broker_address
from edgemeter.agent.base.broker_address import BrokerAddress, parse_address
from edgemeter.agent.base.broker_url import files_of, with_files
from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.base.tls import TlsFiles
from edgemeter.collector.receive.embedded_broker import EmbeddedBroker
from tests.fixtures.rows import table_row
from tests.fixtures.servers import mosquitto
from tests.fixtures.socket_pairs import serving


def test_an_address_is_taken_apart():
    """Scheme, user, host and port are read, and IANA's default ports fill in."""
    for text, expected in [
        ("broker", BrokerAddress("broker", 1883)),
        ("192.0.2.7:2883", BrokerAddress("192.0.2.7", 2883)),
        ("[2001:db8::1]:2883", BrokerAddress("2001:db8::1", 2883)),
        ("broker:", BrokerAddress("broker", 1883)),
        ("mqtt://broker", BrokerAddress("broker", 1883)),
        ("mqtts://broker/", BrokerAddress("broker", 8883, "mqtts")),
        ("mqtts://pi%40lab@broker:1", BrokerAddress("broker", 1, "mqtts", "pi@lab", "secret")),
    ]:
        assert parse_address(text, environ={"EDGEMETER_MQTT_PASSWORD": "secret"}) == expected, (
            f"{text!r}"
        )


def test_what_is_no_address_is_refused_with_the_forms():
    """The error repeats the text that is not an address."""
    for text in [
        "",
        " ",
        "broker:99999",
        "http://broker",
        "broker/path",
        "[::1",
    ]:
        with table_row(text), pytest.raises(ConfigError, match="is not a broker address"):
            parse_address(text)


def test_a_password_in_an_address_is_refused_and_not_repeated():
    """Addresses end up in logs and shell histories, where a password must not stand."""
    with pytest.raises(ConfigError, match="EDGEMETER_MQTT_PASSWORD") as refusal:
        parse_address("mqtt://user:hunter2@broker")
    assert "hunter2" not in str(refusal.value)


def test_the_password_comes_from_a_file_before_the_environment(tmp_path):
    """The line end of the password file is not part of the password."""
    file = tmp_path / "password"
    file.write_text("from file\n")
    environ = {"EDGEMETER_MQTT_PASSWORD": "from environment"}
    assert (
        parse_address(f"mqtt://u@b?password_file={file}", environ=environ).password == "from file"
    )
    assert parse_address("mqtt://u@b", environ=environ).password == "from environment"
    assert parse_address("mqtt://b", environ=environ).password is None


def test_a_password_without_a_user_is_not_left_out_in_silence():
    """Without the error the broker would refuse an anonymous client for no visible reason."""
    with pytest.raises(
        ConfigError, match=r"a password is named \('secret'\) and no user: write mqtt://USER@HOST"
    ):
        parse_address("mqtt://b?password_file=secret", environ={})


def test_an_address_prints_as_it_is_written_and_never_its_password():
    """An address that a message shows can be copied and used again."""
    for text in ("broker:1883", "mqtts://broker:8883", "[2001:db8::1]:1883"):
        assert str(parse_address(text)) == text
    secret = parse_address("mqtt://u@b", environ={"EDGEMETER_MQTT_PASSWORD": "hunter2"})
    assert "hunter2" not in f"{secret} {secret!r}"


def test_a_url_names_the_files_of_a_connection(tmp_path):
    """The URL names the authority, our certificate and its key, whatever letters the paths hold.

    An unknown parameter is refused.
    """
    files = {name: tmp_path / f"a+b & {name}" for name in ("ca", "certificate", "key")}
    for path in files.values():
        path.touch()
    url = with_files("mqtts://b:1?key=other", files)
    assert files_of(url) == files
    assert parse_address(url).tls == TlsFiles(*files.values())
    with pytest.raises(ConfigError, match=r"'keys', which is unknown: did you mean key\?"):
        parse_address("mqtts://b?keys=x")


@contextmanager
def answering(answer):
    """Let every connection lead to a server that answers with `answer` and hangs up."""

    def serve(connection):
        with connection:
            connection.recv(100)
            connection.sendall(answer)

    with serving(serve):
        yield BrokerAddress("broker", 1883)


def test_the_reply_to_the_smallest_connect_shows_the_version():
    """Every kind of reply to the probe shows which version of MQTT the broker speaks.

    The replies are: accepted, not authorised, unacceptable version in MQTT 5 and in 3.1.1, and a
    closed connection.
    """
    for answer, version in [
        (b"\x20\x03\x00\x00\x00", "5"),
        (b"\x20\x03\x00\x87\x00", "5"),
        (b"\x20\x03\x00\x84\x00", "3.1.1"),
        (b"\x20\x02\x00\x01", "3.1.1"),
        (b"", "3.1.1"),
    ]:
        with table_row(answer), answering(answer) as address:
            assert broker_address.mqtt_version(address, 5) == version


def test_what_sends_another_reply_is_no_broker():
    """A server of another protocol, such as SSH, is reported as not being an MQTT broker."""
    with (
        answering(b"SSH-2.0-OpenSSH\r\n") as address,
        pytest.raises(UnavailableError, match="is not an MQTT broker"),
    ):
        broker_address.mqtt_version(address, 5)


@pytest.mark.services
def test_the_embedded_broker_speaks_3_1_1():
    """The probe is answered at once, although the broker would misread a CONNECT of MQTT 5."""
    broker = EmbeddedBroker()
    assert broker_address.mqtt_version(broker.start(), 1) == "3.1.1"
    broker.stop()


@pytest.mark.mosquitto
@pytest.mark.parametrize(
    ("settings", "is_open"), [((), True), (("allow_anonymous false", "password_file {0}"), False)]
)
def test_a_broker_that_accepts_anybody_is_not_one_that_asks_for_a_password(
    tmp_path, settings, is_open
):
    """An open broker is found by a connection without a user, whatever user the address names.

    Both brokers speak MQTT 5. Where no broker answers, nobody is said to be let in.
    """
    (tmp_path / "passwords").write_text("")
    server = mosquitto(tmp_path, *(setting.format(tmp_path / "passwords") for setting in settings))
    server.start()
    address = BrokerAddress("127.0.0.1", server.port, user="ada", password="secret")
    assert broker_address.mqtt_version(address, 5) == "5"
    assert broker_address.accepts_anybody(address, 5) is is_open
    server.kill()
    assert not broker_address.accepts_anybody(address, 1)
