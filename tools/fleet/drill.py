"""The drill of a whole fleet on this machine.

There are boards that join, a job in waves, an update, a revocation, and kills all the time.

It uses the commands of `edgemeter fleet` alone. Whether nothing was lost or doubled is counted in
what they print and in the ledger.
"""

import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.fixtures.mqtt_peer import wait_until
from tools.chaos.supervised import Supervised
from tools.fleet.boards import LoopbackBoard, install
from tools.fleet.fleet_server import FleetServer, served

LONG_S = 1800.0
REPLAY = """{"format": "edgemeter-replay", "schema": 1, "latencies_ms": [2.0, 2.5],
 "inputs": [{"name": "x", "shape": [1, 3], "dtype": "float32"}],
 "outputs": [{"name": "y", "shape": [1, 3], "dtype": "float32"}]}"""
SUITE = (
    'name = "replayed"\n[[case]]\nmodel = "m.replay.json"\nmode = "rapid"\nseconds = {seconds}\n'
    "idle_seconds = 0\nrepeats = 1\n"
)
Say = Callable[[str], None]


@dataclass(slots=True)
class Outcome:
    """The outcome of a drill; `faults` are sentences about what does not hold."""

    boards: int
    kills: int = 0
    executions: int = 0
    runs: int = 0
    updated: int = 0
    took_s: dict[str, float] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def document(self) -> dict[str, object]:
        return {**asdict(self), "holds": not self.faults}


class Drill:
    """A fleet with boards of these names.

    `say` gets a line for each step, `stack` ends what is started.
    """

    def __init__(
        self,
        server: FleetServer,
        names: Sequence[str],
        stack: ExitStack,
        draw: random.Random,
        say: Say,
    ) -> None:
        self.server = server
        self.names = names
        self.stack = stack
        self.boards: list[LoopbackBoard] = []
        self.outcome = Outcome(len(names))
        self._draw = draw
        self._say = say

    @property
    def servers(self) -> list[Supervised]:
        return [self.server.broker, self.server.service, self.server.collector]

    def order(self, *options: object, on: str = "all", seconds: float = 0.0) -> str:
        """Order the replayed suite, and return the job's name."""
        folder = self.server.folder.parent
        (folder / "suite.toml").write_text(SUITE.format(seconds=seconds))
        (folder / "m.replay.json").write_text(REPLAY)
        return str(
            self.server.read(
                "run",
                folder / "suite.toml",
                "--on",
                on,
                "--detach",
                "--timeout",
                600,
                "--retries",
                10,
                *options,
            )["job"]
        )

    def note_unless(self, holds: object, text: str) -> None:
        if not holds:
            self.outcome.faults.append(text)

    def killed_until_done(
        self, jobs: Sequence[str], kills: int, victims: Sequence[Supervised]
    ) -> None:
        """Kill one of the victims again and again while the jobs go on, then wait for their end."""
        for _ in range(kills):
            time.sleep(self._draw.uniform(0.5, 4.0))
            victim = self._draw.choice(victims)
            self._say(f"killed {victim.name}")
            victim.kill(self._draw.uniform(0.0, 1.0))
        self.outcome.kills += kills
        deadline = time.monotonic() + LONG_S
        while not self._are_over(jobs) and time.monotonic() < deadline:
            time.sleep(2.0)

    def judge_measured(self, jobs: Sequence[str], names: Sequence[str]) -> None:
        """Note each execution that is not done, and each job that is not measured once.

        It has to be in the ledger once for each of these devices.
        """
        executions = [
            (job, execution)
            for job in jobs
            for execution in self.server.read("jobs", job)["executions"]
        ]
        reported = {run for _, execution in executions for run in execution["runs"]}
        wait_until(lambda: {run.id for run in self.server.runs()} >= reported, 60.0)
        counted = Counter((run.device, run.job) for run in self.server.runs() if run.job in jobs)
        expected = {(name, job) for name in names for job in jobs}
        faults = [
            f"{execution['device']}, {job}: {execution['state']}: {execution['reason']}"
            for job, execution in executions
            if execution["state"] != "done"
        ]
        faults += [
            f"{name}, {job}: is not in the ledger" for name, job in sorted(expected - set(counted))
        ]
        faults += [
            f"{name}, {job}: was not ordered" for name, job in sorted(set(counted) - expected)
        ]
        faults += [
            f"{name}, {job}: measured {times} times"
            for (name, job), times in sorted(counted.items())
            if times > 1
        ]
        self.outcome.executions += len(executions)
        self.outcome.runs += sum(counted.values())
        self.outcome.faults += faults

    def _are_over(self, jobs: Sequence[str]) -> bool:
        return all(
            self.server.read("jobs", job)["state"] not in {"running", "paused"} for job in jobs
        )

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Say that a step begins, and note how long it took."""
        self._say(name)
        begun_s = time.monotonic()
        yield
        self.outcome.took_s[name] = round(time.monotonic() - begun_s, 1)

    def presence(self) -> dict[str, str]:
        return {
            device["device"]: device["presence"] for device in self.server.read("list")["devices"]
        }


@contextmanager
def joined(folder: Path, count: int, seed: int, say: Say) -> Iterator[Drill]:
    """Give a fleet of so many boards that have joined with tokens.

    They run the release `release-0.tar` in the folder.
    """
    with ExitStack() as stack:
        server = stack.enter_context(served(folder))
        released(server, 0)
        installed = install(folder / "release-0.tar", server.folder / "release.pub", folder)
        names = [f"board-{number:02d}" for number in range(count)]
        # The drill is the same for the same seed.
        drill = Drill(server, names, stack, random.Random(seed), say)  # noqa: S311
        with drill.step("joined"):
            server.command("token", *names, "--output", folder / "join")
            for number, name in enumerate(names):
                board = LoopbackBoard(name, number, folder / "boards", installed)
                drill.boards.append(board)
                board.join(folder / "join" / f"{name}.join.toml")
                board.start(stack)
            drill.note_unless(
                wait_until(lambda: set(drill.presence().values()) == {"online"}, 60.0),
                f"not all online: {drill.presence()}",
            )
        yield drill


def run_drill(folder: Path, count: int, kills: int, seed: int, say: Say) -> Outcome:
    """Run it with so many boards, and so many kills in the job as in the update."""
    with joined(folder, count, seed, say) as drill:
        server, boards = drill.server, drill.boards
        agents = [board.agent for board in boards]
        with drill.step("jobs in waves"):
            jobs = [drill.order("--waves", "2,50%", seconds=1.0), drill.order()]
            drill.killed_until_done(jobs, kills, [*drill.servers, *agents])
            drill.judge_measured(jobs, drill.names)
        with drill.step("an update in waves"):
            version = released(server, 1)
            update = server.read("update", version, "--on", "all", "--waves", "2,50%", "--detach")[
                "job"
            ]
            drill.killed_until_done(
                [update], kills, [*drill.servers, *agents, *(board.supervisor for board in boards)]
            )
            drill.outcome.updated = sum(board.release() == version for board in boards)
            drill.note_unless(
                drill.outcome.updated == count,
                f"{count - drill.outcome.updated} boards do not run release {version}",
            )
        with drill.step("one revoked"):
            gone, *staying = drill.names
            server.command("revoke", gone)
            server.service.kill(0.0)
            drill.note_unless(
                wait_until(lambda: drill.presence()[gone] == "revoked", 60.0),
                f"{gone} is {drill.presence()[gone]}",
            )
            last = drill.order()
            drill.killed_until_done([last], 1, [server.service])
            drill.judge_measured([last], staying)
        return drill.outcome


def released(server: FleetServer, number: int) -> str:
    """Build the nth release for this machine and add it; return its version."""
    path = server.folder.parent / f"release-{number}.tar"
    extras = ",".join(["serial"] * number)
    server.command(
        "release",
        "build",
        "--board",
        "pc",
        "--python",
        "{}.{}".format(*sys.version_info),
        "--extras",
        extras,
        "--output",
        path,
    )
    newest, *_ = server.read("release", "add", path)
    return str(newest["version"])
