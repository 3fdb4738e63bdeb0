"""Addresses of servers: their parts, and which are of this machine."""

import socket

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.server_address import address_parts, is_on_this_machine, port_of


def test_the_port_is_that_of_the_scheme_unless_it_is_stated():
    """The default port with TLS is 443, for gRPC too."""
    ports = [port_of(address_parts(url)) for url in ("http://h", "https://h", "https://h:8001")]
    assert ports == [80, 443, 8001]


def test_a_password_in_an_address_is_refused_and_not_repeated():
    """The address stands in every record, and the error in logs."""
    for url in (
        "http://alice:s3cret@h:80",
        "http://s3cret@h",
        "ftp://alice:s3cret@h",
        "http://alice:s3cret@h:x",
    ):
        with pytest.raises(ConfigError, match="without user and password") as failure:
            address_parts(url)
        assert "s3cret" not in str(failure.value)
        assert "alice" not in str(failure.value)


@pytest.mark.services
def test_a_name_of_this_machine_is_known():
    """A name is known as this machine's by its addresses, without sending a packet.

    The name of another machine is known as such, and of a name without an address nothing is known.
    """
    assert is_on_this_machine("http://127.0.0.1:1")
    assert is_on_this_machine("http://localhost:1")
    # TEST-NET-1, which nobody has.
    assert is_on_this_machine("http://192.0.2.1") is False
    assert is_on_this_machine("http://no-such-name.invalid") is None
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        return
    assert is_on_this_machine(f"http://{name}:8001")
