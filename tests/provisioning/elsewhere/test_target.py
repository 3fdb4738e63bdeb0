"""Values of `--on`: selections of the fleet, and boards by ssh."""

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.provisioning.apply.ssh import SshTarget
from edgemeter.provisioning.elsewhere.target import FleetTarget, parse_target


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("ssh://pi@pi5.local", SshTarget("pi5.local", "pi5.local", "pi", None)),
        ("ssh://10.0.0.7:2222", SshTarget("10.0.0.7", "10.0.0.7", None, 2222)),
        ("SSH://pi@host/", SshTarget("host", "host", "pi", None)),
        ("ssh://pi@[fe80::1%eth0]:22", SshTarget("fe80::1%eth0", "fe80::1%eth0", "pi", 22)),
        ("ssh://[::1]", SshTarget("::1", "::1", None, None)),
    ],
)
def test_an_address_is_a_board_by_ssh(text, target):
    """User and port may be omitted: then ssh's own configuration applies."""
    assert parse_target(text) == target


@pytest.mark.parametrize("text", ["pi5-01", "board=pi5", "board=pi5 & !coral", "all"])
def test_all_else_is_a_selection_of_the_fleet(text):
    """A name, a tag or a condition."""
    assert parse_target(text) == FleetTarget(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("ssh://pi@host/home/pi", "a path has no meaning"),
        ("ssh://", "is not a host"),
        ("ssh://@host", "is not a user's name"),
        ("ssh://-oProxyCommand=x", "is not a host"),
        ("ssh://-l@host", "is not a user's name"),
        ("ssh://fe80::1", "in brackets"),
        ("ssh://[10.0.0.7]", "is not an IPv6 address"),
        ("ssh://host:0", "is not a port"),
        ("ssh://host:", "is not a port"),
        ("ssh://host:22x", "is not a port"),
        ("ssh://pi@a@b", "is not an address"),
        ("telnet://host", "is not supported"),
        ("board=", "selection"),
        ("", "selection"),
    ],
)
def test_a_wrong_value_is_one_line_with_the_form(text, reason):
    """Nothing that ssh would take for an option, and no half address, comes through."""
    with pytest.raises(ConfigError) as refusal:
        parse_target(text)
    assert reason in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_password_is_refused_and_not_repeated():
    """It would stand in the list of processes and in logs."""
    with pytest.raises(ConfigError, match="passwords are rejected") as refusal:
        parse_target("ssh://pi:secret@host")
    assert "secret" not in str(refusal.value)
