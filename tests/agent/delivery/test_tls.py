"""Facts about TLS and certificates of our own.

They are tested against a real mosquitto and with files of the real openssl.
"""

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

with_openssl = pytest.mark.needs("openssl")

HERE = "DNS:localhost,IP:127.0.0.1"


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority") / "ca")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    """Return an authority that nobody trusts."""
    return Authority(tmp_path_factory.mktemp("stranger") / "ca", "another CA")


@contextmanager
def broker(folder, authority: Authority, pair: Pair, *settings: str, port: int | None = None):
    files = (
        f"cafile {authority.certificate}",
        f"certfile {pair.certificate}",
        f"keyfile {pair.key}",
    )
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


def at(port, host="127.0.0.1", **files):
    return parse_address(f"mqtts://{host}:{port}", tls=TlsFiles(**files), environ={})


def refusal(address):
    with pytest.raises(EdgemeterError) as refused:
        broker_address.mqtt_version(address, 5)
    assert "\n" not in str(refused.value)
    return refused.value


def delivers(address, tmp_path):
    with (
        Outbox(tmp_path / "outbox.sqlite") as outbox,
        peer(address, messages.topics_of("result"), confirm=always),
    ):
        put(outbox, 2)
        publisher = Publisher(address, outbox, make_birth(outbox))
        publisher.connect()
        try:
            return publisher.drain(60) == 0
        finally:
            publisher.close()


@with_openssl
@pytest.mark.mosquitto
def test_records_go_through_mtls_and_nobody_gets_in_without_a_certificate(
    authority, stranger, tmp_path
):
    """The broker is reached by address and by name, with files from arguments or the URL.

    A missing, a foreign and an expired certificate are refused.
    """
    settings = (
        "require_certificate true",
        "use_identity_as_username true",
        "allow_anonymous false",
    )
    pair = authority.signed("pi-1")
    files = {"ca": authority.certificate, "certificate": pair.certificate, "key": pair.key}
    with broker(tmp_path, authority, authority.signed("broker", HERE), *settings) as port:
        assert delivers(at(port, **files), tmp_path)
        assert delivers(at(port, "localhost", **files), tmp_path)
        named = "&".join(f"{name}={path}" for name, path in files.items())
        assert (
            broker_address.mqtt_version(
                parse_address(f"mqtts://127.0.0.1:{port}?{named}", environ={}), 5
            )
            == "5"
        )
        assert not broker_address.accepts_anybody(at(port, **files), 5)
        for client in (None, stranger.signed("pi-1"), authority.signed("pi-1", when=EXPIRED)):
            wrong = {} if client is None else {"certificate": client.certificate, "key": client.key}
            assert isinstance(refusal(at(port, ca=authority.certificate, **wrong)), ConfigError)


@with_openssl
@pytest.mark.mosquitto
def test_a_broker_whose_certificate_does_not_hold_is_refused_with_the_remedy(
    authority, stranger, tmp_path
):
    """The certificate is of an unknown authority, for another name, or expired.

    A broker without TLS where TLS was asked for, and the reverse, are refused too.
    """
    with broker(tmp_path, authority, authority.signed("broker", HERE)) as port:
        for address in (at(port), at(port, ca=stranger.certificate)):
            assert "?ca=FILE" in str(refusal(address))
        assert broker_address.accepts_anybody(at(port, ca=authority.certificate), 5)
        plain = parse_address(f"mqtt://127.0.0.1:{port}", environ={})
        with (
            Outbox(tmp_path / "outbox.sqlite") as outbox,
            pytest.raises(UnavailableError, match="mqtts://127"),
        ):
            Publisher(plain, outbox, make_birth(outbox)).connect(0.5)
    with broker(
        tmp_path, authority, authority.signed("elsewhere", "DNS:elsewhere.example")
    ) as port:
        assert "another name" in str(refusal(at(port, ca=authority.certificate)))
    with broker(tmp_path, authority, authority.signed("broker", HERE, EXPIRED)) as port:
        assert "expired" in str(refusal(at(port, ca=authority.certificate)))
    server = mosquitto(tmp_path)
    server.start()
    try:
        assert "speaks TLS" in str(refusal(at(server.port, ca=authority.certificate)))
    finally:
        server.kill()


@with_openssl
@pytest.mark.mosquitto
# paho-mqtt leaves the socket of a handshake that failed to the garbage collector.
@pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <ssl.SSLSocket:pytest.PytestUnraisableExceptionWarning"
)
def test_renewed_certificates_are_taken_without_a_restart(authority, stranger, tmp_path):
    """The broker comes back with another authority, and the device delivers as before.

    The device's files were renewed meanwhile, and its session stays the same.
    """
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
            with (
                broker(tmp_path, stranger, renewed, *asks, port=port),
                peer(address, messages.topics_of("result"), confirm=always),
            ):
                assert publisher.drain(180) == 0
        finally:
            publisher.close()


def _write(files, authority, pair):
    for path, source in (
        (files.ca, authority.certificate),
        (files.certificate, pair.certificate),
        (files.key, pair.key),
    ):
        path.write_bytes(source.read_bytes())


@pytest.mark.services
def test_a_tls_alert_in_reply_to_plain_mqtt_is_reported():
    """OpenSSL's own server and others reply with such an alert."""
    with answering({5: b"\x15\x03\x01\x00\x02\x02\x46"}) as where:
        assert f"uses TLS: write mqtts://{where}" in str(refusal(parse_address(where, environ={})))


def test_certificates_without_tls_are_refused():
    """Without TLS the certificates would protect nothing."""
    with pytest.raises(ConfigError, match="mqtts://"):
        parse_address("broker", tls=TlsFiles(ca="ca.pem"), environ={})
    with pytest.raises(ConfigError, match="mqtts://"):
        parse_address("mqtt://broker?ca=ca.pem", environ={})


def test_a_missing_file_is_named(tmp_path):
    """The error says which file is missing and where it was looked for."""
    for files in (
        TlsFiles(ca=tmp_path / "absent"),
        TlsFiles(certificate=tmp_path / "absent", key=tmp_path / "key"),
    ):
        with pytest.raises(ConfigError, match="absent'") as refused:
            tls_context(files)
        assert "\n" not in str(refused.value)


@with_openssl
def test_files_that_hold_something_else_or_do_not_belong_together_are_reported(authority, tmp_path):
    """Each kind of wrong file has an error of its own.

    The files are a text for a CA, a key of another certificate, a certificate or key without the
    other, and a key with a passphrase, which nobody is asked for.
    """
    pair, other = authority.signed("pi-1"), authority.signed("pi-2")
    text = tmp_path / "text"
    text.write_text("no PEM\n")
    locked = tmp_path / "locked.key"
    subprocess.run(
        ["openssl", "pkey", "-in", pair.key, "-aes256", "-passout", "pass:secret", "-out", locked],
        check=True,
        timeout=150,
    )
    for files, says in (
        (TlsFiles(ca=text), "contains no CA certificate"),
        (
            TlsFiles(certificate=pair.certificate, key=other.key),
            "are not a certificate with its key",
        ),
        (TlsFiles(certificate=text, key=pair.key), "are not a certificate with its key"),
        (TlsFiles(certificate=pair.certificate, key=locked), "without a passphrase"),
        (TlsFiles(key=pair.key), "no certificate for it"),
    ):
        with pytest.raises(ConfigError, match=says):
            tls_context(files)
