"""Chaos in short: the real processes, real faults, and every record counted afterwards."""

import json
import random
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests import requirements
from tests.fixtures.collecting import EDGEMETER
from tests.fixtures.mqtt_peer import wait_until
from tests.fixtures.servers import LOOPBACK, free_port
from tools.chaos import agents
from tools.chaos.judge import expected, in_ledger, judge
from tools.chaos.supervised import Supervised

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.nightly


def last_line(module, *arguments):
    """Return what the last line of a module's output says, which has to be a success."""
    completed = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
        cwd=ROOT,
    )
    assert completed.returncode == 0, completed.stdout[-3000:] + completed.stderr[-3000:]
    return json.loads(completed.stdout.splitlines()[-1])


@pytest.mark.mosquitto
@pytest.mark.influx
@pytest.mark.parametrize(
    ("records", "options"),
    [
        pytest.param(6000, ("--faults", "30", "--gap", "0.8"), id="one collector on SQLite"),
        pytest.param(
            8000,
            ("--ledger", "postgresql", "--faults", "40"),
            id="three collectors on PostgreSQL",
            marks=pytest.mark.postgresql,
        ),
    ],
)
def test_whatever_dies_every_record_is_in_both_stores_once(influxd, records, options):
    """Every record is in both stores once, whatever fails.

    The faults are kills, cuts, stalls, a full disk, stepped clocks, and a failing InfluxDB. Three
    collectors on one PostgreSQL lose no record either: there, servers, back-ends and COMMITs are
    struck too, both disks are full, and the standby takes over.
    """
    counts = last_line(
        "tools.chaos",
        *options,
        "--records",
        str(records),
        "--seed",
        "3",
        "--influxd",
        str(influxd),
    )
    assert counts["sent"] >= records
    assert counts["sent"] == counts["ledger"] == counts["influx"]
    assert counts["lost"] == counts["doubled"] == counts["quarantined"] == 0


@pytest.mark.rmqtt
@pytest.mark.influx
def test_a_cluster_that_loses_a_node_and_a_collector_loses_no_record(influxd):
    """A cluster of three nodes, three collectors and 200 agents loses a node and no record.

    It also loses a collector.
    """
    rmqttd = requirements.rmqttd()
    counts = last_line(
        "tools.chaos.cluster",
        "--records",
        "6000",
        "--rate",
        "200",
        "--rmqttd",
        str(rmqttd),
        "--influxd",
        str(influxd),
    )
    assert counts["sent"] == counts["influx"] >= 6000
    assert counts["lost"] == counts["doubled"] == 0


def test_the_embedded_broker_killed_with_its_collector_loses_no_record(tmp_path):
    """The embedded broker, killed with its collector, loses no record.

    One process holds broker, receiver and ledger: it dies again and again, and what the devices
    keep comes again.
    """
    port, ledger = free_port(), tmp_path / "ledger"
    (tmp_path / "outboxes").mkdir()
    with ExitStack() as stack:
        collector = Supervised(
            "collector",
            [*EDGEMETER, "collector", "up", "--port", str(port), "--ledger", str(ledger)],
            tmp_path / "collector.log",
        )
        command = [
            sys.executable,
            "-m",
            "tools.chaos.agents",
            str(tmp_path),
            f"{LOOPBACK}:{port}",
            "300",
            "100",
            "pi-1",
            "pi-2",
        ]
        devices = Supervised("agents", command, tmp_path / "agents.log")
        for process in (collector, devices):
            stack.callback(process.stop)
            process.start()
        draw = random.Random(5)  # noqa: S311 - the same pauses each time
        for _ in range(4):
            time.sleep(draw.uniform(1, 2))
            collector.kill(draw.uniform(0, 1))
        assert wait_until(devices.has_ended, 120), (tmp_path / "agents.log").read_text()[-2000:]
    counts, quarantined = in_ledger(ledger)
    verdict = judge(expected(tmp_path), [counts], counts, quarantined, 0)
    assert verdict.holds, verdict.examples
    assert verdict.sent == 600
    assert agents.read(tmp_path / "pi-1.journal")[0] == 300
