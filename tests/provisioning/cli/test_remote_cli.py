import time
from dataclasses import replace

import pytest
from click.testing import CliRunner

from edgemeter.agent.contract.orders import Doctor, Logs, Restart
from edgemeter.agent.doctor import examination
from edgemeter.agent.doctor.checks import Finding
from edgemeter.provisioning.cli.main import fleet
from edgemeter.provisioning.jobs import job_view
from edgemeter.provisioning.registry import devices, jobs
from edgemeter.provisioning.registry.devices import Device
from edgemeter.provisioning.registry.registry import Registry


class Answering:
    """A service whose devices end every order with a text while the command sleeps; pi-2 fails."""

    def __init__(self, path):
        self.path = path
        self.registry = Registry(path / "registry.sqlite")
        with self.registry.transaction() as connection:
            for name in ("pi-1", "pi-2", "a b"):
                devices.put(connection, Device(name, "lab", name, "pi5", (), "accepted", 5))
            devices.put(connection, Device("pi-3", "lab", "pi-3", "pi5", (), "pending", 5))
        self.works = []
        self.text = "ok\n\x1b[2Jline 2\n"

    def sleep(self, _seconds):
        for execution in jobs.select_executions(
            self.registry, "WHERE ended_ns IS NULL ORDER BY id"
        ):
            self.works.append(jobs.find(self.registry, execution.job).works[0])
            is_done = execution.device != "pi-2"
            state, text = ("done", self.text) if is_done else ("failed", None)
            ended = replace(
                execution,
                state=state,
                ended_ns=time.time_ns(),
                text=text,
                reason=None if is_done else "it has no log",
            )
            with self.registry.transaction() as connection:
                jobs.write_executions(connection, [ended])

    def call(self, *arguments):
        result = CliRunner().invoke(fleet, ["--folder", str(self.path), *arguments])
        return result.stdout, result.exit_code, result.exception


@pytest.fixture
def service(tmp_path, no_broker, monkeypatch):  # noqa: ARG001 - for what it does
    service = Answering(tmp_path)
    monkeypatch.setattr(job_view.time, "sleep", service.sleep)
    yield service
    service.registry.close()


def test_the_replies_are_shown_device_by_device(service):
    """Replies are shown as text without control characters for the terminal.

    The report of a doctor is the table that `edgemeter doctor` prints.
    """
    text, status, _ = service.call("doctor", "--on", "pi-1")
    assert (text.partition("\n")[2], status) == ("ok\n?[2Jline 2\n", 0)
    assert text.startswith("== pi-1, doctor-")
    assert service.works == [Doctor()]
    service.text = examination.as_json(
        [
            Finding(
                area="power",
                name="nvml\x1b[2J",
                state="bad",
                what="[red]gone[/red]",
                remedy="mend it",
            )
        ]
    )
    text, status, _ = service.call("doctor", "--on", "pi-1")
    assert status == 0
    assert all(words in text for words in ("BAD", "[red]gone[/red]", "-> mend it"))
    assert "\x1b" not in text


def test_a_device_that_fails_states_why_and_the_command_fails(service):
    """A failed device's reason is shown beside the others' replies, and the status is 1.

    A board can be rebooted instead of restarting its agent.
    """
    text, status, _ = service.call("logs", "--on", "a b | device=pi-[12]", "--lines", "50")
    answers = [line for line in text.splitlines() if line.startswith("==")]
    assert [(line.split(",")[0], line.partition(": ")[2]) for line in answers] == [
        ("== a b", "done"),
        ("== pi-1", "done"),
        ("== pi-2", "failed: it has no log"),
    ]
    assert status == 1
    assert set(service.works) == {Logs(lines=50)}
    assert service.call("restart", "--on", "pi-1", "--reboot")[1] == 0
    assert service.works[-1] == Restart(what="board")
