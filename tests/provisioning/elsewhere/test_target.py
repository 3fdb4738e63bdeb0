"""Values of `--on`: selections of the fleet, and boards by ssh."""

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.provisioning.apply.ssh import SshTarget
from edgemeter.provisioning.elsewhere.target import FleetTarget, parse_target
from tests.fixtures.rows import table_row


def test_an_address_is_a_board_by_ssh():
    """User and port may be omitted: then ssh's own configuration applies."""
    for text, target in (
        ("ssh://pi@pi5.local", SshTarget("pi5.local", "pi5.local", "pi", None)),
        ("ssh://10.0.0.7:2222", SshTarget("10.0.0.7", "10.0.0.7", None, 2222)),
        ("SSH://pi@host/", SshTarget("host", "host", "pi", None)),
        ("ssh://pi@[fe80::1%eth0]:22", SshTarget("fe80::1%eth0", "fe80::1%eth0", "pi", 22)),
        ("ssh://[::1]", SshTarget("::1", "::1", None, None)),
    ):
        with table_row(text):
            assert parse_target(text) == target
    assert parse_target("board=pi5 & !coral") == FleetTarget("board=pi5 & !coral")


def test_a_wrong_value_is_refused():
    """Nothing that ssh would take for an option, and no half address, comes through."""
    for text, reason in (
        ("ssh://pi@host/home/pi", "a path has no meaning"),
        ("ssh://", "is not a host"),
        ("ssh://@host", "is not a user's name"),
        ("ssh://-oProxyCommand=x", "is not a host"),
        ("ssh://fe80::1", "in brackets"),
        ("ssh://[10.0.0.7]", "is not an IPv6 address"),
        ("ssh://host:0", "is not a port"),
        ("ssh://host:22x", "is not a port"),
        ("ssh://pi@a@b", "is not an address"),
        ("telnet://host", "is not supported"),
        ("board=", "selection"),
        ("", "selection"),
    ):
        with table_row(text), pytest.raises(ConfigError, match=reason):
            parse_target(text)
    with pytest.raises(ConfigError, match="passwords are rejected") as refusal:
        parse_target("ssh://pi:secret@host")
    assert "secret" not in str(refusal.value)
