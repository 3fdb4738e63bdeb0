"""A fleet's server as its users start it.

It has mosquitto with the configuration of `fleet init`, `fleet serve`, and a collector.
"""

import contextlib
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from tests.fixtures.collecting import EDGEMETER
from tests.fixtures.mqtt_peer import wait_until
from tests.fixtures.servers import LOOPBACK, free_port, mosquitto_binary
from tools.chaos.supervised import Supervised, await_port

START_S = 60.0


@dataclass(frozen=True, slots=True)
class FleetServer:
    """A running server with its `folder`.

    Each of its processes is started again when it is killed.
    """

    folder: Path
    broker: Supervised
    service: Supervised
    collector: Supervised

    def command(self, *words: object) -> str:
        return run_fleet(self.folder, *words)

    def read(self, *words: object) -> Any:
        return json.loads(self.command(*words, "--format", "json"))

    def join_file(self, device: str) -> Path:
        self.command("token", device, "--output", self.folder.parent / "join")
        return self.folder.parent / "join" / f"{device}.join.toml"

    @property
    def ledger(self) -> Path:
        """The file in which the collector keeps the records that it receives."""
        return self.folder.parent / "ledger.sqlite"

    def runs(self, device: str | None = None) -> list[RunRecord]:
        with SqliteLedger(self.ledger, "read") as ledger:
            return [
                entry.record for entry in ledger.records() if device in {None, entry.record.device}
            ]


def run_fleet(folder: Path, *words: object) -> str:
    """Run `edgemeter fleet ...` and return its output.

    Raises:
        AssertionError: it failed; the message is its error.
    """
    command = [*EDGEMETER, "fleet", "--folder", str(folder), *(str(word) for word in words)]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    if completed.returncode:
        message = f"fleet {words[0]}: {completed.stderr}{completed.stdout}"
        raise AssertionError(message)
    return completed.stdout


@contextlib.contextmanager
def served(folder: Path, host: str = LOOPBACK) -> Iterator[FleetServer]:
    """Make a fleet below `folder`, and serve it for the block.

    Its devices reach this machine as `host`.
    """
    port, fleet = free_port(), folder / "fleet"
    names = (
        "--broker",
        host,
        "--broker-name",
        LOOPBACK,
        "--port",
        port,
        "--https-port",
        free_port(),
    )
    run_fleet(fleet, "init", "--fleet", "lab", *names)
    broker = f"mqtts://{LOOPBACK}:{port}"
    collectors = (
        f"{broker}?ca={fleet}/ca.crt&certificate={fleet}/collector.crt&key={fleet}/collector.key"
    )
    with contextlib.ExitStack() as stack:

        def start(name: str, command: list[str], says: str = "", **variables: str) -> Supervised:
            log = folder / f"{name}.log"
            process = Supervised(name, command, log, variables)
            stack.callback(process.stop)
            process.start()
            assert wait_until(
                lambda: log.exists() and says in log.read_text(errors="replace"), START_S
            ), log.read_text(errors="replace")
            return process

        files = fleet / "broker"
        broker_command = [mosquitto_binary(), "-c", str(files / "mosquitto.conf")]
        mosquitto = start("mosquitto", broker_command, OPENSSL_CONF=str(files / "openssl.cnf"))
        await_port(port)
        collecting = [
            *EDGEMETER,
            "collector",
            "up",
            "--broker",
            collectors,
            "--ledger",
            str(folder / "ledger.sqlite"),
        ]
        collector = start("collector", collecting, "receiving from")
        service = start(
            "serve",
            [*EDGEMETER, "fleet", "--folder", str(fleet), "serve", "--broker", broker],
            "serving the fleet",
        )
        yield FleetServer(fleet, mosquitto, service, collector)
