"""A job's process measures, rejects what does not fit the board, and ends with its owner."""

import io
import subprocess
import zipfile

import msgspec
import pytest

from edgemeter.agent.contract.orders import Cancel, Data, Doctor, Logs, Measure
from edgemeter.agent.jobs import carry_out
from tests.agent.jobs.driver import Driver, records_in, suite
from tests.fixtures.mqtt_peer import wait_until


class DriverOfProcesses(Driver):
    """A device whose jobs are real processes."""

    def means(self):
        """Return a means to fetch contents; all else is the handler's."""
        return {"begin_fetch": super().means()["begin_fetch"]}

    def until(self, condition):
        return wait_until(lambda: [self.turn(), condition()][1], 120.0)

    def final(self, job="job-1", attempt=1):
        assert self.until(lambda: self.ended(job, attempt)), self.reports
        return self.ended(job, attempt)[-1]


@pytest.fixture
def configuration(tmp_path, monkeypatch):
    """Return the configuration of the board, which takes orders without a sandbox."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    file = tmp_path / "edgemeter" / "config.toml"
    file.parent.mkdir()
    file.write_text('unconfined_orders = "allow"\n')
    return file


@pytest.fixture
def board(tmp_path, configuration):  # noqa: ARG001 - it has to be there
    home = tmp_path / "board"
    home.mkdir()
    driver = DriverOfProcesses(home)
    yield driver
    driver.stop()


@pytest.mark.services
def test_a_suite_is_measured_and_its_runs_are_named(board):
    """The report names the records in the outbox, and each run is reported as it begins.

    Nothing is left in the working folder.
    """
    board.order(board.measure(suite(repeats=2)))
    final = board.final()
    assert final.state == "done", final
    records = records_in(board.home)
    assert [record["id"] for record in records] == list(final.runs)
    assert [record["job"] for record in records] == [final.job] * 2
    # That none of them is ok is said with the end of the job; on a busy machine it may be so.
    assert (final.reason is None) == any(record["verdict"]["state"] == "ok" for record in records)
    assert not list((board.home / "job-work").iterdir())
    assert board.until(lambda: board.activities[-1] is None)
    assert [(activity.run, activity.runs, activity.job) for activity in board.activities[1:-1]] == [
        (1, 2, "job-1"),
        (2, 2, "job-1"),
    ]
    # A file that is no model is rejected by its name in the order, not by where it stands on the
    # board.
    board.order(board.measure(models=(("m.replay.json", b"\0"),)), job="none")
    rejected = board.final("none")
    assert (rejected.state, rejected.reason.partition(" is ")[0]) == ("rejected", "'m.replay.json'")


@pytest.mark.services
def test_the_processes_of_a_job_end_when_it_is_cancelled_and_with_their_owner(board):
    """No process of the job goes on measuring when the agent gets SIGKILL."""
    board.order(board.measure(suite(seconds=60)))
    assert board.until(lambda: board.activities[-1] is not None)
    board.order(Cancel())
    assert board.final().state == "cancelled"
    board.order(board.measure(suite(seconds=60)), job="next")
    assert board.until(lambda: "running" in board.states("next"))
    running = board.handler._running
    group = running._process.pid
    # SIGKILL of the owner closes its end of the pipe.
    running._process.stdin.close()
    running._process.stdin = None
    final = board.final("next")
    assert final.state == "failed"
    assert "SIGKILL" in final.reason
    listed = subprocess.run(
        ["ps", "-o", "stat=", "-g", str(group)], capture_output=True, text=True, check=False
    ).stdout
    assert all(state.startswith("Z") for state in listed.split())
    assert records_in(board.home) == []


@pytest.mark.services
def test_the_log_and_the_doctors_findings_come_as_text(board):
    """The report holds the log without its secrets, or the doctor's findings as JSON."""
    board.order(Logs(lines=5), job="logs")
    logs = board.final("logs")
    assert "agent of 'pi-1'" in logs.text
    assert "hunter2" not in logs.text
    board.order(Doctor(), job="doctor")
    assert msgspec.json.decode(board.final("doctor").text)["findings"]


def archive(name):
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as opened:
        opened.writestr(name, b"x")
    return target.getvalue()


NOT_FOR_THIS_BOARD = [
    (b'name = "x"\n[[case]]\nmodel = "other.tflite"\n', (), "unknown model 'other.tflite'"),
    (b'name = "x"\n[[case]]\nmodel = "/etc/passwd"\n', (), "refused"),
    (
        b'name = "x"\n[[case]]\nmodel = "edgemeter-shapes_int8.tflite"\ndata = "photos"\n',
        (),
        "unknown photographs 'photos'",
    ),
    (b'name = "x"\n[[case]]\nmodel = "m.replay.json"\ndata = "../photos"\n', (), "no path"),
    (
        b'name = "x"\n[[case]]\nmodel = "m.xyz"\nruntime = "nothing"\n',
        (("m.xyz", b"x"),),
        "nothing",
    ),
    (
        b'name = "x"\n[[case]]\nmodel = "m.replay.json"\ndata = "set.zip"\n',
        (("set.zip", archive("images/../../../evil")),),
        "is not a plain name",
    ),
]


@pytest.mark.usefixtures("configuration")
def test_an_order_that_is_not_for_this_board_is_rejected(device):
    """The whole order is rejected with a reason, and nothing is measured."""
    device.plays = lambda execution: [
        carry_out.carry_out(execution.task, io.BytesIO()),
        execution.leave(0),
    ]
    for number, (document, contents, reason) in enumerate(NOT_FOR_THIS_BOARD):
        models = tuple(
            device.hold(data, name) for name, data in contents if not name.endswith(".zip")
        )
        photographs = tuple(
            Data(**msgspec.structs.asdict(device.hold(data, name)))
            for name, data in contents
            if name.endswith(".zip")
        )
        work = Measure(suite=device.hold(document, "suite.toml"), models=models, data=photographs)
        device.order(work, job=f"job-{number}")
        final = device.final(f"job-{number}")
        assert final.state == "rejected", final
        assert reason in final.reason
    assert not (device.home / "outbox.sqlite").exists() or records_in(device.home) == []
    assert list(device.home.rglob("evil")) == []


@pytest.mark.services
def test_a_device_without_a_sandbox_refuses_orders_unless_its_owner_allows_them(
    board, configuration, monkeypatch, tmp_path
):
    """The reason names the missing bubblewrap and both remedies."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    configuration.write_text("")
    board.order(board.measure(suite(repeats=2)))
    refused = board.final()
    assert (refused.state, refused.runs) == ("rejected", ())
    for words in (
        "bubblewrap is not installed",
        "sudo apt install bubblewrap",
        'unconfined_orders = "allow"',
    ):
        assert words in refused.reason
    configuration.write_text('unconfined_orders = "allow"\n')
    board.order(board.measure(suite(repeats=2)), job="allowed")
    assert board.final("allowed").state == "done"
