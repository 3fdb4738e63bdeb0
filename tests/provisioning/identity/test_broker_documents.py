"""The document for another broker: its rules are those of the ACL, and hold at a real `rmqttd`."""

import re
from contextlib import ExitStack
from pathlib import Path

import pytest

from edgemeter.provisioning.identity import broker_files
from edgemeter.provisioning.inventory import fleet_file
from tests import requirements
from tests.fixtures.mqtt_peer import Peer, wait_until
from tests.fixtures.servers import LOOPBACK, Server, free_port
from tests.provisioning.identity.lab import Lab

ROOT = Path(__file__).resolve().parents[3]
RULES = (ROOT / "docs/examples/rmqtt-acl.toml").read_text()
OWN, OTHER = "edgemeter/v1/lab/pi-1", "edgemeter/v1/lab/pi-2"


def expected():
    """Return who may do what: {(user or None, access, topic)}."""
    rules = {(None, "write", f"edgemeter/v1/FLEET/%u/{kind}") for kind in broker_files.DEVICE_WRITES}
    rules |= {(None, "read", f"edgemeter/v1/FLEET/%u/{kind}") for kind in broker_files.DEVICE_READS}
    rules |= {(who, access, topic) for who, rules_of_user in broker_files.SERVICE_RULES.items() for access, topic in rules_of_user}
    rules |= {(broker_files.SERVICE_USER, access, topic) for access, topic in broker_files.ENROLMENT_RULES}
    return rules | {(None, "write", "edgemeter/enrol/%u/request"), (None, "read", "edgemeter/enrol/%u/answer")}


def test_the_document_grants_what_the_acl_grants():
    """Every rule, and none beside them."""
    granted = set()
    for line in RULES.splitlines():
        action = re.search(r"\b(publish|subscribe)\b", line)
        if "deny" in line or action is None:
            continue
        user = re.search(r'user = "([^"]+)"', line)
        for topic in re.findall(r'"((?:edgemeter|homeassistant)/[^"]+)"', line):
            access = {"publish": "write", "subscribe": "read"}[action[1]]
            granted.add((user[1] if user else None, access, topic))
    assert granted == expected()


@pytest.fixture
def rmqtt(tmp_path):
    """Return a fleet and an RMQTT with the document's rules, each client by its certificate's name."""
    with ExitStack() as stack:
        lab = Lab(tmp_path, stack).start()
        boards = [lab.board(name, f"10000000{number}") for number, name in enumerate(("pi-1", "pi-2"), 1)]
        for number, board in enumerate(boards, 1):
            board.join(lab.token(f"pi-{number}"))
        server = server_at(tmp_path, lab)
        server.start()
        stack.callback(server.kill)
        lab.port = server.port
        text = lab.folder.fleet_file.read_text()
        lab.folder.fleet_file.write_text(re.sub(r"broker_port = \d+", f"broker_port = {server.port}", text))
        yield lab, boards


def server_at(folder: Path, lab) -> Server:
    """Return rmqttd."""
    plugins = folder / "plugins"
    plugins.mkdir()
    (plugins / "rmqtt-acl.toml").write_text(RULES.replace("FLEET", "lab"))
    (plugins / "rmqtt-http-api.toml").write_text(f'http_laddr = "{LOOPBACK}:{free_port()}"\n')
    port, inner, plain = free_port(), free_port(), free_port()
    listener = "listener.tls.external"
    lines = [
        "node.id = 1",
        f'rpc.server_addr = "{LOOPBACK}:{inner}"',
        f'plugins.dir = "{plugins}"',
        'plugins.default_startups = ["rmqtt-retainer"]',
        f'listener.tcp.external.addr = "{LOOPBACK}:{plain}"',
        f'{listener}.addr = "{LOOPBACK}:{port}"',
        f"{listener}.allow_anonymous = false",
        f"{listener}.cross_certificate = true",
        f'{listener}.cert = "{lab.folder.broker}/broker.crt"',
        f'{listener}.key = "{lab.folder.broker}/broker.key"',
        f'{listener}.client_ca_certs = "{lab.folder.ca_certificate}"',
        f"{listener}.cert_cn_as_username = true",
        'log.to = "file"',
        f'log.dir = "{folder}/log"',
        'log.file = "rmqtt.log"',
    ]
    path = folder / "rmqtt.toml"
    path.write_text("\n".join(lines) + "\n")
    return Server([str(requirements.rmqttd()), "-f", str(path)], port)


@pytest.mark.mosquitto
@pytest.mark.rmqtt
def test_rmqtt_holds_to_the_documents_rules(rmqtt):
    """A device publishes what is its own and nothing of another's; the fleet's service hears it and answers."""
    lab, (board, _) = rmqtt
    device = board.client("pi-1", f"{OWN}/command", f"{OTHER}/command")
    service = Peer(fleet_file.fleet_broker_address(lab.folder), "edgemeter/v1/+/+/job", "edgemeter/enrol/+/request", client_id="service")
    lab.stack.callback(service.close)
    for topic in (f"{OTHER}/job", f"{OWN}/command", "edgemeter/enrol/x/request"):
        device.session.publish(topic, b"forged")
    device.session.publish(f"{OWN}/job", b"mine")
    assert wait_until(lambda: bool(service.messages))
    assert [(message.topic, message.payload) for message in service.messages] == [(f"{OWN}/job", b"mine")]
    for name in ("pi-2", "pi-1"):
        service.session.publish(f"edgemeter/v1/lab/{name}/command", b"order")
    assert wait_until(lambda: bool(device.messages))
    assert [message.topic for message in device.messages] == [f"{OWN}/command"]
