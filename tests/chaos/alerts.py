"""`python -m tests.chaos.alerts`: checks of alerts are killed and stopped, channels cut, stalled and refused; every message is counted.

Devices are lost and come back; each is an alert that four channels (JSON and text over HTTP, mail, MQTT) are to be told once, or again
where their answer did not come through. The last line is JSON; status 0 when nothing is lost and nothing came twice without such a cause.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

from edgemeter.agent.contract.messages import DeviceState
from edgemeter.agent.ledger.presence import PresenceChange
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from tests.chaos.alert_servers import HttpReceiver, Journal, Kept, MailReceiver, MqttReceiver, Receiver
from tests.chaos.clock import Clock
from tests.chaos.disk import Disk
from tests.chaos.world import end_by_signal, say

CHANNELS = ("hook", "chat", "mail", "mqtt")
DAY_NS, DISK_MB = 86_400 * 10**9, 24
# How often each kind comes, beside the others. Those of a receiver strike one channel, or all.
OF_A_RECEIVER = {"hang": 3, "drip": 2, "3xx": 2, "4xx": 2, "5xx": 3, "lost answer": 3}
OF_THE_PROCESS = {"kill": 6, "stop": 3, "disk full": 2, "clock": 2, "two at once": 1}
BESIDE = "(beside one)"
# Longer than a check waits for anything.
STOPPED_S = 5.0
RETURNS, CHECK_WITHIN_S, SETTLE_CHECKS = 0.4, 120.0, 20


@dataclass(slots=True)
class Run:
    """One check: its fault, the channels that it struck, and whether the process was killed."""

    kind: str
    channels: frozenset[str]
    is_killed: bool = False
    lost_devices: list[str] = field(default_factory=list)


class AlertWorld:
    """The receivers, a ledger on a disk of its own, and what forks the checks; use it as a context."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)  # noqa: S311 - the same faults for the same seed
        self.journal = Journal()
        self.runs: list[Run] = [Run("none", frozenset())]
        self.present: dict[str, bool] = {}
        self.reported_in: dict[str, int] = {}
        self._stack = ExitStack()
        self._count = 0

    def __enter__(self) -> "AlertWorld":  # noqa: PYI034 - Self needs Python 3.11
        self.folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="edgemeter-chaos-")))
        self.disk = Disk(self.folder / "disk", DISK_MB)
        self._stack.callback(self.disk.remove)
        self.clock = Clock(self.folder / "clock")
        self.ledger = self.disk.folder / "ledger.sqlite"
        SqliteLedger(self.ledger).close()
        self.mqtt = MqttReceiver("mqtt", self.journal, self.folder)
        self._stack.callback(self.mqtt.stop)
        http = [HttpReceiver(name, self.journal) for name in ("hook", "chat")]
        self.receivers: dict[str, Receiver] = {entry.name: entry for entry in (*http, MailReceiver("mail", self.journal), self.mqtt)}
        self.rules = self.folder / "alerts.toml"
        channels = "".join(f'[[channel]]\nname = "{name}"\n{self.receivers[name].settings()}' for name in CHANNELS)
        rule = f'[[rule]]\nname = "lost"\nkind = "device-lost"\nseverity = "critical"\nchannels = {json.dumps(CHANNELS)}\n'
        self.rules.write_text(rule + channels)
        environment = {**os.environ, **self.clock.environment}
        self._forker = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.alert_checks"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self._stack.callback(self._forker.wait)
        self._stack.callback(self._forker.stdin.close)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def report(self, device: str, *, is_present: bool) -> None:
        """Let the ledger hear of a device, as of weeks ago: the clock of the checks is stepped."""
        self.present[device] = is_present
        state = DeviceState(state="online" if is_present else "lost", session=1)
        with SqliteLedger(self.ledger) as ledger:
            ledger.commit([], [], [PresenceChange("lab", device, state, time.time_ns() - (29 if is_present else 30) * DAY_NS)])

    def start(self) -> tuple[int, Path]:
        """Start a check; return its pid and the file that holds its status when it has ended."""
        self._count += 1
        status = self.folder / f"status-{self._count}"
        command = ["trend", "alerts", "check", "--rules", str(self.rules), "--ledger", str(self.ledger)]
        print(json.dumps([str(status), str(self.folder / "checks.log"), *command]), file=self._forker.stdin, flush=True)
        return int(self._forker.stdout.readline()), status

    def strike(self) -> None:
        """Strike once: a new alert, perhaps an old one that ends, and a check under a fault."""
        kinds = OF_A_RECEIVER | {kind: weight for kind, weight in OF_THE_PROCESS.items() if kind != "disk full" or self.disk.can_fill}
        (kind,) = self.draw.choices(list(kinds), list(kinds.values()))
        struck = [name for name in CHANNELS if kind != "3xx" or name in ("hook", "chat")]
        if kind in OF_A_RECEIVER and self.draw.random() < 0.75:
            struck = [self.draw.choice(struck)]
        run = Run(kind, frozenset(struck))
        self.runs.append(run)
        self.journal.run = len(self.runs) - 1
        for _ in range(self.draw.choice([1, 1, 1, 2, 3])):
            run.lost_devices.append(f"dev-{len(self.present)}")
            self.report(run.lost_devices[-1], is_present=False)
        reported = {device for message in self.journal.kept for device, _ in message.told}
        lost = [device for device, is_present in self.present.items() if not is_present and device in reported]
        if lost and self.draw.random() < RETURNS:
            self.report(self.draw.choice(lost), is_present=True)
        if kind in OF_A_RECEIVER:
            self._disturb(run)
        else:
            {"kill": self._kill, "stop": self._stop, "disk full": self._fill, "clock": self._step, "two at once": self._two}[kind](run)
        # Messages that the broker has yet to deliver belong to this run.
        time.sleep(0.15)
        for receiver in self.receivers.values():
            receiver.mode = "pass"

    def _disturb(self, run: Run) -> None:
        is_kept = self.draw.random() < 0.5
        for name in run.channels:
            self.receivers[name].mode, self.receivers[name].is_kept = run.kind, is_kept
        self.await_end(self.start()[1])

    def _kill(self, run: Run) -> None:
        def end(pid: int) -> None:
            run.is_killed = True
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

        self._at_a_step(["connected", "kept", "answered", "later", "later"], end)

    def _stop(self, _run: Run) -> None:
        def go_on(pid: int) -> None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

        def stop(pid: int) -> None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
                threading.Timer(STOPPED_S, go_on, (pid,)).start()

        self._at_a_step(["kept", "answered"], stop)

    def _at_a_step(self, steps: list[str], strike: Callable[[int], None]) -> None:
        """Start a check and strike it once at one of the steps of a receiver, or later."""
        channel, step = self.draw.choice(CHANNELS), self.draw.choice(steps)
        started, pids = threading.Event(), []

        def watch(at_channel: str, at_step: str) -> None:
            if (at_channel, at_step) == (channel, step):
                self.journal.watch = lambda _channel, _step: None
                started.wait(10)
                strike(pids[0])

        self.journal.watch = watch
        pid, status = self.start()
        pids.append(pid)
        started.set()
        if step == "later":
            time.sleep(self.draw.uniform(0, 0.5))
            strike(pid)
        self.await_end(status)
        self.journal.watch = lambda _channel, _step: None

    def _fill(self, _run: Run) -> None:
        _, status = self.start()
        time.sleep(self.draw.uniform(0, 0.4))
        self.disk.fill()
        if self.draw.random() < 0.5:
            time.sleep(self.draw.uniform(0.1, 2))
            self.disk.free()
        self.await_end(status)
        self.disk.free()

    def _step(self, _run: Run) -> None:
        self.clock.step(self.draw.choice([0, self.draw.randrange(-600, 600) * 10**9, DAY_NS, -20 * DAY_NS, 365 * DAY_NS]))
        _, status = self.start()
        time.sleep(self.draw.uniform(0, 0.4))
        self.clock.step(self.draw.randrange(-600, 600) * 10**9)
        self.await_end(status)

    def _two(self, _run: Run) -> None:
        # The forker waits for a check; the other one is a process of its own.
        command = [sys.executable, "-m", "edgemeter.agent.cli.main", "trend", "alerts", "check", "--rules", str(self.rules)]
        other = subprocess.Popen([*command, "--ledger", str(self.ledger)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while other.poll() is None:
            self.await_end(self.start()[1])

    def await_end(self, status: Path) -> int | None:
        """Return the status of a check as it ends, None if it was killed."""
        until_s = time.monotonic() + CHECK_WITHIN_S
        while not Path(f"{status}.ended").exists():
            if time.monotonic() > until_s:
                raise TimeoutError(f"a check has not ended after {CHECK_WITHIN_S:.0f} s: {self.runs[-1]}")
            time.sleep(0.01)
        return int(status.read_text()) if status.exists() else None

    def settle(self) -> bool:
        """Check with everything whole until nothing waits; return whether that came."""
        self.clock.step(0)
        self.runs.append(Run("none", frozenset()))
        self.journal.run = len(self.runs) - 1
        return any(self.await_end(self.start()[1]) == 0 for _ in range(SETTLE_CHECKS))


@dataclass(slots=True)
class Line:
    """A line of the table: a kind of fault at a channel."""

    faults: int = 0
    alerts: int = 0
    told: int = 0
    twice: int = 0
    with_a_cause: int = 0
    lost: int = 0


def judged(world: AlertWorld) -> dict[tuple[str, str], Line]:
    """Return what became of every alert at every channel, by the fault under which it opened, repeats by that of the message before."""
    messages = world.journal.kept
    lines: dict[tuple[str, str], Line] = defaultdict(Line)
    for run in world.runs:
        for channel in CHANNELS:
            line = lines[_kind(run, channel), channel]
            line.faults += run.kind != "none"
            line.alerts += len(run.lost_devices)
            for device in run.lost_devices:
                events = {event for message in messages if message.channel == channel for about, event in message.told if about == device}
                is_told = "closed" in events if world.present[device] else "opened" in events
                line.told += is_told
                line.lost += not is_told
    last = {(message.channel, message.run): message for message in messages}
    by_event: dict[tuple[str, str, str], list[Kept]] = defaultdict(list)
    for message in messages:
        for device, event in message.told:
            by_event[message.channel, device, event].append(message)
    for (channel, _, _), of_event in by_event.items():
        for before in of_event[:-1]:
            run = world.runs[before.run]
            line = lines[_kind(run, channel), channel]
            line.twice += 1
            line.with_a_cause += before.is_answer_lost or (run.is_killed and last[channel, before.run] is before)
    return lines


def _kind(run: Run, channel: str) -> str:
    return run.kind if channel in run.channels or run.kind == "none" else BESIDE


def main() -> int:
    """Run it; return 0 when nothing is lost and nothing came twice without a lost answer."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.alerts", description="Break checks and channels, then count messages.")
    parser.add_argument("--faults", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep-log", metavar="FILE")
    arguments = parser.parse_args()
    began_s = time.monotonic()
    with AlertWorld(arguments.seed) as world:
        for number in range(arguments.faults):
            world.strike()
            if (number + 1) % 25 == 0:
                say(f"{number + 1} of {arguments.faults} faults, {time.monotonic() - began_s:.0f} s")
        is_settled = world.settle()
        time.sleep(1)
        if arguments.keep_log:
            Path(arguments.keep_log).write_text((world.folder / "checks.log").read_text())
        lines = judged(world)
        if not world.disk.can_fill:
            say("no file system may be mounted here: no disk was filled")
    print(f"seed {arguments.seed}, {time.monotonic() - began_s:.0f} s{'' if is_settled else ', SOMETHING STILL WAITS'}")
    print(f"{'fault':14}{'channel':9}{'faults':>8}{'alerts':>8}{'told':>8}{'twice':>8}{'(answer lost)':>15}{'lost':>6}")
    total = Counter[str]()
    for (kind, channel), line in sorted(lines.items(), key=lambda item: (item[0][0], CHANNELS.index(item[0][1]))):
        if line.faults or line.alerts or line.twice:
            figures = f"{line.faults:8}{line.alerts:8}{line.told:8}{line.twice:8}{line.with_a_cause:15}{line.lost:6}"
            print(f"{kind:14}{channel:9}{figures}")
        total.update({"told": line.told, "twice": line.twice, "answer_lost": line.with_a_cause, "lost": line.lost})
    total["alerts"], total["misdirected"] = len(world.present), world.journal.misdirected
    print(json.dumps({"faults": arguments.faults, "settled": is_settled, **total}))
    return 0 if is_settled and not total["lost"] and total["twice"] == total["answer_lost"] and not total["misdirected"] else 1


if __name__ == "__main__":
    end_by_signal()
    sys.exit(main())
