"""What brokers are told when they ask: the rules of mosquitto's ACL, at a real cluster of RMQTT, and by the contracts of the others."""

import json
import re
import time
import urllib.error
import urllib.request
from contextlib import ExitStack
from dataclasses import replace

import pytest
from paho.mqtt.client import topic_matches_sub

from edgemeter.agent.base.errors import ConfigError, EdgemeterError
from edgemeter.agent.contract.identity import read_join_file, token_id
from edgemeter.provisioning.identity.access_server import AccessRules, AccessServer
from edgemeter.provisioning.identity.broker_files import COLLECTOR_USER, SERVICE_USER, access_rules
from edgemeter.provisioning.inventory import fleet_file
from edgemeter.provisioning.serve.handler import covers
from tests.fixtures.access_cluster import NODES, node
from tests.fixtures.mqtt_peer import Peer, wait_until
from tests.fixtures.rows import table_row
from tests.fixtures.servers import LOOPBACK, free_port
from tests.provisioning.identity.lab import Lab

OWN, OTHER = "edgemeter/v1/lab/pi-1", "edgemeter/v1/lab/pi-2"
TOKEN = "0123456789abcdef0123456789abcdef"
RULES = AccessRules(frozenset({"pi-1", "pi-2"}), {TOKEN: ""}, frozenset({"lab"}))


def test_a_subscription_is_covered_only_if_all_that_it_matches_is_granted():
    """Against every topic of three levels, by a client's own matching."""
    levels = ("a", "b")
    topics = [f"{x}/{y}/{z}" for x in levels for y in levels for z in levels] + ["a", "a/b"]
    patterns = ["a/b/a", "a/+/a", "+/+/+", "a/#", "#", "+/b/#", "a/b", "+"]
    for pattern in patterns:
        for subscription in [*patterns, *topics]:
            matched = {topic for topic in topics if topic_matches_sub(subscription, topic)}
            granted = {topic for topic in topics if topic_matches_sub(pattern, topic)}
            if covers(pattern, subscription):
                assert matched <= granted, (pattern, subscription)
            elif subscription in topics:
                assert subscription not in granted, (pattern, subscription)


def test_the_rules_are_those_of_the_acl_file():
    """Every line of it, for each kind of user; and nothing beside them."""
    users = {COLLECTOR_USER: set(), SERVICE_USER: set(), "edgemeter-operator": set(), "pi-1": set()}
    user = None
    for line in access_rules({"lab"}).splitlines():
        words = line.split(" ")
        if words[0] == "user":
            user = words[1]
        elif words[0] == "topic" and user in users:
            users[user].add((words[1], words[2]))
        elif words[0] == "pattern" and "/enrol/" not in line:
            users["pi-1"].add((words[1], words[2].replace("%u", "pi-1")))
    for name, granted in users.items():
        assert granted, name
        for access, topic in granted:
            # A right to write below a pattern is one to write topics.
            target = topic if access == "read" else topic.replace("+", "pi-2")
            assert RULES.may_access("certificate", name, access, target), (name, access, topic)
            assert not RULES.may_access("token", name, access, target)
        assert not RULES.may_access("certificate", name, "write", "edgemeter/v1/lab/pi-3/result")
        assert not RULES.may_access("certificate", name, "read", "#")


@pytest.mark.parametrize(
    ("entrance", "name", "access", "topic", "is_allowed"),
    [
        ("certificate", "pi-1", "write", f"{OWN}/result", True),
        ("certificate", "pi-1", "write", f"{OTHER}/result", False),
        ("certificate", "pi-1", "write", f"{OWN}/+", False),
        ("certificate", "pi-1", "read", f"{OWN}/command", True),
        ("certificate", "pi-1", "read", f"$share/g/{OTHER}/command", False),
        ("certificate", "pi-1", "read", "edgemeter/v1/lab/+/command", False),
        ("certificate", "pi-3", "write", "edgemeter/v1/lab/pi-3/result", False),
        ("certificate", COLLECTOR_USER, "read", "$share/g/edgemeter/v1/+/+/result", True),
        ("certificate", TOKEN, "write", f"edgemeter/enrol/{TOKEN}/request", False),
        ("token", TOKEN, "write", f"edgemeter/enrol/{TOKEN}/request", True),
        ("token", TOKEN, "read", f"edgemeter/enrol/{TOKEN}/answer", True),
        ("token", TOKEN, "read", "edgemeter/enrol/+/answer", False),
        ("token", "pi-1", "write", f"{OWN}/result", False),
        ("token", SERVICE_USER, "write", f"{OWN}/command", False),
    ],
)
def test_nobody_may_more_than_their_own(entrance, name, access, topic, is_allowed):
    """Whoever comes without a certificate is a token, whatever name they give."""
    assert RULES.may_access(entrance, name, access, topic) is is_allowed


@pytest.fixture
def asking(lab):
    """Return a fleet, and how a broker asks its access server."""
    server = AccessServer(lab.folder, f"http://{LOOPBACK}:{free_port()}")
    server.start()
    lab.stack.callback(server.stop)

    def ask(path, fields, content_type="application/json", **headers):
        body = json.dumps(fields).encode() if isinstance(fields, dict) else fields
        request = urllib.request.Request(f"http://{server.authority}{path}", body, {"Content-Type": content_type, **headers})
        try:
            with urllib.request.urlopen(request) as answer:  # noqa: S310 - of this machine
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            text = error.read()
            return error.code, json.loads(text) if text else None

    return lab, ask


def test_each_broker_gets_the_answer_of_its_contract(asking):
    """RMQTT and EMQX read the body of a 200, NanoMQ the status, VerneMQ another body; nonsense is denied."""
    lab, ask = asking
    join = read_join_file(lab.token("pi-1"))
    token = {"username": token_id(join.token), "password": join.token}
    wrong = token | {"password": "x"}
    rows = [
        ("/token/connect", token, (200, {"result": "allow"})),
        ("/token/connect", wrong, (200, {"result": "deny"})),
        ("/certificate/connect", token, (200, {"result": "deny"})),
        ("/certificate/connect", {"username": SERVICE_USER}, (200, {"result": "allow"})),
        ("/token/connect", {"username": SERVICE_USER}, (200, {"result": "deny"})),
        ("/certificate/connect", {}, (200, {"result": "deny"})),
        ("/nanomq/token/connect", token, (200, {"result": "allow"})),
        ("/nanomq/token/connect", wrong, (403, {"result": "deny"})),
        ("/vernemq/token/connect", token, (200, {"result": "ok"})),
        ("/vernemq/token/connect", wrong, (200, {"result": {"error": "not_allowed"}})),
        ("/certificate/access", {"username": SERVICE_USER, "action": "publish", "topic": f"{OWN}/command"}, (200, {"result": "allow"})),
        ("/certificate/access", {"username": SERVICE_USER, "access": "1", "topic": f"{OWN}/command"}, (200, {"result": "deny"})),
        ("/certificate/access", {"username": SERVICE_USER, "topic": f"{OWN}/command"}, (200, {"result": "deny"})),
        ("/elsewhere", token, (404, None)),
    ]
    for path, fields, answer in rows:
        with table_row((path, fields)):
            assert ask(path, fields) == answer
    form = f"username={SERVICE_USER}&access=2&topic={OWN}/command".encode()
    assert ask("/certificate/access", form, "application/x-www-form-urlencoded") == (200, {"result": "allow"})
    hook = {
        "username": SERVICE_USER,
        "topics": [{"topic": "edgemeter/v1/+/+/job", "qos": 1}, {"topic": "edgemeter/v1/+/+/birth", "qos": 1}],
    }
    assert ask("/vernemq/certificate/access", hook, **{"vernemq-hook": "auth_on_subscribe_m5"}) == (200, {"result": "ok"})
    hook["topics"].append({"topic": "#", "qos": 0})
    assert ask("/vernemq/certificate/access", hook, **{"vernemq-hook": "auth_on_subscribe_m5"})[1] == {"result": {"error": "not_allowed"}}
    for nonsense in (b"{", b"[]", b"[" * 60_000, b"\xff"):
        assert ask("/certificate/access", nonsense) == (200, {"result": "deny"})
    assert ask("/certificate/access", b"x" * 70_000)[0] == 413


def test_an_address_that_is_none_is_refused(tmp_path):
    """With what to write."""
    with pytest.raises(ConfigError, match="write http://HOST:PORT"):
        AccessServer(fleet_file.FleetFolder(tmp_path), "https://x")


@pytest.fixture
def cluster(tmp_path):
    """Return a fleet behind three nodes, and the ports of the two for certificates."""
    with ExitStack() as stack:
        lab = Lab(tmp_path, stack)
        url = f"http://{LOOPBACK}:{free_port()}"
        text = lab.folder.fleet_file.read_text()
        lab.folder.fleet_file.write_text(re.sub(r"(\[server\]\n)", rf'\1access_url = "{url}"\n', text))
        access = AccessServer(lab.folder, url)
        access.start()
        stack.callback(access.stop)
        ports, peers = [lab.port, free_port(), lab.enrol_port], [free_port() for _ in range(NODES)]
        for number, port in enumerate(ports, 1):
            server = node(tmp_path / "cluster", number, port, peers, url, lab.folder)
            server.start()
            stack.callback(server.kill)
        # They answer before they know each other.
        time.sleep(8)
        lab.serve()
        yield lab, ports[:2]


@pytest.mark.rmqtt
@pytest.mark.needs("openssl")
@pytest.mark.slow
def test_boards_join_work_and_are_revoked_behind_a_cluster(cluster):
    """Enrolled at one node, served at another; revoked at all within seconds; a name without its certificate is nothing."""
    lab, (_, second) = cluster
    boards = [lab.board(name, f"10000000{number}") for number, name in enumerate(("pi-1", "pi-2"), 1)]
    for number, board in enumerate(boards, 1):
        board.join(lab.token(f"pi-{number}"))
    device = boards[0].client("pi-1", f"{OWN}/command")
    service = fleet_file.fleet_broker_address(lab.folder)
    listener = Peer(replace(service, port=second), "edgemeter/v1/+/+/job", client_id="listener")
    lab.stack.callback(listener.close)
    device.session.publish(f"{OWN}/job", b"mine")
    assert wait_until(lambda: bool(listener.messages))
    listener.session.publish(f"{OWN}/command", b"order")
    assert wait_until(lambda: bool(device.messages))
    # Forged: nobody hears it.
    device.session.publish(f"{OTHER}/job", b"forged")
    time.sleep(1)
    assert [message.payload for message in listener.messages] == [b"mine"]
    states = Peer(replace(service, port=second), "edgemeter/v1/+/+/state", client_id="states")
    lab.stack.callback(states.close)
    lab.run("revoke", "pi-2")
    time.sleep(2)
    with pytest.raises(EdgemeterError):
        boards[1].client("pi-2", f"{OTHER}/command")
    assert wait_until(lambda: b"revoked" in b"".join(message.payload for message in states.messages if OTHER in message.topic))
    # Without a certificate, at the node for tokens, a device's name is refused.
    stranger = replace(service, port=lab.enrol_port, user="pi-1", password="x", tls=replace(service.tls, certificate=None, key=None))
    with pytest.raises(EdgemeterError):
        Peer(stranger, f"{OWN}/command", client_id="stranger")
