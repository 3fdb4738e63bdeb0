"""Facts about the daemon, as a process, over a real broker; and about its handlers."""

import os
import signal
import socket
import subprocess
import sys
import threading

import pytest

from edgemeter.agent.base import config
from edgemeter.agent.contract import messages
from edgemeter.agent.delivery import birth
from edgemeter.agent.delivery.outbox import Outbox
from tests.fixtures.mqtt_peer import wait_until
from tests.fixtures.publishing import always, last_state, peer, put
from tests.fixtures.servers import address_of, free_port, mosquitto

UP = [
    sys.executable,
    "-m",
    "edgemeter.agent.cli.main",
    "agent",
    "up",
    "--device",
    "pi-1",
    "--fleet",
    "lab",
]
LONG_S = 60.0
# Imports of the daemon; what only a measurement or the command line needs is none of them.
HEAVY = ("numpy", "click", "edgemeter.agent.engine", "edgemeter.agent.power", "importlib.metadata")

with_mosquitto = pytest.mark.mosquitto


@pytest.fixture
def broker(tmp_path):
    server = mosquitto(tmp_path, "set_tcp_nodelay true")
    server.start()
    yield server
    server.kill()


@pytest.fixture
def up(tmp_path):
    """Return what starts an agent whose home is the test's folder, and ends it with the test."""
    running = []

    def start(port, *options):
        environment = {**os.environ, "EDGEMETER_HOME": str(tmp_path)}
        command = [*UP, "--broker", f"127.0.0.1:{port}", *map(str, options)]
        running.append(
            subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        )
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.communicate()


def ended(process):
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=LONG_S)
    return process.returncode, err


@with_mosquitto
def test_it_reports_itself_delivers_what_others_put_and_reports_its_end(broker, up, tmp_path):
    """The agent delivers a record that another process puts into the outbox.

    At its end the state is offline, and it is lost when the agent is killed.
    """
    with peer(address_of(broker), f"{messages.TOPIC_ROOT}/lab/pi-1/+", confirm=always) as collector:
        agent = up(broker.port)
        assert wait_until(lambda: last_state(collector) == "online", LONG_S)
        births = [message for message in collector.messages if message.topic.endswith("/birth")]
        born = messages.decode_birth(births[0].payload)
        assert (born.device, born.arch) == ("pi-1", os.uname().machine)
        assert "numpy" in born.runtimes
        with Outbox(tmp_path / "outbox.sqlite") as outbox:
            put(outbox, 3)
            assert wait_until(lambda: outbox.count() == 0, LONG_S)
            assert sorted(collector.times) == [(outbox.session, seq) for seq in (1, 2, 3)]
        status, err = ended(agent)
        assert wait_until(lambda: last_state(collector) == "offline")
        killed = up(broker.port)
        assert wait_until(lambda: last_state(collector) == "online", LONG_S)
        killed.kill()
        assert wait_until(lambda: last_state(collector) == "lost")
    assert status == 0
    assert "Traceback" not in err
    assert "agent of 'pi-1', broker 127.0.0.1" in err


@pytest.mark.services
def test_without_a_broker_it_waits_and_ends_on_a_signal(up):
    """An absent broker is no reason to end, whereas SIGTERM is.

    A second agent of this home is refused, and names the first.
    """
    agent = up(free_port())
    assert "0 records waiting" in agent.stderr.readline()
    second = up(free_port())
    _, err = second.communicate(timeout=LONG_S)
    assert second.returncode == 1
    assert f"(pid {agent.pid}, since " in err
    status, err = ended(agent)
    assert status == 0
    assert "Traceback" not in err


@pytest.mark.nightly
@with_mosquitto
def test_a_service_managers_agent_waits_for_one_that_was_started_by_hand(
    broker, up, tmp_path, monkeypatch
):
    """A failed start would be taken by the supervisor for a broken release.

    The agent goes on when the other one has ended.
    """
    notes = []
    with (
        peer(address_of(broker), messages.topics_of("state")) as listener,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager,
    ):
        manager.bind(str(tmp_path / "notify"))
        threading.Thread(
            target=lambda: notes.extend(iter(lambda: manager.recv(100), b"end")), daemon=True
        ).start()
        first = up(broker.port)
        assert wait_until(lambda: last_state(listener) == "online", LONG_S)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        second = up(broker.port)
        assert "this one waits" in second.stderr.readline()
        assert ended(first)[0] == 0
        assert wait_until(lambda: last_state(listener) == "online", LONG_S)
        sessions = [messages.decode_state(message.payload).session for message in listener.messages]
        assert sessions[0] == sessions[1] != sessions[-1]
        assert b"READY=1\nWATCHDOG=1" in notes
        assert ended(second)[0] == 0
        manager.sendto(b"end", str(tmp_path / "notify"))


@pytest.mark.services
def test_it_holds_little_in_memory():
    """A small board has other use for its memory, so the agent imports only what it needs."""
    code = (
        "import sys, edgemeter.agent.daemon.daemon, paho.mqtt.client; "
        "print('\\n'.join(sys.modules))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    ).stdout.splitlines()
    assert not [name for name in loaded if name in HEAVY]


@pytest.mark.services
def test_a_birth_that_cannot_be_built_carries_the_name(tmp_path, caplog):
    """A configuration that became wrong meanwhile does not keep the agent from delivering."""
    wrong = tmp_path / "wrong.toml"
    wrong.write_text("x = 1\n")
    born = birth.read_apart("pi-1", "lab", 7, str(wrong))
    assert (born.device, born.fleet, born.session, born.board, born.runtimes) == (
        "pi-1",
        "lab",
        7,
        None,
        {},
    )
    assert "it reports its name only" in caplog.text
    assert birth.read_apart("pi-1", "lab", 7, None) == birth.read("pi-1", "lab", 7, config.read())
