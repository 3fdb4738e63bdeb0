"""`edgemeter fleet doctor`, `logs` and `restart`: an order, and the answer of the device."""

import json
import threading
import time
from dataclasses import replace

import pytest
from click.testing import CliRunner

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.orders import Doctor, Logs, Restart
from edgemeter.agent.doctor import examination
from edgemeter.agent.doctor.checks import Finding
from edgemeter.provisioning.cli.main import fleet
from edgemeter.provisioning.registry import devices, jobs
from edgemeter.provisioning.registry.devices import Device
from edgemeter.provisioning.registry.registry import Registry


class Answering:
    """A service and its devices, which end every order with a text; pi-2 fails."""

    def __init__(self, path):
        self.registry = Registry(path / "registry.sqlite")
        with self.registry.transaction() as connection:
            for name in ("pi-1", "pi-2"):
                devices.put(connection, Device(name, "lab", name, "pi5", (), "accepted", None, 5))
            devices.put(connection, Device("pi-3", "lab", "pi-3", "pi5", (), "pending", None, 5))
        self.works = []
        self.text = "ok\n\x1b[2Jline 2\n"
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        while not self._ended.wait(0.05):
            for execution in jobs.unfinished_executions(self.registry):
                self.works.append(jobs.find(self.registry, execution.job).work)
                is_done = execution.device != "pi-2"
                state, text = ("done", self.text) if is_done else ("failed", None)
                ended = replace(execution, state=state, ended_ns=time.time_ns(), text=text, reason=None if is_done else "it has no log")
                with self.registry.transaction() as connection:
                    jobs.update_executions(connection, [ended])

    def close(self):
        """End it."""
        self._ended.set()
        self._thread.join()
        self.registry.close()


@pytest.fixture
def service(tmp_path):
    """Return a running service."""
    service = Answering(tmp_path)
    yield service
    service.close()


def called(tmp_path, *arguments):
    """Return what a command printed and its status."""
    result = CliRunner().invoke(fleet, ["--folder", str(tmp_path), *arguments])
    return result.stdout, result.exit_code, result.exception


def test_the_replies_are_shown_device_by_device(service, tmp_path):
    """As text, whatever it would do to a terminal."""
    text, status, _ = called(tmp_path, "doctor", "pi-1")
    assert (text, status) == ("== pi-1: done\nok\n?[2Jline 2\n", 0)
    assert service.works == [Doctor()]


def test_a_doctors_report_is_a_table(service, tmp_path):
    """As `edgemeter doctor` prints it; whatever it would do to a terminal."""
    service.text = examination.as_json([Finding(area="power", name="nvml\x1b[2J", state="bad", what="[red]gone[/red]", remedy="mend it")])
    text, status, _ = called(tmp_path, "doctor", "pi-1")
    assert status == 0
    assert "BAD" in text
    assert "[red]gone[/red]" in text
    assert "-> mend it" in text
    assert "findings" not in text
    assert "\x1b" not in text


def test_a_name_with_a_space_is_one_device(service, tmp_path):
    """A selection has marks, or quotes of its own."""
    with service.registry.transaction() as connection:
        devices.put(connection, Device("a b", "lab", "9", "pi5", (), "accepted", None, 5))
    text, _, _ = called(tmp_path, "doctor", "a b", "device=pi-1", "--json")
    assert [execution["device"] for execution in json.loads(text)["executions"]] == ["a b", "pi-1"]
    error = called(tmp_path, "doctor", "pi-9")[2]
    assert isinstance(error, ConfigError)
    assert "no device matches" in str(error)


def test_a_device_that_fails_states_why_and_the_command_fails(service, tmp_path):
    """The others are shown all the same."""
    text, status, _ = called(tmp_path, "logs", "pi-1", "pi-2", "--lines", "50")
    assert "== pi-1: done\nok" in text
    assert "== pi-2: failed: it has no log" in text
    assert status == 1
    assert set(service.works) == {Logs(lines=50)}


def test_a_board_is_rebooted(service, tmp_path):
    """Instead of its agent."""
    assert called(tmp_path, "restart", "pi-1", "--reboot")[1] == 0
    assert service.works == [Restart(what="board")]
