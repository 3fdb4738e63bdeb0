"""Tables on a terminal of 80 columns: names are whole, what is long goes on below."""

import re
import time
from dataclasses import replace
from io import StringIO

import pytest
from click.testing import CliRunner
from rich.console import Console

from edgemeter.agent.contract.messages import DeviceState
from edgemeter.agent.contract.orders import Doctor
from edgemeter.provisioning.cli.main import fleet
from edgemeter.provisioning.health import device_view, overview
from edgemeter.provisioning.inventory import formatting
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.jobs import job_view
from edgemeter.provisioning.registry import devices, jobs
from edgemeter.provisioning.registry.devices import Device, DeviceReport
from edgemeter.provisioning.registry.jobs import NewJob
from edgemeter.provisioning.registry.registry import Registry

NAMES = ("jetson-orin-nano-02", "pi5-in-the-kitchen-01")
REASON = "the model 'ssd_mobilenet_v2_coco_quant' cannot be loaded by litert 2.1: op 132 is not known to this version; update the agent"


@pytest.fixture
def registry(tmp_path):
    """Return a registry with two devices, of which one is busy and one failed, and a fleet.toml beside it."""
    (tmp_path / "fleet.toml").write_text('fleet = "lab"\n')
    registry = Registry(tmp_path / "registry.sqlite")
    now_ns = time.time_ns()
    with registry.transaction() as connection:
        for name in NAMES:
            devices.put(connection, Device(name, "lab", name, "orin-nano", (), "accepted", now_ns, now_ns))
        devices.put_reports(connection, [DeviceReport(name, "lab", DeviceState(state="online", session=1), now_ns) for name in NAMES])
        job = jobs.add(connection, NewJob(Doctor(), "doctor", 300.0), [(name, "lab") for name in NAMES], now_ns)
    busy, failed = jobs.executions_of_job(registry, job)
    with registry.transaction() as connection:
        jobs.update_executions(
            connection,
            [
                replace(busy, state="running", attempt=1, sent_ns=now_ns, done_ratio=0.3, requested="cancel"),
                replace(failed, state="failed", attempt=1, sent_ns=now_ns, ended_ns=now_ns, reason=REASON),
            ],
        )
    yield registry
    registry.close()


def printed(table, width=80):
    """Return the lines of a table at that width."""
    console = Console(width=width, file=StringIO())
    console.print(table)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def folded(lines, column):
    """Return what stands in the column that begins at `column`, in one line."""
    return "".join(line[column:].strip() + " " for line in lines)


def test_the_list_cuts_nothing_off(registry, tmp_path):
    """What does not fit is left out, as a column; what a device is busy with stays."""
    lines = overview.read(FleetFolder(tmp_path), registry, time.time_ns())
    table, _ = device_view.fleet_table(lines, time.time_ns(), 80)
    text = "\n".join(printed(table))
    assert "…" not in text
    assert all(name in text for name in NAMES)
    assert "doctor running 30%" in text


@pytest.mark.parametrize("by", ["device", "job"])
def test_executions_are_named_in_one_line_and_their_reason_goes_on_below(registry, by):
    """Every word of it, in the last column."""
    executions = jobs.executions_of_device(registry, NAMES[1]) + jobs.executions_of_device(registry, NAMES[0])
    lines = printed(job_view.executions_table(executions, lambda _: None, time.time_ns(), by=by))
    assert all(any(line.startswith(getattr(execution, by) + " ") for line in lines) for execution in executions)
    column = lines[0].index("note")
    assert REASON.replace(" ", "") in folded(lines, column).replace(" ", "")
    assert column <= 64


def test_only_what_may_be_folded_is():
    """A hash stays whole beside a long remark."""
    table = formatting.narrow_table(("bundle", "what", "count"), [("0123456789ab", "word " * 40, "7")], folded={"what"}, right={"count"})
    lines = printed(table)
    assert lines[2].startswith("0123456789ab  word word")
    assert lines[2].endswith(" 7")
    assert "\n".join(lines).count("word") == 40


def test_the_boards_can_be_read_on_a_narrow_terminal():
    """What a board is called takes a few lines of words, not a column of letters."""
    result = CliRunner().invoke(fleet, ["boards"], env={"FORCE_COLOR": "1", "NO_COLOR": "1", "COLUMNS": "80"})
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in result.stdout.splitlines()]
    table = lines[: next(index for index, line in enumerate(lines) if ": " in line)]
    assert max(map(len, table)) <= 80
    assert any("Raspberry Pi 5" in line for line in table)
    assert len(table) < 80
