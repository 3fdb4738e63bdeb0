"""A board floods its fleet: the delay of another board's jobs and results before, during and after, and the memory of every process.

Real mosquitto, service, collector and certificates; the attacker is a process of its own (`tests/fixtures/flooder.py`).

Usage: python -m tests.benchmarks.fleet_flood [--seconds 20] [--only PATTERN]
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from edgemeter.agent.base.mqtt_session import Message, MqttSession, SessionProfile
from edgemeter.agent.contract import messages, orders, record
from edgemeter.agent.contract.orders import Doctor, ExecutionReport, Order
from edgemeter.agent.jobs.jobs_handler import FIRST_REPORT_PAUSE_S
from edgemeter.provisioning.registry import jobs
from edgemeter.provisioning.registry.jobs import NewJob
from tests import requirements
from tests.fixtures.fleet_key import command_in, online
from tests.fixtures.flooder import FloodSettings, start_flood
from tests.fixtures.mqtt_peer import wait_until
from tests.fixtures.record_factory import make_record
from tests.provisioning.identity.lab import FLEET, Board, Lab

HEX = "0" * 64
PATIENCE_S = 120.0


@dataclass(frozen=True, slots=True)
class Flood:
    """What is sent to one topic of the attacking board."""

    kind: str
    payload: str
    qos: int = 0
    padding_bytes: int = 0
    is_retained: bool = False


def _health(device: str) -> str:
    return json.dumps({"device": device, "fleet": FLEET, "session": 1, "told_ns": 1, "agent": "1"})


def floods(device: str) -> Mapping[str, Flood]:
    """Return every flood by name: each topic that a board may write, with valid messages and with others."""
    report = '{"job":"nobody-%d","attempt":1,"expected_version":1,"state":"running","session":1}'
    want = f'{{"sha256":"{HEX}","offset":%d,"length":262144}}'
    birth = json.dumps(
        {"device": device, "fleet": FLEET, "session": 1, "agent": "1", "board": None, "os": None, "arch": "x", "runtimes": {}}
    )
    result = record.encode(make_record(device=device, fleet=FLEET, session=7, seq=987654321, id="x%d")).decode()
    return {
        "job": Flood("job", report),
        "job, QoS 1": Flood("job", report, qos=1),
        "job, 1 MB": Flood("job", report, padding_bytes=1 << 20),
        "job, not JSON": Flood("job", "%d"),
        "state": Flood("state", '{"state":"online","session":%d}', qos=1, is_retained=True),
        "birth": Flood("birth", birth),
        "health": Flood("health", _health(device), is_retained=True),
        "activity": Flood("activity", '{"session":%d}', is_retained=True),
        "challenge": Flood("state", '{"state":"online","session":1,"challenge":"0%d"}', qos=1, is_retained=True),
        "progress": Flood("progress", '{"session":1,"doing":"%d"}'),
        "want": Flood("want", want),
        "renew": Flood("renew", '{"held":"%d"}'),
        "result": Flood("result", result.replace("987654321", "%d"), qos=1),
        "result, not JSON": Flood("result", "%d"),
        "result, 1 MB": Flood("result", "%d", padding_bytes=1 << 20),
    }


def settings_of(board: Board, device: str, case: Flood, seconds: float) -> FloodSettings:
    """Return the attack by a board with its certificate."""
    paths = [str(path) for path in (board.files.ca, board.files.certificate, board.files.key)]
    topic = f"edgemeter/v1/{FLEET}/{device}/{case.kind}"
    return FloodSettings(
        board.lab.port, *paths, topic, case.payload, seconds, case.qos, case.padding_bytes, is_retained=case.is_retained, client_id=device
    )


class HonestBoard:
    """A board that does every order at once, reports each state, and has its results receipted."""

    def __init__(self, board: Board, name: str) -> None:
        self.name = name
        self._receipts: set[int] = set()
        self._reports: dict[str, bytes] = {}
        self._seq = 0
        self._session = MqttSession(board.address(), SessionProfile(name), self)
        self._session.connect()
        board.lab.stack.callback(self._session.close)

    def connected(self) -> None:
        """Subscribe, and report that it is there."""
        self._session.subscribe([self._topic("command"), self._topic("receipt")])
        self._session.publish(self._topic("state"), online(1), lasting="retained")

    def disconnected(self, reason: str) -> None:
        """Come back."""

    def answered(self, refusal: str | None) -> None:
        """Go on."""

    def received(self, message: Message) -> None:
        """Answer an order with its end; note a receipt."""
        if message.topic.endswith("receipt"):
            for first, last in messages.decode_receipt(message.payload).held:
                self._receipts.update(range(first, last + 1))
            return
        order = orders.decode_command(command_in(message.payload))
        if isinstance(order, Order):
            report = ExecutionReport(job=order.job, attempt=order.attempt, expected_version=order.version, state="done", session=1)
            self._reports[order.job] = orders.encode_order(report)
            self._session.publish(self._topic("job"), self._reports[order.job])
        else:
            self._reports.pop(order.noted, None)

    def repeat(self) -> None:
        """Report again what was not acknowledged, as an agent does after ten seconds."""
        for report in list(self._reports.values()):
            self._session.publish(self._topic("job"), report)

    def deliver(self) -> float:
        """Publish a result, and return how long its receipt took, in seconds."""
        self._seq += 1
        text = record.encode(make_record(device=self.name, fleet=FLEET, session=9, seq=self._seq, id=f"honest-{self._seq}"))
        begun_s = time.monotonic()
        while self._seq not in self._receipts and time.monotonic() - begun_s < PATIENCE_S:
            # As an agent does: again after five seconds.
            self._session.publish(self._topic("result"), text)
            wait_until(lambda: self._seq in self._receipts, 5.0, patience=1.0)
        return time.monotonic() - begun_s

    def _topic(self, kind: str) -> str:
        return f"edgemeter/v1/{FLEET}/{self.name}/{kind}"


def job_delay_s(lab: Lab, board: HonestBoard) -> float:
    """Order a job, and return how long it takes until the registry holds its end, in seconds."""
    begun_s = time.monotonic()
    with lab.registry.transaction() as connection:
        job = jobs.add(connection, NewJob(work=Doctor(), title="t", timeout_s=600.0), [(board.name, FLEET)], time.time_ns())

    def is_done() -> bool:
        execution = jobs.find_execution(lab.registry, job, board.name)
        return execution is not None and execution.state == "done"

    while not wait_until(is_done, FIRST_REPORT_PAUSE_S, patience=1.0) and time.monotonic() - begun_s < PATIENCE_S:
        board.repeat()
    return time.monotonic() - begun_s


class Memory(threading.Thread):
    """Follows the memory of processes, by name, and keeps the highest."""

    def __init__(self, processes: Mapping[str, int]) -> None:
        super().__init__(daemon=True)
        self._processes = {name: psutil.Process(pid) for name, pid in processes.items()}
        self.highest_mb = dict.fromkeys(processes, 0.0)
        self._ended = threading.Event()

    def run(self) -> None:
        """Look ten times a second."""
        while not self._ended.wait(0.1):
            for name, process in self._processes.items():
                self.highest_mb[name] = max(self.highest_mb[name], process.memory_info().rss / 1e6)

    def stop(self) -> dict[str, float]:
        """End it, and return the highest."""
        self._ended.set()
        self.join()
        return self.highest_mb


@contextmanager
def fleet() -> Iterator[tuple[Lab, HonestBoard, Board, dict[str, int]]]:
    """Run a fleet with an honest board and the attacker's, and yield both and the processes."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        lab = Lab(Path(folder), stack)
        lab.broker.start()
        stack.callback(lab.broker.kill)
        environment = {**os.environ, "EDGEMETER_HOME": f"{folder}/home"}
        base = [sys.executable, "-m", "edgemeter.agent.cli"]
        started = {}
        commands = {
            "service": [*base, "fleet", "--folder", str(lab.folder.path), "serve"],
            "collector": [*base, "collector", "up", "--folder", str(lab.folder.path)],
        }
        for name, command in commands.items():
            log = stack.enter_context(Path(folder, f"{name}.log").open("wb"))
            started[name] = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
            stack.callback(_end, started[name])
        honest, attacker = lab.joined("honest", "1"), lab.joined("attacker", "2")
        board = HonestBoard(honest, "honest")
        board.deliver()
        assert lab.broker.process is not None
        yield lab, board, attacker, {"broker": lab.broker.process.pid, **{name: process.pid for name, process in started.items()}}


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def delays(lab: Lab, board: HonestBoard, seconds: float) -> list[tuple[float, float]]:
    """Return the delay of a job and of a result, again and again for so long."""
    end_s, pairs = time.monotonic() + seconds, []
    while time.monotonic() < end_s or not pairs:
        pairs.append((job_delay_s(lab, board), board.deliver()))
    return pairs


def measure(name: str, seconds: float) -> dict[str, object]:
    """Flood a fresh fleet, and return the longest delays before, during and after, the highest memory, and what `list` says."""
    with fleet() as (lab, board, attacker, processes):
        settings = settings_of(attacker, "attacker", floods("attacker")[name], seconds)
        before = delays(lab, board, 3.0)
        memory = Memory(processes)
        memory.start()
        attack = start_flood(settings)
        time.sleep(0.5)
        during = delays(lab, board, seconds)
        report = json.loads(attack.communicate()[0])
        after = delays(lab, board, 3.0)
        listed = json.loads(lab.run("list", "--json"))["devices"]
        row: dict[str, object] = {"flood": name, **report}
        for phase, pairs in (("before", before), ("during", during), ("after", after)):
            row[f"job {phase}"] = round(max(pair[0] for pair in pairs), 2)
            row[f"result {phase}"] = round(max(pair[1] for pair in pairs), 2)
        row |= {f"{process} MB": round(highest) for process, highest in memory.stop().items()}
        row["listed"] = next((concern["text"] for line in listed if line["device"] == "attacker" for concern in line["concerns"]), "")
        return row


def main() -> int:
    """Measure flood after flood, each on a fleet of its own."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.fleet_flood", description="One board floods its fleet.")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each flood")
    parser.add_argument("--only", default="", help="floods whose name matches this pattern")
    options = parser.parse_args()
    if requirements.find("mosquitto") is None:
        print("mosquitto is not installed", file=sys.stderr)
        return 2
    for name in floods("attacker"):
        if re.search(options.only, name):
            print(json.dumps(measure(name, options.seconds)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
