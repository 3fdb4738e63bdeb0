"""A fleet's server as its users start it: mosquitto with the configuration of `fleet init`, `fleet serve`, and a collector."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from tests.arm64.board import HOST
from tests.fixtures.servers import LOOPBACK, free_port

EDGEMETER = [sys.executable, "-m", "edgemeter.agent.cli.main"]
START_S = 60.0


@dataclass(frozen=True, slots=True)
class FleetServer:
    """A running server in `folder`; devices reach it at 10.0.2.2, this machine at the loopback."""

    folder: Path
    broker: str

    @property
    def ledger(self) -> Path:
        """Where the collector keeps what it receives."""
        return self.folder.parent / "ledger.sqlite"

    def command(self, *words: str | Path) -> str:
        """Run `edgemeter fleet ...` as a person does, and return what it printed."""
        command_words = [*EDGEMETER, "fleet", *(str(word) for word in words)]
        environment = {**os.environ, "EDGEMETER_FLEET_FOLDER": str(self.folder), "EDGEMETER_BROKER": self.broker}
        completed = subprocess.run(command_words, capture_output=True, text=True, env=environment, check=False)
        if completed.returncode:
            message = f"fleet {words[0]}: {completed.stderr}{completed.stdout}"
            raise AssertionError(message)
        return completed.stdout

    def join_file(self, device: str) -> Path:
        """Return a file with a fresh token of a device."""
        self.command("token", device, "--output", self.folder.parent / "join")
        return self.folder.parent / "join" / f"{device}.join.toml"

    def runs(self, device: str) -> list[RunRecord]:
        """Return what has arrived of a device."""
        with SqliteLedger(self.ledger, "read") as ledger:
            return [entry.record for entry in ledger.records() if entry.record.device == device]


@contextlib.contextmanager
def served(folder: Path, host: str = HOST) -> Iterator[FleetServer]:
    """Make a fleet below `folder` whose devices reach this machine as `host`, and serve it for the block."""
    port, https_port = free_port(), free_port()
    server = FleetServer(folder / "fleet", f"mqtts://{LOOPBACK}:{port}")
    names = ("--broker", host, "--broker-name", LOOPBACK, "--port", str(port), "--https-port", str(https_port))
    server.command("init", "--fleet", "lab", *names)
    broker = f"{server.broker}?ca={server.folder}/ca.crt&certificate={server.folder}/collector.crt&key={server.folder}/collector.key"
    with contextlib.ExitStack() as stack:
        start = _starter(stack, folder, server)
        start(
            "mosquitto",
            ["mosquitto", "-c", str(server.folder / "broker/mosquitto.conf")],
            OPENSSL_CONF=str(server.folder / "broker/openssl.cnf"),
        )
        start(
            "collector",
            [*EDGEMETER, "collector", "up", "--broker", broker, "--ledger", str(server.ledger)],
            "receiving from",
        )
        start("serve", [*EDGEMETER, "fleet", "serve", "--broker", server.broker], "serving the fleet")
        yield server


def _starter(stack: contextlib.ExitStack, folder: Path, server: FleetServer) -> Callable[..., None]:
    def start(name: str, command: list[str], says: str = "", **variables: str) -> None:
        environment = {**os.environ, "EDGEMETER_FLEET_FOLDER": str(server.folder), **variables}
        log = stack.enter_context((folder / f"{name}.log").open("wb"))
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
        stack.callback(process.wait)
        stack.callback(process.send_signal, signal.SIGTERM)
        deadline = time.monotonic() + START_S
        while says not in (folder / f"{name}.log").read_text(errors="replace"):
            if process.poll() is not None or time.monotonic() > deadline:
                message = f"{name}: {(folder / f'{name}.log').read_text(errors='replace')}"
                raise AssertionError(message)
            time.sleep(0.1)

    return start
