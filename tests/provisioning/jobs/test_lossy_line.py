"""Tests of the real handler and devices' real journals over an unreliable line.

The line loses, doubles and reorders messages, while either end is killed.
"""

import random
from collections import Counter

from edgemeter.agent.base.mqtt_session import Message
from edgemeter.agent.contract import orders
from edgemeter.agent.contract.messages import Topic
from edgemeter.agent.contract.orders import FINAL, ReportReceipt
from edgemeter.agent.jobs.journal import Journal
from edgemeter.provisioning.jobs import scheduler
from edgemeter.provisioning.registry import jobs
from tests.fixtures.fleet_key import command_in
from tests.fixtures.job_bench import Bench
from tests.fixtures.rows import table_row

NAMES = ("a", "b", "c")
LOSS_RATIO, DOUBLE_RATIO, KILL_RATIO = 0.35, 0.15, 0.08


class Device:
    """An agent that carries out orders on its real journal.

    `done` counts what was carried out, by job and attempt.
    """

    def __init__(self, path, draw):
        self.path = path
        self.draw = draw
        self.done = Counter()
        self.session = 0
        self.boot()

    def boot(self):
        self.journal = Journal(self.path)
        self.session += 1
        for entry in self.journal.open_ones():
            if entry.state == "running":
                self.journal.ends(entry.place, "failed", "interrupted by a restart")

    def take(self, payload):
        command = orders.decode_command(command_in(payload))
        if isinstance(command, ReportReceipt):
            self.journal.noted(command)
            return
        entry = self.journal.find(command.job, command.attempt)
        if entry is not None:
            self.journal.answer_again(entry.place, command.version)
        else:
            self.journal.add(command)

    def work(self):
        """Go one step further with the order whose turn it is."""
        for entry in self.journal.open_ones()[:1]:
            if entry.state == "accepted":
                self.journal.begins(entry.place, "boot")
            elif self.draw.random() < 0.3:
                self.done[entry.order.job, entry.order.attempt] += 1
                self.journal.ends(entry.place, "done")

    def reports(self):
        return [report for _, report in self.journal.due(self.session)]


class Line:
    """The messages that are on their way, in both directions.

    They are (device, payload) to a device, and ((device,), payload) from it.
    """

    def __init__(self, draw):
        self.draw = draw
        self.held = []

    def send(self, where, payload):
        """Put a message on the line: lost, once, or twice, and not always behind the others."""
        for _ in range((self.draw.random() >= LOSS_RATIO) + (self.draw.random() < DOUBLE_RATIO)):
            self.held.insert(
                self.draw.randint(max(0, len(self.held) - 4), len(self.held)), (where, payload)
            )

    def deliver(self, bench, devices):
        for _ in range(self.draw.randint(0, len(self.held))):
            where, payload = self.held.pop(0)
            if isinstance(where, tuple):
                bench.handler.received(Message(str(Topic("lab", where[0], "job")), payload))
            else:
                devices[where].take(payload)


def turn(number, bench, devices, line):
    """Let everybody act once, and what they say travel."""
    bench.online(*NAMES, session=number // 50)
    bench.now_ns += 2 * 10**9
    bench.sent.clear()
    bench.handler.poll(bench.now_ns)
    for topic, payload in bench.sent:
        line.send(topic.split("/")[3], payload)
    for name, device in devices.items():
        device.work()
        for report in device.reports():
            line.send((name,), report)
    line.deliver(bench, devices)


def kill(draw, bench, devices):
    """End the service, or an agent, now and then."""
    if draw.random() < KILL_RATIO:
        bench.kill()
    if draw.random() < KILL_RATIO:
        device = devices[draw.choice(NAMES)]
        device.journal.close()
        device.boot()


def run_to_the_end(path, seed):
    """Carry out two jobs on each device over a line that loses, doubles and delays.

    The service and the agents are killed on the way.
    """
    draw = random.Random(seed)  # noqa: S311 - a test
    bench = Bench(path / "server")
    devices = {name: Device(path / f"{name}.sqlite", draw) for name in NAMES}
    ordered = [bench.add(*NAMES, timeout_s=100_000.0, retries=50) for _ in range(2)]
    line, versions, ended, executions = Line(draw), {}, {}, []
    for number in range(1000):
        turn(number, bench, devices, line)
        executions = [
            execution
            for job in ordered
            for execution in jobs.executions_of_job(bench.registry, job)
        ]
        check(executions, versions, ended)
        if all(execution.is_final for execution in executions):
            break
        kill(draw, bench, devices)
    assert {execution.state for execution in executions} == {"done"}, [
        (execution.device, execution.state, execution.reason) for execution in executions
    ]
    for device in devices.values():
        assert Counter(job for job, _ in device.done.elements()) == Counter(ordered)
        device.journal.close()
    bench.registry.close()


def test_every_job_is_done_once_over_any_line(tmp_path, monkeypatch):
    """Every job is done exactly once, and no state goes back.

    Interrupted runs are tried again; nothing is carried out to its end twice, and nothing is lost.
    """
    monkeypatch.setattr(scheduler, "RETRY_PAUSE_S", 5.0)
    for seed in range(3):
        (tmp_path / str(seed)).mkdir()
        with table_row(seed):
            run_to_the_end(tmp_path / str(seed), seed)


def check(executions, versions, ended):
    """Check the order of states.

    Versions only grow, what has ended stays as it is, and one execution at a time is in flight on a
    device.
    """
    for execution in executions:
        key = (execution.job, execution.device)
        assert execution.version >= versions.get(key, 0)
        versions[key] = execution.version
        if execution.state in FINAL:
            assert ended.setdefault(key, execution) == execution
    flying = Counter(
        execution.device for execution in executions if execution.state in jobs.IN_FLIGHT
    )
    assert all(count == 1 for count in flying.values())
