"""A board without a clock: it wakes up in 1970 and has to connect all the same."""

import ssl
from datetime import datetime, timezone

import pytest

from edgemeter.agent.base import tls
from edgemeter.agent.base.tls import TlsFiles
from edgemeter.agent.identity import identity
from edgemeter.provisioning.identity import authority
from edgemeter.provisioning.identity.authority import Authority

IN_1970_S = 100.0
LONG_AGO = datetime(2021, 1, 1, tzinfo=timezone.utc)


def shake_hands(client, server, name="broker.example"):
    """Let two contexts shake hands in memory; raise what the client finds wrong."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client.wrap_bio(to_client, to_server, server_hostname=name)
    far = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (near, far):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue


@pytest.fixture
def fleet(tmp_path, monkeypatch):
    """Return the TLS files of a device and a broker's context with an expired certificate.

    To a device whose clock is wrong, any certificate may seem to have run out.
    """
    pair = authority.make_authority("edgemeter fleet lab", datetime.now(timezone.utc))
    monkeypatch.setattr(authority, "AUTHORITY_DAYS", 1)
    broker = Authority(pair).issue("broker.example", LONG_AGO, ["broker.example"])
    for name, content in (
        ("ca.crt", pair.certificate),
        ("broker.crt", broker.certificate),
        ("broker.key", broker.key),
    ):
        (tmp_path / name).write_bytes(content)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "broker.crt", tmp_path / "broker.key")
    return TlsFiles(ca=tmp_path / "ca.crt"), server


def test_dates_count_where_the_clock_was_set_and_not_before_2020(fleet, monkeypatch):
    """The name and the authority are checked in either case."""
    files, server = fleet
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        shake_hands(tls.tls_context(files), server)
    with monkeypatch.context() as patch:
        patch.setattr(tls.time, "time", lambda: IN_1970_S)
        context = tls.tls_context(files)
        shake_hands(context, server)
        with pytest.raises(ssl.SSLCertVerificationError, match=r"other\.example"):
            shake_hands(context, server, "other.example")
    tls.renew(context, files)
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        shake_hands(context, server)


def test_the_time_is_not_before_the_release_was_built_nor_before_the_fleet_was_last_heard(tmp_path):
    """The later of the two times counts, and an unreadable one is ignored."""
    assert identity.clock_floor_ns(None, tmp_path) == 0
    (tmp_path / "manifest.json").write_text('{"built_ns": 7, "name": "x"}')
    assert identity.clock_floor_ns(None, tmp_path) == 7
    assert identity.clock_floor_ns(5, tmp_path) == 7
    assert identity.clock_floor_ns(9, tmp_path) == 9
    for text in ("", "[]", '{"built_ns": "x"}', '{"built_ns": -1}'):
        (tmp_path / "manifest.json").write_text(text)
        assert identity.clock_floor_ns(9, tmp_path) == 9


def test_without_an_authority_of_our_own_dates_count_always(monkeypatch):
    """The system's authorities are many, and their certificates are short-lived for a reason."""
    monkeypatch.setattr(tls.time, "time", lambda: IN_1970_S)
    assert not tls.tls_context(TlsFiles()).verify_flags & 0x200000
