"""A fleet on one machine: mosquitto, the fleet's service and a collector as processes that can be killed, and a crowd of replay devices."""

import json
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from edgemeter.agent.base.broker_address import BrokerAddress
from edgemeter.agent.contract.orders import Content, Update
from edgemeter.provisioning.inventory.fleet_file import open_registry
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry import devices, jobs
from edgemeter.provisioning.registry.devices import Device
from edgemeter.provisioning.registry.jobs import NewJob
from tests.chaos.supervised import Supervised, await_port
from tests.fixtures.collecting import EDGEMETER
from tests.fixtures.fleet_key import give_service
from tests.fixtures.servers import LOOPBACK, free_port, mosquitto_binary
from tests.fleet.replay_devices import Crowd

BROKER = ("set_tcp_nodelay true", "max_inflight_messages 2000", "max_queued_messages 100000", "persistence true", "autosave_interval 5")
FLEET = "replayed"
SUITE = 'name = "one job"\n[[case]]\nmodel = "edgemeter-shapes_{kind}.tflite"\nmode = "rapid"\n'


# At which share of all executions who is killed (SIGKILL), and how long it stays down.
Kill = tuple[float, tuple[str, ...], float]
KILLS: tuple[Kill, ...] = (
    (0.10, ("broker",), 1.0),
    (0.25, ("service",), 1.0),
    (0.40, ("collector",), 1.0),
    (0.55, ("broker", "service"), 2.0),
    (0.70, ("broker", "service", "collector"), 2.0),
    (0.85, ("service",), 0.2),
    (0.90, ("service",), 0.0),
)


class FleetWorld:
    """Use it as a context; `crowd` are the devices, `broker`, `service` and `collector` the processes.

    Devices are written into the registry, and speak at a listener without TLS, many over one connection.
    """

    def __init__(self, count: int, run_s: float) -> None:
        self.names = [f"replay-{number:05d}" for number in range(count)]
        self._run_s = run_s
        self._stack = ExitStack()

    def __enter__(self) -> "FleetWorld":  # noqa: PYI034 - Self needs Python 3.11
        try:
            self._build()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def call(self, *arguments: str) -> str:
        """Run `edgemeter fleet ...` as people do, and return what it prints."""
        command = [*EDGEMETER, "fleet", "--folder", str(self.folder.path), *arguments]
        completed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
        if completed.returncode:
            message = f"{arguments}: {completed.stderr}"
            raise RuntimeError(message)
        return completed.stdout

    def begin(self) -> str:
        """Order one job on all devices at once and two in waves; return the name of the first."""
        suites = [self.path / f"{kind}.toml" for kind in ("int8", "fp32")]
        for suite in suites:
            suite.write_text(SUITE.format(kind=suite.stem))
        ordering = ("--on", f"fleet={FLEET}", "--detach", "--timeout", "600")
        job = self.call("run", str(suites[0]), *ordering).strip()
        self.in_waves = [self.call("run", str(suite), *ordering, "--waves", "2%,35%,68%").strip() for suite in suites]
        # A release that no board fetches: what counts here is the order.
        release = Update(version="9.9.9", bundle=Content(sha256="0" * 64, size_bytes=1, name="release.tar"))
        devices_of_all = [(name, FLEET) for name in self.names]
        with open_registry(self.folder) as registry, registry.transaction() as statements:
            new = NewJob((release,), "update", 600.0, retries=3)
            self.update = jobs.add(statements, new, devices_of_all, time.time_ns())
        return job

    def progress(self) -> float:
        """Return the share of all runs and updates that are done."""
        return sum(self.crowd.executed.values()) / (4 * len(self.names))

    def status(self, job: str) -> dict[str, Any]:
        """Return a job as the command's JSON shows it."""
        status: dict[str, Any] = json.loads(self.call("jobs", job, "--format", "json"))
        return status

    def updates_done(self) -> int:
        """Return how many devices have done the update."""
        with open_registry(self.folder, read_only=True) as registry:
            return jobs.count_states(registry, self.update).get((0, "done"), 0)

    def in_ledger(self) -> dict[str, int]:
        """Return how many records of each device the collector holds."""
        environment = [*EDGEMETER, "collector", "devices", "--ledger", str(self.path / "ledger"), "--format", "json"]
        completed = subprocess.run(environment, capture_output=True, text=True, check=True, timeout=600)
        return {device["device"]: device["records"] for device in json.loads(completed.stdout)["devices"]}

    def _build(self) -> None:
        self.path = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="edgemeter-fleet-")))
        self.folder = FleetFolder(self.path / "fleet")
        port = free_port()
        address = f"mqtt://{LOOPBACK}:{port}"
        give_service(self.folder)
        self.broker = self._supervised("broker", self._plain(port))
        await_port(port)
        self.service = self._supervised("service", [*EDGEMETER, "fleet", "--folder", str(self.folder.path), "serve", "--broker", address])
        ledger, metrics = str(self.path / "ledger"), f"{LOOPBACK}:{free_port()}"
        self.collector = self._supervised(
            "collector", [*EDGEMETER, "collector", "up", "--broker", address, "--ledger", ledger, "--metrics", metrics]
        )
        self._write_devices()
        self.crowd = Crowd(BrokerAddress(LOOPBACK, port), FLEET, self.names, self._run_s)
        # Every tenth is interrupted at its first attempt of each job, and does it at the second.
        self.crowd.flaky = dict.fromkeys(self.names[::10], 1)
        self._stack.callback(self.crowd.stop)
        self.crowd.start()

    def _plain(self, port: int) -> list[str]:
        configuration = self.path / "mosquitto.conf"
        lines = [f"listener {port} {LOOPBACK}", "allow_anonymous true", "user root", *BROKER, f"persistence_location {self.path}/"]
        configuration.write_text("\n".join([*lines, ""]))
        return [mosquitto_binary(), "-c", str(configuration)]

    def _supervised(self, name: str, command: list[str]) -> Supervised:
        process = Supervised(name, command, self.path / f"{name}.log")
        self._stack.callback(process.stop)
        process.start()
        return process

    def _write_devices(self) -> None:
        """Write what enrolment leaves in the registry."""
        now_ns = time.time_ns()
        with open_registry(self.folder) as registry, registry.transaction() as statements:
            for name in self.names:
                devices.put(statements, Device(name, FLEET, name, "replay", (), "accepted", now_ns, now_ns))
