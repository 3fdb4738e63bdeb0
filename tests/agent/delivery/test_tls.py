"""Facts about TLS and certificates of our own, against a real mosquitto."""

import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest

from edgemeter.agent.base import broker_address
from edgemeter.agent.base.broker_address import parse_address
from edgemeter.agent.base.errors import ConfigError, EdgemeterError, UnavailableError
from edgemeter.agent.base.tls import TlsFiles, tls_context
from edgemeter.agent.contract import messages
from edgemeter.agent.delivery.outbox import Outbox
from edgemeter.agent.delivery.publisher import Publisher
from tests.fixtures.certificates import EXPIRED, Authority, Pair
from tests.fixtures.publishing import always, make_birth, peer, put
from tests.fixtures.servers import Server, free_port, mosquitto
from tests.fixtures.tiny_broker import answering

pytestmark = pytest.mark.needs("openssl")

HERE = "DNS:localhost,IP:127.0.0.1"


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """Return the authority that broker and devices share."""
    return Authority(tmp_path_factory.mktemp("authority") / "ca")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    """Return an authority that nobody trusts."""
    return Authority(tmp_path_factory.mktemp("stranger") / "ca", "another CA")


@contextmanager
def broker(folder, authority: Authority, pair: Pair, *settings: str, port: int | None = None):
    """Keep a mosquitto with TLS up for the block."""
    files = (f"cafile {authority.certificate}", f"certfile {pair.certificate}", f"keyfile {pair.key}")
    server: Server = mosquitto(folder, "set_tcp_nodelay true", *files, *settings)
    if port is not None:
        configuration = Path(server.command[-1])
        configuration.write_text(configuration.read_text().replace(str(server.port), str(port)))
        server.port = port
    server.start()
    try:
        yield server.port
    finally:
        server.kill()


@pytest.fixture(scope="module")
def with_tls(authority, tmp_path_factory):
    """Return the port of a broker that shows a certificate and asks for none."""
    with broker(tmp_path_factory.mktemp("tls"), authority, authority.signed("broker", HERE)) as port:
        yield port


@pytest.fixture(scope="module")
def with_mtls(authority, tmp_path_factory):
    """Return the port of a broker that wants a certificate, and takes its common name as the user."""
    settings = ("require_certificate true", "use_identity_as_username true", "allow_anonymous false")
    with broker(tmp_path_factory.mktemp("mtls"), authority, authority.signed("broker", HERE), *settings) as port:
        yield port


def at(port, host="127.0.0.1", **files):
    """Return the address of that broker, by TLS."""
    return parse_address(f"mqtts://{host}:{port}", tls=TlsFiles(**files), environ={})


def refusal(address):
    """Return the one line in which asking the broker ends."""
    with pytest.raises(EdgemeterError) as refused:
        broker_address.mqtt_version(address, 5)
    assert "\n" not in str(refused.value)
    return refused.value


def delivers(address, tmp_path):
    """Return whether a record gets through to a collector there."""
    with Outbox(tmp_path / "outbox.sqlite") as outbox, peer(address, messages.EVERY_RESULT, confirm=always):
        put(outbox, 2)
        publisher = Publisher(address, outbox, make_birth(outbox))
        publisher.connect()
        try:
            return publisher.drain(60) == 0
        finally:
            publisher.close()


@pytest.mark.mosquitto
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_records_go_through_tls_by_address_and_by_name(with_tls, authority, tmp_path, host):
    """The broker's certificate names both."""
    assert delivers(at(with_tls, host, ca=authority.certificate), tmp_path)


@pytest.mark.mosquitto
def test_records_go_through_mtls(with_mtls, authority, tmp_path):
    """With a certificate of the broker's authority, and no password."""
    pair = authority.signed("pi-1")
    assert delivers(at(with_mtls, ca=authority.certificate, certificate=pair.certificate, key=pair.key), tmp_path)


@pytest.mark.mosquitto
def test_the_environment_names_the_files_too(with_mtls, authority):
    """For a service that has no options."""
    pair = authority.signed("pi-1")
    names = {"CA": authority.certificate, "CERTIFICATE": pair.certificate, "KEY": pair.key}
    environ = {f"EDGEMETER_MQTT_{name}_FILE": str(path) for name, path in names.items()}
    assert broker_address.mqtt_version(parse_address(f"mqtts://127.0.0.1:{with_mtls}", environ=environ), 5) == "5"


@pytest.mark.mosquitto
def test_a_broker_of_an_unknown_authority_is_refused_with_the_remedy(with_tls, stranger):
    """By the system's authorities, and by one of ours that did not sign it."""
    for address in (at(with_tls), at(with_tls, ca=stranger.certificate)):
        error = refusal(address)
        assert isinstance(error, UnavailableError)
        assert "no trusted CA signed it: set the CA certificate with broker_ca_file" in str(error)


@pytest.mark.mosquitto
def test_a_broker_of_another_name_is_refused(authority, tmp_path):
    """Its certificate is for somebody else."""
    with broker(tmp_path, authority, authority.signed("elsewhere", "DNS:elsewhere.example")) as port:
        assert "it is for another name: connect to the broker by the name in its certificate" in str(
            refusal(at(port, ca=authority.certificate))
        )
        assert "it is for another name" in str(refusal(at(port, "localhost", ca=authority.certificate)))


@pytest.mark.mosquitto
def test_an_expired_certificate_is_refused(authority, tmp_path):
    """And the clock of the device is named as the other possible cause."""
    with broker(tmp_path, authority, authority.signed("broker", HERE, EXPIRED)) as port:
        error = str(refusal(at(port, ca=authority.certificate)))
        assert "it has expired: renew it, or set the clock of this device" in error


@pytest.mark.mosquitto
def test_a_missing_foreign_or_expired_certificate_of_ours_is_reported(with_mtls, authority, stranger):
    """What the broker wants, not only that the connection broke."""
    assert "requires a client certificate" in str(refusal(at(with_mtls, ca=authority.certificate)))
    for pair in (stranger.signed("pi-1"), authority.signed("pi-1", when=EXPIRED)):
        error = refusal(at(with_mtls, ca=authority.certificate, certificate=pair.certificate, key=pair.key))
        assert isinstance(error, ConfigError)
        assert "rejects our certificate" in str(error)


@pytest.mark.mosquitto
def test_no_tls_where_tls_was_asked_for_and_the_other_way_round(with_tls, authority, tmp_path):
    """Each is reported as what it is."""
    server = mosquitto(tmp_path)
    server.start()
    try:
        assert "check that this port speaks TLS" in str(refusal(at(server.port, ca=authority.certificate)))
    finally:
        server.kill()
    plain = parse_address(f"mqtt://127.0.0.1:{with_tls}", environ={})
    with Outbox(tmp_path / "outbox.sqlite") as outbox, pytest.raises(UnavailableError, match=r"if this port speaks TLS, write mqtts://127"):
        Publisher(plain, outbox, make_birth(outbox)).connect(0.5)


def test_a_tls_alert_in_reply_to_plain_mqtt_is_reported():
    """As OpenSSL's own server, and others, answer."""
    with answering({5: b"\x15\x03\x01\x00\x02\x02\x46"}) as where:
        assert f"speaks TLS: write mqtts://{where}" in str(refusal(parse_address(where, environ={})))


@pytest.mark.mosquitto
@pytest.mark.services
def test_a_broker_that_asks_for_a_certificate_lets_nobody_in_without(authority, with_tls, with_mtls):
    """Asked without ours, which would open the door."""
    pair = authority.signed("pi-1")
    files = {"ca": authority.certificate, "certificate": pair.certificate, "key": pair.key}
    assert broker_address.accepts_anybody(at(with_tls, **files), 5)
    assert not broker_address.accepts_anybody(at(with_mtls, **files), 5)


@pytest.mark.mosquitto
@pytest.mark.services
# paho-mqtt leaves the socket of a handshake that failed to the garbage collector.
@pytest.mark.filterwarnings("ignore:Exception ignored in. <ssl.SSLSocket:pytest.PytestUnraisableExceptionWarning")
def test_renewed_certificates_are_taken_without_a_restart(authority, stranger, tmp_path):
    """The broker comes back with another authority; so have the device's files meanwhile, and it delivers over the same session."""
    pair = authority.signed("pi-1")
    files = TlsFiles(*(tmp_path / name for name in ("ca.pem", "own.pem", "own.key")))
    _write(files, authority, pair)
    asks = ("require_certificate true",)
    port = free_port()
    address = parse_address(f"mqtts://127.0.0.1:{port}", tls=files, environ={})
    with Outbox(tmp_path / "outbox.sqlite") as outbox:
        publisher = Publisher(address, outbox, make_birth(outbox))
        try:
            with broker(tmp_path, authority, authority.signed("broker", HERE), *asks, port=port):
                publisher.connect()
            _write(files, stranger, stranger.signed("pi-1"))
            put(outbox, 2)
            renewed = stranger.signed("broker", HERE)
            with broker(tmp_path, stranger, renewed, *asks, port=port), peer(address, messages.EVERY_RESULT, confirm=always):
                assert publisher.drain(180) == 0
        finally:
            publisher.close()


def _write(files, authority, pair):
    """Put an authority's certificate and one of its pairs in place."""
    for path, source in ((files.ca, authority.certificate), (files.certificate, pair.certificate), (files.key, pair.key)):
        path.write_bytes(source.read_bytes())


def test_certificates_without_tls_are_refused():
    """They would protect nothing."""
    with pytest.raises(ConfigError, match="'broker' is without TLS: write mqtts://"):
        parse_address("broker", tls=TlsFiles(ca="ca.pem"), environ={})
    with pytest.raises(ConfigError, match="without TLS"):
        parse_address("mqtt://broker", environ={"EDGEMETER_MQTT_CA_FILE": "ca.pem"})


@pytest.mark.parametrize("which", ["ca", "certificate", "key"])
def test_a_missing_file_is_named(authority, tmp_path, which):
    """Which one, and where it was looked for."""
    pair = authority.signed("pi-1")
    files = {"ca": authority.certificate, "certificate": pair.certificate, "key": pair.key} | {which: tmp_path / "absent"}
    with pytest.raises(ConfigError, match=r"cannot read the broker's .*absent' \(No such file") as refused:
        tls_context(TlsFiles(**files))
    assert "\n" not in str(refused.value)


def test_files_that_hold_something_else_or_do_not_belong_together_are_reported(authority, tmp_path):
    """A text for a CA, a key of another certificate, a key without a certificate, a key with a passphrase (which nobody is asked for)."""
    pair, other = authority.signed("pi-1"), authority.signed("pi-2")
    text = tmp_path / "text"
    text.write_text("no PEM\n")
    locked = tmp_path / "locked.key"
    subprocess.run(["openssl", "pkey", "-in", pair.key, "-aes256", "-passout", "pass:secret", "-out", locked], check=True, timeout=150)
    for files, says in (
        (TlsFiles(ca=text), "holds no CA certificate"),
        (TlsFiles(certificate=pair.certificate, key=other.key), "are not a certificate with its key"),
        (TlsFiles(certificate=text, key=pair.key), "are not a certificate with its key"),
        (TlsFiles(certificate=pair.certificate, key=locked), "without a passphrase"),
        (TlsFiles(key=pair.key), "no certificate for it"),
    ):
        with pytest.raises(ConfigError, match=says):
            tls_context(files)
