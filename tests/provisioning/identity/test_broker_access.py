"""Who may do what at the broker: what the plug-in is ordered, and changes at the running mosquitto that need no reload."""

import json
import socket
import ssl

import pytest

from edgemeter.agent.base.errors import ConfigError, EdgemeterError
from edgemeter.provisioning.identity.broker_access import BrokerAccess, IntendedAccess, plugin_file
from edgemeter.provisioning.identity.broker_files import hash_password
from edgemeter.provisioning.inventory import fleet_file
from edgemeter.provisioning.registry.certificates import EnrolmentToken
from tests.fixtures.mqtt_peer import Peer, wait_until
from tests.fixtures.servers import LOOPBACK
from tests.provisioning.identity.plugin import Plugin


def token(number):
    """Return an open token."""
    return EnrolmentToken(f"id {number}", hash_password("secret"), f"pi-{number}", "lab", 1, 2)


def apply(plugin, intended, passwords):
    """Bring the plug-in up to date; return the devices whose tokens it cannot know."""
    plugin.orders.clear()
    with plugin.access() as access:
        return [each.device for each in access.apply(lambda: intended, passwords)]


def test_the_broker_is_given_what_it_lacks_and_loses_what_is_over():
    """A token with its password, where that is here; revoked and banned names are denied everything; twice changes nothing."""
    plugin = Plugin()
    plugin.clients["somebody's own"] = {"roles": ["reader"]}
    intended = IntendedAccess([token(1), token(2)], {"pi-3"}, {"pi-4": None})
    assert apply(plugin, intended, {"id 1": "secret"}) == ["pi-2"]
    assert plugin.clients["id 1"] == {"roles": ["token"], "password": "secret"}
    assert plugin.clients["pi-3"] == {"roles": ["revoked"], "password": None, "disabled": True}
    assert plugin.clients["pi-4"] == {"roles": ["banned"], "password": None, "disabled": True}
    assert apply(plugin, intended, {}) == ["pi-2"]
    assert plugin.orders == []
    apply(plugin, IntendedAccess([], {"pi-3"}), {})
    assert plugin.names() == {"somebody's own", "pi-3"}
    apply(plugin, IntendedAccess([], set()), {})
    assert plugin.names() == {"somebody's own"}


def test_a_device_that_is_thrown_out_may_come_back_unless_it_is_denied():
    """The plug-in ends the sessions of a client that it deletes, or that it disables."""
    plugin = Plugin()
    with plugin.access() as access:
        access.disconnect("pi-1")
        assert plugin.orders == [("createClient", "pi-1"), ("deleteClient", "pi-1")]
        apply(plugin, IntendedAccess([], {"pi-2"}), {})
    with plugin.access() as access:
        access.disconnect("pi-2")
    assert plugin.clients["pi-2"]["disabled"]


def test_what_the_broker_refuses_is_an_error_unless_another_process_was_first():
    """Without the configuration of `fleet init` it refuses the operator's topic."""
    plugin, intended = Plugin(), IntendedAccess([], {"pi-1"})
    plugin.fault = "Client already exists"
    apply(plugin, intended, {})
    plugin.fault = "Internal error"
    with pytest.raises(ConfigError, match="createClient: Internal error"):
        apply(plugin, intended, {})
    plugin.refusal = "Not authorized"
    with pytest.raises(ConfigError, match="edgemeter fleet init"):
        apply(plugin, intended, {})


def test_a_broker_that_starts_reads_hashes_and_whom_it_denies():
    """No token stands in its file; a name that is revoked and banned is revoked."""
    intended = IntendedAccess([token(1)], {"pi-1"}, {"pi-1": None, "pi-2": None})
    text = plugin_file(intended).decode()
    assert "secret" not in text
    operator, claim, *denied = json.loads(text)["clients"]
    assert (operator["username"], claim["username"], claim["iterations"]) == ("edgemeter-operator", "id 1", 101)
    assert [(client["username"], client["roles"][0]["rolename"], client["disabled"]) for client in denied] == [
        ("pi-1", "revoked", True),
        ("pi-2", "banned", True),
    ]


def members(lab):
    """Return the names that the running broker's plug-in holds."""
    with BrokerAccess(fleet_file.fleet_broker_address(lab.folder, client="operator")) as access:
        return set(access._send([{"command": "listClients"}])[0]["data"]["clients"])


def may_connect(board, client_id="x"):
    """Return whether the broker lets the board in by its certificate."""
    try:
        Peer(board.address(), client_id=client_id).close()
    except EdgemeterError:
        return False
    return True


@pytest.mark.mosquitto
def test_changes_made_without_a_broker_hold_when_it_starts_and_after_a_restart(broker_lab):
    """Tokens and revocations by the plug-in's file, which it also writes; certificates by the list, which it reads when it starts."""
    lab = broker_lab
    path, ended = lab.token("pi-1"), lab.token("pi-2")
    lab.run("revoke", "pi-2")
    lab.start()
    board, other = lab.board("pi-1", "1"), lab.joined("pi-3", "3")
    assert board.join(path).device == "pi-1"
    with pytest.raises(ConfigError):
        lab.with_token(ended)
    assert wait_until(lambda: members(lab) == {"edgemeter-operator", "pi-2"})
    lab.run("revoke", "pi-1")
    lab.restart_broker()
    assert [may_connect(each) for each in (board, other)] == [False, True]
    lab.run("revoke", "pi-3")
    assert not may_connect(other)


@pytest.mark.mosquitto
def test_a_tls_session_from_before_gives_a_revoked_device_nothing(running_lab):
    """A resumed session skips the check of the certificate: the plug-in still denies the name everything."""
    lab = running_lab
    board = lab.joined("pi-1", "1")
    context = ssl.create_default_context(cafile=str(board.files.ca))
    context.load_cert_chain(str(board.files.certificate), str(board.files.key))
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    hello, publish = b"\x10\x10\x00\x04MQTT\x04\x02\x00\x3c\x00\x04pi-1", b"\x30\x20\x00\x1bedgemeter/v1/lab/pi-1/birthxyz"
    with socket.create_connection((LOOPBACK, lab.port), 10) as plain, context.wrap_socket(plain, server_hostname=LOOPBACK) as line:
        line.sendall(hello)
        assert line.recv(4) == b"\x20\x02\x00\x00"
        session = line.session
    heard = lab.service_client("operator")
    lab.run("revoke", "pi-1")
    with (
        socket.create_connection((LOOPBACK, lab.port), 10) as plain,
        context.wrap_socket(plain, server_hostname=LOOPBACK, session=session) as line,
    ):
        line.sendall(hello)
        line.recv(4)
        line.sendall(publish)
    neighbour = lab.joined("pi-2", "2").client("pi-2")
    neighbour.session.publish("edgemeter/v1/lab/pi-2/birth", b"later")
    assert wait_until(lambda: any(message.payload == b"later" for message in heard.messages))
    assert not any(message.payload == b"xyz" for message in heard.messages)
